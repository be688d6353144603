package znode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/wire"
)

// membership is the list of members and the change of it that is being carried out. Its slices are
// never modified.
type membership struct {
	version wire.Zxid // of the newest change; 0 as long as reconfigEnabled was never set
	members []Member  // in ascending order; none: a single member without server lines, or new
	change  *Change
}

// Change is a change of the members in progress: the leader changes raft's configuration, step by
// step, and then commits Reconfigured. A new leader continues it.
type Change struct {
	// Session, Generation and Seq of the command that began the change identify it.
	Session    wire.SessionID
	Generation uint64
	Seq        uint64
	Members    []Member // as they are to be, in ascending order
}

// fileGeneration is the Generation of a change that configuration files have asked for: it has no
// session, and Reconfigure has none.
const fileGeneration = 1

// FromFiles reports whether configuration files have asked for the change (ChangeMembers).
// It leaves the version of the members at 0: it is not one of reconfig.
func (ch *Change) FromFiles() bool { return ch.Session == 0 && ch.Generation == fileGeneration }

// Is reports whether c is the command that began the change, or one that ends it.
func (ch *Change) Is(c *Command) bool {
	return ch.Session == c.Session && ch.Generation == c.Generation && ch.Seq == c.Seq
}

// Members returns the members, in ascending order, and since which zxid (0: since the first
// start). The slice must not be modified.
func (s *Store) Members() ([]Member, wire.Zxid) {
	return s.state.membership.members, s.state.membership.version
}

// Change returns the change of the members that is being carried out, nil if there is none. It must
// not be modified.
func (s *Store) Change() *Change { return s.state.membership.change }

// setMembers takes the members from the leader's configuration. Once reconfig is enabled that only
// happens at the first start: from then on only reconfig changes them.
func (t *tx) setMembers(text string) {
	m := &t.state.membership
	ms, _, err := ParseConfigText(text)
	if err != nil || len(ms) == 0 || m.change != nil {
		return
	}
	if m.members == nil || t.flags&Reconfig == 0 && SameVotes(m.members, ms) {
		m.members = ms
	}
	if t.flags&Reconfig != 0 && m.version == 0 {
		m.version = t.effects.zxid
	}
	t.showMembers()
}

// changeMembers begins a change that configuration files have asked for.
func (t *tx) changeMembers(c *Command, text string, r *Result) {
	m := &t.state.membership
	ms, _, err := ParseConfigText(text)
	if err == nil && m.change == nil && t.flags&Reconfig == 0 && m.version == 0 && m.members != nil && Voters(ms) > 0 &&
		!SameVotes(m.members, ms) {
		m.change = &Change{Generation: fileGeneration, Seq: c.Seq, Members: ms}
		r.Deferred = true
	}
}

// showMembers makes the members the data of /zookeeper/config, if they are not already. The Stat is
// like ZooKeeper's (docs/protocol/admin.md section 6.2): version -1, and as mzxid the version of
// the members.
func (t *tx) showMembers() {
	tree := t.state.tree
	i, m := tree.slotOf(configPath), &t.state.membership
	text := []byte(ConfigText(m.members, m.version))
	old := tree.nodes.row(i).data()
	if bytes.Equal(old, text) {
		return
	}
	d := t.effects.edit(i, configPath)
	d.version = -1
	d.mzxid, d.mtimeMs = m.version, t.state.timeMs
	tree.replaceData(i, configPath, text)
	if len(old) > 0 {
		t.effects.event(wire.EventNodeDataChanged, i, configPath)
	}
}

// SameVotes reports whether two memberships have the same members in the same roles, whatever their
// addresses. Both are in ascending order.
func SameVotes(a, b []Member) bool {
	return slices.EqualFunc(a, b, func(x, y Member) bool { return x.ID == y.ID && x.Observer == y.Observer })
}

// reconfig begins a change of the members. Its result comes with Reconfigured.
func (t *tx) reconfig(c *Command, request []byte, r *Result) wire.Code {
	tree := t.state.tree
	m := &t.state.membership
	if m.change != nil && m.change.Is(c) {
		r.Deferred = true // the same command, sent twice
		return wire.CodeOK
	}
	if t.flags&Reconfig == 0 {
		return wire.CodeReconfigDisabled
	}
	if m.members == nil {
		return wire.CodeUnimplemented
	}
	var req wire.ReconfigRequest
	if wire.Decode(request, &req) != nil {
		return wire.CodeMarshallingError
	}
	if m.change != nil {
		return wire.CodeReconfigInProgress
	}
	if req.CurConfigID != anyVersion && req.CurConfigID != int64(m.version) {
		return wire.CodeBadVersion
	}
	next, err := nextMembers(m.members, &req)
	mayChange := t.allowed(tree.nodes.row(tree.slotOf(configPath)), wire.PermWrite)
	if err != nil {
		notNumber, outOfRange := numberError(""), rangeError("")
		switch {
		case errors.As(err, &notNumber):
			return wire.CodeMarshallingError
		case errors.As(err, &outOfRange) && !mayChange:
			return wire.CodeNoAuth // as in ZooKeeper, where it would have gone on
		}
		return wire.CodeBadArguments
	}
	if n := Voters(next); n == 0 || n == 1 && t.flags&LoneVoter == 0 {
		return wire.CodeBadArguments
	}
	if !mayChange {
		return wire.CodeNoAuth
	}
	m.change = &Change{Session: c.Session, Generation: c.Generation, Seq: c.Seq, Members: next}
	r.Deferred = true
	return wire.CodeOK
}

