package znode

import (
	"strings"

	"lockkeeper/wire"
)

// Access is the ACL of a node, to be checked later, against any identities, without the Store's
// lock. Nodes with equal ACLs share one.
type Access aclList

// Allows says whether a connection with the identities ids, its "ip" among them, has one of the
// permissions. A nil Access allows everything.
func (a *Access) Allows(ids []Identity, want wire.Perm) bool {
	return a == nil || (*aclList)(a).allows(ids, want)
}

// AccessOf returns the permissions on a node; false if there is no such node.
func (s *Store) AccessOf(path string) (*Access, bool) {
	i, ok := s.find(path)
	if !ok {
		return nil, false
	}
	return (*Access)(s.nodes.row(i).acl), true
}

// AccessAbove returns the permissions on the parent of a path or, if there is none, on the nearest
// node above it. The path may be any text of a client, as the path of a watch is: each byte is
// looked at twice, and there is a lookup for each bit of the length, not one for each component.
func (s *Store) AccessAbove(path string) *Access {
	access, _ := s.AccessOf("/")
	if !strings.HasPrefix(path, "/") {
		return access
	}
	// Of the nodes above those that are there come first: each has all nodes above it. access is of
	// the last one that ends at lo or before, and none that ends at hi or behind is there.
	for lo, hi := 0, len(path); lo+1 < hi; {
		middle := lo + (hi-lo)/2
		end := lo + 1 + strings.LastIndexByte(path[lo+1:middle+1], '/')
		if end == lo { // nothing ends there
			lo = middle
		} else if a, ok := s.AccessOf(path[:end]); ok {
			access, lo = a, middle
		} else {
			hi = end
		}
	}
	return access
}

// TimeMs is the time of the newest entry by the leader's wall clock, in ms since 1970. It may run
// backwards.
func (s *Store) TimeMs() int64 { return s.timeMs }

// Ephemeral is an ephemeral node. Its data are never modified.
type Ephemeral struct {
	Path    string
	Owner   wire.SessionID
	Czxid   wire.Zxid
	CtimeMs int64
	Data    []byte
	Access  *Access
}

// EphemeralWalk visits the ephemeral nodes of all sessions in steps, because a million of them take
// longer than the state may be locked at once. It visits each that exists from its beginning to its
// end; of others it may visit some. Sessions are visited too.
type EphemeralWalk struct {
	store   *Store
	session slot   // the next one
	nodes   []slot // of the session before that one, which are to be visited
}

// WalkEphemerals begins a walk.
func (s *Store) WalkEphemerals() *EphemeralWalk { return &EphemeralWalk{store: s} }

// Step visits up to n more sessions and nodes of s. lost says that s is another Store than at the
// beginning, so that the walk cannot be continued.
func (w *EphemeralWalk) Step(s *Store, n int, visit func(Ephemeral)) (done, lost bool) {
	if s != w.store {
		return false, true
	}
	for ; n > 0; n-- {
		if len(w.nodes) == 0 {
			if w.session >= s.sessions.used {
				return true, false
			}
			w.nodes = append(w.nodes[:0:0], s.belongingsOf(w.session).nodes...)
			w.session++
			continue
		}
		i := w.nodes[0]
		w.nodes = w.nodes[1:]
		// The node may have been deleted since, and another one be in its place.
		if node := s.nodes.row(i); node.kind == kindEphemeral {
			visit(Ephemeral{Path: node.path, Owner: wire.SessionID(node.owner), Czxid: node.czxid,
				CtimeMs: node.ctimeMs, Data: node.data, Access: (*Access)(node.acl)})
		}
	}
	return false, false
}

// SessionsFrom returns up to n sessions, beginning with the one at a position, and the next
// position; -1 at the end. A session is skipped or returned twice at the most if it is created or
// closed between two calls.
func (s *Store) SessionsFrom(at, n int) (list []SessionInfo, next int) {
	for ; at < int(s.sessions.used); at++ {
		if n == 0 {
			return list, at
		}
		n--
		if s.sessions.row(slot(at)).generation != 0 {
			list = append(list, s.sessionInfo(slot(at)))
		}
	}
	return list, -1
}

// SessionAddr returns the address of a session's newest connection, "" if there is no such session.
func (s *Store) SessionAddr(id wire.SessionID) string {
	i, ok := s.sessionSlots[id]
	if !ok {
		return ""
	}
	return s.sessions.row(i).addr
}
