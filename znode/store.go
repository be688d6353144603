package znode

import (
	"sync/atomic"

	"lockkeeper/wire"
)

// Store is the replicated state: the tree, the ACLs, the sessions and their ephemerals, the quotas.
//
// Lock: it has none. The caller ensures that no other method runs while Apply, Snapshot or Check
// does; all others are reads and may run at the same time. Data and ACLs that a read returns are
// never modified, so they may be used after the caller's lock is released. A Snapshot may be
// written and released at any time.
type Store struct {
	zxid   wire.Zxid // of the newest update
	timeMs int64     // of the newest entry, since 1970; may run backwards
	clock  clock

	cluster    ClusterID
	membership membership
	// replacement is the state of a restore in progress; nil without one.
	replacement *replacement

	nodes  table[node]
	links  []*[pageRows]links // by slot of nodes
	paths  map[string]slot
	acls   aclTable
	quotas quotaSet
	// keepsQuotas is a setting of this member, see KeepQuotas.
	keepsQuotas bool
	sizeBytes   int64 // sum of nodeSizeBytes

	perishable int // number of containers and TTL nodes

	sessions     table[session]
	belongings   []*[pageRows]belongings // by slot of sessions
	sessionSlots map[wire.SessionID]slot
	sessionsAt   map[string]int // by address, of their newest connections
	generations  generations
	ephemerals   int

	snapshots atomic.Int32               // not released yet
	listings  atomic.Pointer[[]*Listing] // that are not closed; nil if there are none

	// Buffers that live for one command, kept to be used again.
	tx     tx
	result Result
	multi  []OpResult
}

// tx is the context of the command that is being applied, and its effects so far.
type tx struct {
	zxid    wire.Zxid // that the command gets if it has an effect
	changed bool      // whether it had one
	flags   Flags
	session wire.SessionID
	ids     []Identity             // of the command's connection
	granted map[*aclList]wire.Perm // to ids, by the ACLs that the command has checked
	events  []Event
	// guarding is the parent of the nodes that the guards above are for; noSlot: none.
	guarding slot
	above    []guard
	buried   bool
	undo     []undo // how to take the effects back, the newest last
	undoing  bool   // whether effects are noted in undo: only a multi may have to
}

// recycle empties a buffer for the next command; it drops one that a rare command has made large.
func recycle[T any](buf []T) []T {
	if cap(buf) > 1024 {
		return nil
	}
	clear(buf) // for the garbage collector
	return buf[:0]
}

// New returns the state that every history starts from: the built-in nodes
// (docs/protocol/semantics.md section 3.3) and no session, at zxid 0.
func New() *Store {
	s := empty()
	add := func(path string, acl []wire.ACL, aversion int32) {
		i := s.place(node{path: path, data: []byte{}, acl: s.acls.intern(acl), aversion: aversion, kind: kindPersistent})
		if path != rootPath {
			s.attach(i, s.paths[parentOf(path)])
		}
	}
	add(rootPath, wire.OpenACL, 0)
	add(zookeeperPath, wire.OpenACL, 0)
	add(quotaPath, wire.OpenACL, 0)
	add(configPath, []wire.ACL{{Perms: wire.PermRead, ID: wire.OpenACL[0].ID}}, -1)
	return s
}

// empty returns a Store without even a root.
func empty() *Store {
	return &Store{
		nodes:        table[node]{epoch: 1},
		paths:        map[string]slot{},
		acls:         aclTable{byKey: map[string]*aclList{}},
		quotas:       quotaSet{byPath: map[string]*quota{}},
		sessions:     table[session]{epoch: 1},
		sessionSlots: map[wire.SessionID]slot{},
		sessionsAt:   map[string]int{},
	}
}

// Apply applies the commands of e in order; term is the term of e in the log. After each command,
// before the next is applied, it calls each (unless each is nil) with the command and its result.
// Both are valid only during the call, but for strings and for the ACLs and Paths of events, which
// are never modified. each may read the Store, and let others read it.
//
// Apply cannot fail: a refused command has a result that says so, and changes nothing. The state
// after it depends on nothing but the state before, term and e.
func (s *Store) Apply(term uint64, e *Entry, each func(*Command, *Result)) {
	if s.snapshots.Load() == 0 {
		s.nodes.thaw()
		s.sessions.thaw()
	}
	s.timeMs = e.TimeMs
	s.clock.advance(e.ClockMs)
	for i := range e.Commands {
		c := &e.Commands[i]
		s.begin(term, e.Flags, c)
		r := &s.result
		*r = Result{}
		s.dispatch(c, r)
		if s.tx.changed {
			s.zxid = s.tx.zxid
			s.flushQuotas()
		}
		r.Zxid = s.zxid
		r.Events = s.tx.events
		if each != nil {
			each(c, r)
		}
	}
}