// reconfigured ends the change that is being carried out: with its members as the members, or
// without effect if the command has a code.
func (t *tx) reconfigured(c *Command, code wire.Code, r *Result) {
	m := &t.state.membership
	if m.change == nil || !m.change.Is(c) {
		r.Status = Duplicate
		return
	}
	ended := m.change
	m.change = nil
	if r.Code = code; code != wire.CodeOK {
		return
	}
	m.members = ended.Members
	if !ended.FromFiles() {
		m.version = t.effects.zxid
	}
	t.showMembers()
}

// nextMembers returns the members after a reconfig request. An error describes a fault of the
// request.
func nextMembers(members []Member, req *wire.ReconfigRequest) ([]Member, error) {
	if !req.NullNewMembers {
		return bulkMembers(req.NewMembers)
	}
	next := slices.Clone(members)
	for _, leaving := range elements(req.Leaving, ",") {
		id, err := strconv.ParseInt(leaving, 10, 64)
		if err != nil {
			return nil, numberError(fmt.Sprintf("leaving: %q is no number", leaving))
		}
		next = slices.DeleteFunc(next, func(m Member) bool { return int64(m.ID) == id })
	}
	for _, joining := range elements(req.Joining, ",") {
		parts := elements(joining, "=")
		if len(parts) != 2 {
			return nil, fmt.Errorf("joining %q: must be server.N=%w", joining, errSpec)
		}
		id, err := memberNumber(parts[0])
		if err != nil {
			return nil, fmt.Errorf("joining: %w", err)
		}
		m, err := ParseMember(id, parts[1])
		if err != nil {
			return nil, fmt.Errorf("joining %s: %w", m.Key(), err)
		}
		if m.ClientAddr == "" {
			return nil, fmt.Errorf("joining %s: the client port is missing", m.Key())
		}
		if next, err = replaceMember(next, m, shareAddress); err != nil {
			return nil, fmt.Errorf("joining: %w", err)
		}
	}
	return SortMembers(next), nil
}

// elements splits at sep, without blanks around the elements and without empty ones, as ZooKeeper
// does.
func elements(s, sep string) (list []string) {
	for e := range strings.SplitSeq(s, sep) {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list
}

// replaceMember returns ms, which it may change, with m as the member of its number. It fails if m
// clashes with another one.
func replaceMember(ms []Member, m Member, clash func(a, b Member) bool) ([]Member, error) {
	ms = slices.DeleteFunc(ms, func(o Member) bool { return o.ID == m.ID })
	if i := slices.IndexFunc(ms, func(o Member) bool { return clash(m, o) }); i >= 0 {
		return nil, fmt.Errorf("%s has an address of %s", m.Key(), ms[i].Key())
	}
	return append(ms, m), nil
}

// bulkMembers reads a complete list, one server line each, parted by commas or newlines.
func bulkMembers(text string) ([]Member, error) {
	var next []Member
	for line := range strings.SplitSeq(strings.ReplaceAll(text, ",", "\n"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		// As in a properties file the key may also end with a colon or a blank.
		key, value := line, ""
		if i := strings.IndexAny(line, "=: \t"); i >= 0 {
			key, value = line[:i], strings.TrimLeft(line[i:], " \t")
			value = strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(value, "="), ":"))
		}
		switch {
		case key == "version":
			for _, c := range value {
				if !strings.ContainsRune("0123456789abcdefABCDEF", c) {
					return nil, numberError(fmt.Sprintf("%q is no version", value))
				}
			}
			continue // this change gives the new version
		case !strings.HasPrefix(key, memberPrefix):
			return nil, fmt.Errorf("%q is no server line", key)
		}
		id, err := memberNumber(key)
		if err != nil {
			return nil, err
		}
		m, err := ParseMember(id, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Key(), err)
		}
		samePeerAddr := func(a, b Member) bool { return a.PeerAddr() == b.PeerAddr() }
		if next, err = replaceMember(next, m, samePeerAddr); err != nil {
			return nil, err
		}
	}
	return SortMembers(next), nil
}
