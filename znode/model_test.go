package znode

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockkeeper/wire"
)

// model is the state machine as one would write it from the specification without a thought for
// speed or memory: one map of nodes, which a multi copies. It shares no code with the Store but for
// the types.
type model struct {
	nodes    map[string]mnode
	sessions map[wire.SessionID]msession
	zxid     wire.Zxid
	timeMs   int64
	clockMs  int64
	ended    uint64 // the largest generation of a session that has ended

	// Of the command that is being applied.
	next    wire.Zxid
	flags   Flags
	session wire.SessionID
	ids     []Identity
	changed bool
	events  []Event
	touched map[string]bool // paths of quotas with a changed usage
}

type mnode struct {
	data      []byte
	acl       []wire.ACL
	stat      wire.Stat // but for the fields from the tree: Cversion, NumChildren, DataLength
	creates   int32
	ephemeral bool
	ttlMs     int64
	container bool
	usedMs    int64
}

type msession struct {
	generation, seq uint64
	timeoutMs       int32
	addr            string
	password        wire.Password
	ids             []Identity
}

func newModel() *model {
	open := []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	read := []wire.ACL{{Perms: 1, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	return &model{sessions: map[wire.SessionID]msession{}, nodes: map[string]mnode{
		"/":                 {data: []byte{}, acl: open},
		"/zookeeper":        {data: []byte{}, acl: open},
		"/zookeeper/quota":  {data: []byte{}, acl: open},
		"/zookeeper/config": {data: []byte{}, acl: read, stat: wire.Stat{Aversion: -1}},
	}}
}

func (m *model) children(path string) []string {
	var names []string
	prefix := strings.TrimSuffix(path, "/") + "/"
	for p := range m.nodes {
		if rest, ok := strings.CutPrefix(p, prefix); ok && rest != "" && !strings.Contains(rest, "/") {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names
}

func (m *model) statOf(path string) wire.Stat {
	n := m.nodes[path]
	st := n.stat
	st.NumChildren = int32(len(m.children(path)))
	st.Cversion = n.creates*2 - st.NumChildren
	st.DataLength = int32(len(n.data))
	return st
}

// apply applies one command.
func (m *model) apply(term uint64, stamp Stamp, c Command) Result {
	m.timeMs, m.clockMs = stamp.TimeMs, max(m.clockMs, stamp.ClockMs)
	m.next = max(m.zxid+1, wire.Zxid(term)<<32+1)
	m.flags, m.session, m.changed, m.events, m.touched = stamp.Flags, c.Session, false, nil, map[string]bool{}
	r := m.turn(c)
	if m.changed {
		m.zxid = m.next
		for q := range m.touched {
			if stats := "/zookeeper/quota" + q + "/zookeeper_stats"; m.has(stats) && m.hasQuota(q) {
				n := m.nodes[stats]
				n.data = m.usageText(q)
				m.nodes[stats] = n
			}
		}
	}
	r.Zxid, r.Events = m.zxid, m.events
	return r
}

func (m *model) turn(c Command) Result {
	sess, exists := m.sessions[c.Session]
	switch c.Kind() {
	case KindCreateSession:
		top := uint64(c.Session) >> 56
		switch {
		case exists && sess.password == c.by().Password:
			return Result{Status: Duplicate, Generation: sess.generation}
		case exists, c.Session == 0, top == 0xFF, uint64(c.Session) == 0x8000000000000000:
			return Result{Status: BadPassword}
		}
		m.sessions[c.Session] = msession{m.ended + 1, 0, c.by().TimeoutMs, c.by().Addr, c.by().Password, nil}
		m.changed = true
		return Result{Generation: m.ended + 1}
	case KindMembers:
		if text := c.Body.(*SetMembers).Text; text != "" {
			m.config([]byte(text))
		}
		return Result{}
	case KindReap:
		reap := c.Body.(*Reap)
		path := reap.Path
		n, ok := m.nodes[path]
		idleMs := m.clockMs - n.usedMs
		switch {
		case !ok:
			return Result{Code: wire.CodeNoNode}
		case len(m.children(path)) > 0,
			n.ttlMs > 0 && idleMs <= n.ttlMs,
			n.container && n.creates == 0 && (reap.NeverUsedMs == 0 || idleMs <= int64(reap.NeverUsedMs)),
			n.ttlMs == 0 && !n.container:
			return Result{Code: wire.CodeNotEmpty}
		}
		m.remove(path)
		return Result{}
	}
	switch {
	case !exists:
		return Result{Status: NoSession}
	case c.Kind() == KindAttach && sess.password != c.by().Password:
		return Result{Status: BadPassword}
	case c.Generation != sess.generation:
		return Result{Status: Moved, Generation: sess.generation}
	case c.Kind() == KindExpire:
		m.close(c.Session)
		return Result{}
	case c.Kind() == KindAttach:
		m.sessions[c.Session] = msession{sess.generation + 1, 0, c.by().TimeoutMs, c.by().Addr, sess.password, nil}
		return Result{Generation: sess.generation + 1}
	case c.Seq <= sess.seq:
		return Result{Status: Duplicate, Generation: sess.generation}
	case c.Seq > sess.seq+1:
		return Result{Status: Gap, Generation: sess.generation}
	}
	sess.seq++
	if c.req().Identities != nil {
		sess.ids = c.req().Identities
	}
	m.sessions[c.Session] = sess
	if c.req().Op == wire.OpCloseSession {
		m.close(c.Session)
		return Result{}
	}
	m.ids = append([]Identity{{"ip", sess.addr}}, sess.ids...)
	r := m.request(c)
	r.Generation = sess.generation
	return r
}

func (m *model) config(text []byte) {
	n := m.nodes["/zookeeper/config"]
	if bytes.Equal(n.data, text) {
		return
	}
	silent := len(n.data) == 0
	if len(n.data) != len(text) {
		m.touch("/zookeeper/config")
	}
	n.data = append([]byte{}, text...)
	n.stat.Version, n.stat.Mtime, n.stat.Mzxid = -1, m.timeMs, 0
	m.nodes["/zookeeper/config"] = n
	m.changed = true
	if !silent {
		m.event(wire.EventNodeDataChanged, "/zookeeper/config")
	}
}

func (m *model) close(id wire.SessionID) {
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		if n := m.nodes[p]; n.ephemeral && n.stat.EphemeralOwner == id {
			m.remove(p)
		}
	}
	m.ended = max(m.ended, m.sessions[id].generation)
	delete(m.sessions, id)
	m.changed = true
}

func (m *model) event(typ wire.EventType, path string) {
	n := m.nodes[path]
	e := Event{Type: typ, Path: path, ACL: slices.Clone(n.acl), Zxid: m.next}
	if n.ephemeral {
		e.Owner, e.Czxid, e.CtimeMs, e.Data = n.stat.EphemeralOwner, n.stat.Czxid, n.stat.Ctime, n.data
	}
	m.events = append(m.events, e)
}

// up is the path of the parent; "" directly below the root.
func up(path string) string { return path[:strings.LastIndex(path, "/")] }

// at is the path under which the node is stored that a client calls path.
func at(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

func (m *model) has(path string) bool {
	_, ok := m.nodes[at(path)]
	return ok
}

func (m *model) may(path string, perm wire.Perm) bool {
	acl := m.nodes[at(path)].acl
	return m.flags&SkipACL != 0 || mayWith(acl, m.ids, perm)
}

// mayWith knows only the identities that the test uses: networks are of 8 bits.
func mayWith(acl []wire.ACL, ids []Identity, perm wire.Perm) bool {
	for _, id := range ids {
		if id.Scheme == "super" {
			return true
		}
		for _, a := range acl {
			same := a.Scheme == id.Scheme && a.ID.ID == id.ID
			net, isNet := strings.CutSuffix(a.ID.ID, ".0.0.0/8")
			sameNet := a.Scheme == "ip" && id.Scheme == "ip" && isNet && strings.HasPrefix(id.ID, net+".")
			if a.Perms&perm != 0 && (a.Scheme == "world" || same || sameNet) {
				return true
			}
		}
	}
	return false
}

// pathOK is docs/protocol/semantics.md 2.1 for the characters that the test uses.
func pathOK(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") {
		return false
	}
	for _, part := range strings.Split(path[1:], "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\x01\x7f\ufffd\U0001f600") {
			return false
		}
	}
	return true
}

// rule is a check and the error of a request that does not pass it.
type rule struct {
	passes func() bool
	code   wire.Code
}

// first returns the error of the first rule that is broken.
func first(rules ...rule) wire.Code {
	for _, r := range rules {
		if !r.passes() {
			return r.code
		}
	}
	return wire.CodeOK
}

func (m *model) request(c Command) Result {
	if c.req().Op == wire.OpMulti {
		return m.multi(c)
	}
	rec, err := wire.DecodeBody(c.req().Op, c.req().Body)
	switch {
	case !slices.Contains([]wire.Op{
		wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpSetACL, wire.OpSync,
	}, c.req().Op):
		return Result{Code: wire.CodeUnimplemented}
	case err != nil:
		return Result{Code: wire.CodeMarshallingError}
	}
	if s, ok := rec.(*wire.SyncRequest); ok {
		return Result{Path: s.Path}
	}
	res := m.op(c.req().Op, rec, false)
	return Result{Code: res.Code, Path: res.Path, Stat: res.Stat}
}

func (m *model) multi(c Command) Result {
	rec, err := wire.DecodeBody(wire.OpMulti, c.req().Body)
	if err != nil {
		return Result{Code: wire.CodeMarshallingError}
	}
	before := *m
	before.nodes = maps.Clone(m.nodes) // nodes are values, and their data is replaced, not changed
	var results []OpResult
	ops := rec.(*wire.MultiRequest).Ops
	for i, op := range ops {
		res := m.op(op.Op, op.Record, true)
		if res.Code == wire.CodeOK {
			results = append(results, res)
			continue
		}
		*m = before
		m.touched = map[string]bool{}
		if res.Code == wire.CodeMarshallingError {
			return Result{Code: res.Code}
		}
		results = nil
		for k := range ops {
			code := wire.CodeOK
			if k == i {
				code = res.Code
			} else if k > i {
				code = wire.CodeRuntimeInconsistency
			}
			results = append(results, OpResult{Op: wire.OpError, Code: code})
		}
		break
	}
	return Result{Multi: results}
}

// op applies one op, alone or in a multi.
func (m *model) op(op wire.Op, rec wire.Record, inMulti bool) OpResult {
	res := OpResult{Op: op}
	switch q := rec.(type) {
	case *wire.CreateRequest:
		m.create(op, wire.CreateTTLRequest{Path: q.Path, Data: q.Data, ACL: q.ACL, Mode: q.Mode, TTL: -1}, inMulti, &res)
	case *wire.CreateTTLRequest:
		m.create(op, *q, inMulti, &res)
	case *wire.DeleteRequest:
		res.Code = m.delete(q)
	case *wire.SetDataRequest:
		res.Code = m.setData(q)
		if res.Code == wire.CodeOK {
			res.Stat = m.statOf(q.Path)
		}
	case *wire.SetACLRequest:
		res.Code = m.setACL(q)
		if res.Code == wire.CodeOK {
			res.Stat = m.statOf(q.Path)
		}
	case *wire.CheckVersionRequest:
		res.Code = first(
			rule{func() bool { return pathOK(q.Path) }, wire.CodeBadArguments},
			rule{func() bool { return m.has(q.Path) }, wire.CodeNoNode},
			rule{func() bool { return m.may(q.Path, wire.PermRead) }, wire.CodeNoAuth},
			rule{func() bool { return q.Version == -1 || q.Version == m.nodes[q.Path].stat.Version }, wire.CodeBadVersion},
		)
	}
	return res
}

func (m *model) create(op wire.Op, q wire.CreateTTLRequest, inMulti bool, res *OpResult) {
	if op != wire.OpCreate {
		res.Op = wire.OpCreate2
	}
	ttlMode := q.Mode == 5 || q.Mode == 6
	var acl []wire.ACL
	aclCode := wire.CodeOK
	var full string
	res.Code = first(
		rule{func() bool { return q.Mode >= 0 && q.Mode <= 6 }, wire.CodeBadArguments},
		rule{func() bool { return !ttlMode || m.flags&ExtendedTypes != 0 }, wire.CodeUnimplemented},
		rule{func() bool { return !ttlMode || q.TTL > 0 && q.TTL < 1<<40 }, wire.CodeBadArguments},
		rule{func() bool { return ttlMode || op != wire.OpCreateTTL }, wire.CodeBadArguments},
		rule{func() bool { return strings.Contains(q.Path, "/") && !strings.Contains(q.Path, "\x00") }, wire.CodeBadArguments},
		rule{func() bool { acl, aclCode = m.fix(q.ACL); return aclCode != wire.CodeMarshallingError }, wire.CodeMarshallingError},
		rule{func() bool { return aclCode == wire.CodeOK }, wire.CodeInvalidACL},
		rule{func() bool { return m.has(up(q.Path)) }, wire.CodeNoNode},
		rule{func() bool { return m.may(up(q.Path), wire.PermCreate) }, wire.CodeNoAuth},
		rule{func() bool {
			full = q.Path
			if q.Mode == 2 || q.Mode == 3 || q.Mode == 6 {
				full += fmt.Sprintf("%010d", m.nodes[at(up(q.Path))].creates)
			}
			return pathOK(full)
		}, wire.CodeBadArguments},
		rule{func() bool { return !m.has(full) }, wire.CodeNodeExists},
		rule{func() bool { return !m.nodes[at(up(full))].ephemeral }, wire.CodeNoChildrenForEphemerals},
		rule{func() bool { return m.quotaCode(full, 1, len(q.Data)) != wire.CodeMarshallingError }, wire.CodeMarshallingError},
		rule{func() bool { return m.quotaCode(full, 1, len(q.Data)) == wire.CodeOK }, wire.CodeQuotaExceeded},
	)
	if res.Code != wire.CodeOK {
		return
	}
	n := mnode{data: bytes.Clone(q.Data), acl: acl}
	n.stat.Czxid, n.stat.Mzxid, n.stat.Pzxid = m.next, m.next, m.next
	n.stat.Ctime, n.stat.Mtime, n.usedMs = m.timeMs, m.timeMs, m.clockMs
	switch {
	case ttlMode:
		n.ttlMs = q.TTL
	case op == wire.OpCreateContainer || inMulti && q.Mode == 4:
		n.container = true
		res.Op = wire.OpCreate2
	case q.Mode == 1 || q.Mode == 3:
		n.ephemeral = true
		n.stat.EphemeralOwner = m.session
	}
	parent := at(up(full))
	p := m.nodes[parent]
	p.creates++
	p.stat.Pzxid = m.next
	m.nodes[parent] = p
	if q, ok := strings.CutSuffix(full, "/zookeeper_stats"); ok && strings.HasPrefix(q, "/zookeeper/quota/") {
		n.data = m.usageText(strings.TrimPrefix(q, "/zookeeper/quota"))
	}
	// A new quota takes over charges of others.
	m.moveQuota(full, func() { m.nodes[full] = n })
	m.touch(full)
	m.changed = true
	m.event(wire.EventNodeCreated, full)
	m.event(wire.EventNodeChildrenChanged, parent)
	res.Path, res.Stat = full, m.statOf(full)
}

func (m *model) delete(q *wire.DeleteRequest) wire.Code {
	code := first(
		rule{func() bool { return strings.Contains(q.Path, "/") && !strings.Contains(q.Path, "\x00") }, wire.CodeBadArguments},
		rule{func() bool {
			return q.Path != "/" && q.Path != "/zookeeper" && q.Path != "/zookeeper/quota" && q.Path != "/zookeeper/config"
		}, wire.CodeBadArguments},
		rule{func() bool { return m.has(up(q.Path)) }, wire.CodeNoNode},
		rule{func() bool { return m.may(up(q.Path), wire.PermDelete) }, wire.CodeNoAuth},
		rule{func() bool { return m.has(q.Path) }, wire.CodeNoNode},
		rule{func() bool { return q.Version == -1 || q.Version == m.nodes[q.Path].stat.Version }, wire.CodeBadVersion},
		rule{func() bool { return len(m.children(q.Path)) == 0 }, wire.CodeNotEmpty},
	)
	if code == wire.CodeOK {
		m.remove(q.Path)
	}
	return code
}

func (m *model) remove(path string) {
	m.touch(path)
	m.event(wire.EventNodeDeleted, path)
	m.moveQuota(path, func() { delete(m.nodes, path) })
	parent := at(up(path))
	p := m.nodes[parent]
	p.stat.Pzxid = m.next
	m.nodes[parent] = p
	m.changed = true
	m.event(wire.EventNodeChildrenChanged, parent)
}

func (m *model) setData(q *wire.SetDataRequest) wire.Code {
	old := m.nodes[at(q.Path)]
	diff := len(q.Data) - len(old.data)
	code := first(
		rule{func() bool { return pathOK(q.Path) }, wire.CodeBadArguments},
		rule{func() bool { return m.has(q.Path) }, wire.CodeNoNode},
		rule{func() bool { return m.may(q.Path, wire.PermWrite) }, wire.CodeNoAuth},
		rule{func() bool { return m.quotaCode(q.Path, 0, diff) != wire.CodeMarshallingError }, wire.CodeMarshallingError},
		rule{func() bool { return m.quotaCode(q.Path, 0, diff) == wire.CodeOK }, wire.CodeQuotaExceeded},
		rule{func() bool { return q.Version == -1 || q.Version == old.stat.Version }, wire.CodeBadVersion},
	)
	if code != wire.CodeOK {
		return code
	}
	old.data = bytes.Clone(q.Data)
	old.stat.Version++
	old.stat.Mzxid, old.stat.Mtime, old.usedMs = m.next, m.timeMs, m.clockMs
	m.nodes[q.Path] = old
	if diff != 0 {
		m.touch(q.Path)
	}
	m.changed = true
	m.event(wire.EventNodeDataChanged, q.Path)
	return wire.CodeOK
}

func (m *model) setACL(q *wire.SetACLRequest) wire.Code {
	acl, aclCode := m.fix(q.ACL)
	n := m.nodes[at(q.Path)]
	code := first(
		rule{func() bool { return pathOK(q.Path) }, wire.CodeBadArguments},
		rule{func() bool { return aclCode != wire.CodeMarshallingError }, wire.CodeMarshallingError},
		rule{func() bool { return aclCode == wire.CodeOK }, wire.CodeInvalidACL},
		rule{func() bool { return m.has(q.Path) }, wire.CodeNoNode},
		rule{func() bool { return m.may(q.Path, wire.PermAdmin) }, wire.CodeNoAuth},
		rule{func() bool { return q.Version == -1 || q.Version == n.stat.Aversion }, wire.CodeBadVersion},
	)
	if code != wire.CodeOK {
		return code
	}
	n.acl = acl
	n.stat.Aversion++
	m.nodes[q.Path] = n
	m.changed = true
	return wire.CodeOK
}

// fix knows the ACLs that the test uses.
func (m *model) fix(acl []wire.ACL) ([]wire.ACL, wire.Code) {
	var fixed, seen []wire.ACL
	for _, a := range acl {
		if slices.Contains(seen, a) {
			continue
		}
		seen = append(seen, a)
		switch {
		case a.NullScheme:
			return nil, wire.CodeInvalidACL
		case a.Scheme == "auth":
			n := len(fixed)
			for _, id := range m.ids {
				if id.Scheme == "digest" || id.Scheme == "sasl" {
					fixed = append(fixed, wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: id.Scheme, ID: id.ID}})
				}
			}
			if len(fixed) == n {
				return nil, wire.CodeInvalidACL
			}
		case a.NullID && a.Scheme == "digest":
			return nil, wire.CodeMarshallingError
		case a.Scheme == "world" && a.ID.ID == "anyone", a.Scheme == "ip" && a.ID.ID == "10.0.0.0/8",
			a.Scheme == "digest" && strings.Count(a.ID.ID, ":") == 1:
			fixed = append(fixed, a)
		default:
			return nil, wire.CodeInvalidACL
		}
	}
	if len(fixed) == 0 {
		return nil, wire.CodeInvalidACL
	}
	return fixed, wire.CodeOK
}