// begin sets up tx for c.
func (s *Store) begin(term uint64, flags Flags, c *Command) {
	t := &s.tx
	t.zxid = max(s.zxid+1, wire.Zxid(term<<32)+1)
	t.changed = false
	t.flags = flags
	t.session = c.Session
	t.ids = t.ids[:0]
	if len(t.granted) > 1024 {
		t.granted = nil
	}
	clear(t.granted)
	t.events = recycle(t.events)
	t.guarding, t.above, t.buried = noSlot, nil, false
	t.undo, t.undoing = recycle(t.undo), false
	s.multi = recycle(s.multi)
}

// dispatch applies c.
func (s *Store) dispatch(c *Command, r *Result) {
	switch b := c.Body.(type) {
	case *Request:
		s.applyRequest(c, b, r)
	case *CreateSession:
		s.createSession(c.Session, &b.Connection, r)
	case *Attach:
		s.attachSession(c, &b.Connection, r)
	case *Expire:
		s.expireSession(c, r)
	case *Reap:
		s.reap(b, r)
	case *NameCluster:
		s.nameCluster(b.ID)
	case *SetMembers:
		s.setMembers(b.Text)
	case *ChangeMembers:
		s.changeMembers(c, b.Text, r)
	case *Reconfigure:
		s.tx.ids = append(s.tx.ids, Identity{Scheme: schemeSuper}) // a member may do everything
		r.Code = s.reconfig(c, b.Request, r)
	case *Reconfigured:
		s.reconfigured(c, b.Code, r)
	case *RestoreStep:
		s.restoreStep(c, b, r)
	case *Sync:
		// Its place in the log is all that there is to it.
	}
}

// applyRequest applies a client's request if it is the next one of its session's current
// connection.
func (s *Store) applyRequest(c *Command, q *Request, r *Result) {
	i, ok := s.nextOf(c, r)
	if !ok {
		return
	}
	row := s.sessions.mut(i)
	if len(q.Identities) > 0 {
		row.identities = q.Identities
	}
	if q.Op == wire.OpCloseSession {
		s.closeSession(i)
		r.Generation = 0
		return
	}
	s.tx.ids = append(append(s.tx.ids, Identity{Scheme: schemeIP, ID: row.addr}), row.identities...)
	r.Code = s.request(c, q, r)
}

// nextOf returns the session of a command that is the next one of its current connection, and
// counts it. For others r has a Status.
func (s *Store) nextOf(c *Command, r *Result) (slot, bool) {
	i, ok := s.sessionSlots[c.Session]
	if !ok {
		r.Status = NoSession
		return noSlot, false
	}
	row := s.sessions.row(i)
	r.Generation = row.generation
	switch {
	case c.Generation != row.generation:
		r.Status = Moved
		return noSlot, false
	case c.Seq <= row.lastSeq:
		r.Status = Duplicate
		return noSlot, false
	case c.Seq > row.lastSeq+1:
		r.Status = Gap
		return noSlot, false
	}
	// The number is used up whether the request succeeds or not: the client gets an answer
	// either way.
	s.sessions.mut(i).lastSeq = c.Seq
	return i, true
}

// Zxid returns the zxid of the newest update.
func (s *Store) Zxid() wire.Zxid { return s.zxid }

// NodeMemory is the part of a node in Store.Size besides its path and its data.
const NodeMemory = 512

// Size is the size of the state, for the limits of a whole cluster.
type Size struct {
	Nodes int64
	// Bytes estimates the memory of the nodes: their paths and data, NodeMemory for each, and
	// their ACLs, each different one once.
	Bytes int64
}

// Size returns the size of the state.
func (s *Store) Size() Size {
	n := int64(s.nodes.len())
	return Size{Nodes: n, Bytes: NodeMemory*n + s.sizeBytes + s.acls.sizeBytes}
}

// Counts are the totals that operators look at (docs/protocol/semantics.md section 12).
type Counts struct {
	Nodes      int // as ZooKeeper counts them: the root twice, as "" and "/"
	Ephemerals int // ephemeral nodes
	// as ZooKeeper approximates it: characters of the paths and bytes of the data, of the same
	// nodes
	DataSizeBytes int64
	Sessions      int
}

// Counts returns the totals.
func (s *Store) Counts() Counts {
	root := s.nodes.row(s.paths[rootPath])
	return Counts{
		Nodes:         s.nodes.len() + 1,
		Ephemerals:    s.ephemerals,
		DataSizeBytes: s.sizeBytes + int64(len(root.data)),
		Sessions:      s.sessions.len(),
	}
}
