package znode

import (
	"crypto/subtle"
	"iter"
	"slices"

	"lockkeeper/wire"
)

// session is a session as a snapshot has it. Every member has a row for each session of the
// cluster, so a part that most sessions do not have is behind a pointer.
type session struct {
	id         wire.SessionID
	generation uint64 // of the connection that counts; 0 in a row that is not in use
	lastSeq    uint64 // of the newest request of that generation that was applied
	addr       *address
	// identities are from the newest command of the generation that carried any; nil if none has.
	// Replaced, never modified.
	identities *[]Identity
	password   wire.Password
	timeoutMs  int32
}

func (s *session) listIdentities() []Identity {
	if s.identities == nil {
		return nil
	}
	return *s.identities
}

func (s *session) setIdentities(ids []Identity) {
	if s.identities = nil; len(ids) > 0 {
		s.identities = &ids
	}
}

// address is an address of clients, which sessions share.
type address struct {
	text     string
	identity []Identity // the one of scheme ip
	sessions int        // with their newest connection from there; no part of a snapshot
}

// belongings are the ephemeral nodes of a session. They follow from the nodes and are no part of a
// snapshot.
type belongings struct {
	nodes []slot // in any order
	bytes int64  // of their paths
}

// Registry is the registry of sessions: their connections, the last applied seq of each, and the
// ephemeral nodes of each. It knows no tree: a node is a slot here.
type Registry struct {
	rows        table[session]
	slots       map[wire.SessionID]slot
	addrs       map[string]*address      // of the sessions' newest connections
	belongings  []*[pageRows]*belongings // by slot of rows
	generations generations
	ephemerals  int // of all sessions
}

func newRegistry() *Registry {
	return &Registry{
		rows:  table[session]{epoch: 1},
		slots: map[wire.SessionID]slot{},
		addrs: map[string]*address{},
	}
}

// belongingsOf returns the belongings of the session at i; nil if it has had none yet.
func (r *Registry) belongingsOf(i slot) *belongings { return r.belongings[i/pageRows][i%pageRows] }

// belong makes b the belongings of the session at i.
func (r *Registry) belong(i slot, b *belongings) { r.belongings[i/pageRows][i%pageRows] = b }

// ephemeralsOf returns the ephemeral nodes of the session at i.
func (r *Registry) ephemeralsOf(i slot) []slot {
	if b := r.belongingsOf(i); b != nil {
		return b.nodes
	}
	return nil
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID         wire.SessionID
	TimeoutMs  int32  // negotiated by the newest connection
	Generation uint64 // of the newest connection (generations)
	// of the newest request of that connection that was applied; 0 before the first
	LastSeq  uint64
	Addr     string // of that connection, as identity of scheme "ip"
	Password wire.Password
	// that this connection has shown with a write, its address aside; not to be modified
	Identities []Identity
	Ephemerals int // number of nodes
}

// Get returns the session with the given id.
func (r *Registry) Get(id wire.SessionID) (SessionInfo, bool) {
	i, ok := r.slots[id]
	if !ok {
		return SessionInfo{}, false
	}
	return r.info(i), true
}

// Claim names a session and proves the right to attach to it.
type Claim struct {
	Session  wire.SessionID
	Password wire.Password
}

// Holds reports whether the session of a claim exists and has that password. How long that takes
// does not depend on the password.
func (r *Registry) Holds(c *Claim) bool {
	i, ok := r.slots[c.Session]
	return ok && samePassword(&r.rows.row(i).password, &c.Password)
}

// EphemeralCount returns the number of a session's ephemeral nodes; 0 if there is no such session.
func (r *Registry) EphemeralCount(id wire.SessionID) int {
	i, ok := r.slots[id]
	if !ok {
		return 0
	}
	return len(r.ephemeralsOf(i))
}

// All returns all sessions, in no particular order.
func (r *Registry) All() iter.Seq[SessionInfo] {
	return func(yield func(SessionInfo) bool) {
		for i := range r.rows.used {
			if r.rows.row(i).generation != 0 && !yield(r.info(i)) {
				return
			}
		}
	}
}

func (r *Registry) info(i slot) SessionInfo {
	row := r.rows.row(i)
	return SessionInfo{
		ID: row.id, TimeoutMs: row.timeoutMs, Generation: row.generation, LastSeq: row.lastSeq,
		Addr: row.addr.text, Password: row.password, Identities: row.listIdentities(),
		Ephemerals: len(r.ephemeralsOf(i)),
	}
}

// EphemeralsBytes returns the size of the paths of a session's ephemeral nodes in an answer,
// without reading them.
func (r *Registry) EphemeralsBytes(id wire.SessionID) int {
	i, ok := r.slots[id]
	if !ok {
		return 0
	}
	if b := r.belongingsOf(i); b != nil {
		return int(b.bytes) + 4*len(b.nodes)
	}
	return 0
}

// add puts a session into the registry, with a connection from addr.
func (r *Registry) add(row session, addr string) {
	r.generations.give(row.generation)
	row.addr = r.enterAddr(addr)
	i, to := r.rows.add()
	*to = row
	if len(r.belongings) < len(r.rows.pages) {
		r.belongings = append(r.belongings, new([pageRows]*belongings))
	}
	r.slots[row.id] = i
}

// enterAddr counts one more session with an address, and returns that.
func (r *Registry) enterAddr(text string) *address {
	a := r.addrs[text]
	if a == nil {
		a = &address{text: text, identity: []Identity{{Scheme: schemeIP, ID: text}}}
		r.addrs[text] = a
	}
	a.sessions++
	return a
}

// leaveAddr takes a session out of the count of its address.
func (r *Registry) leaveAddr(a *address) {
	if a.sessions--; a.sessions == 0 {
		delete(r.addrs, a.text)
	}
}

// Counts returns the number of all sessions, and of the sessions with their newest
// connection from an address (AddrText).
func (r *Registry) Counts(addr string) (all, there int) {
	if a := r.addrs[addr]; a != nil {
		there = a.sessions
	}
	return r.rows.len(), there
}

// own makes the node at i, with a path of pathBytes bytes, an ephemeral of a session, and returns
// its index there.
func (r *Registry) own(id wire.SessionID, i slot, pathBytes int) (at int32) {
	b := r.belongingsOf(r.slots[id])
	if b == nil {
		b = new(belongings)
		r.belong(r.slots[id], b)
	}
	b.nodes = append(b.nodes, i)
	b.bytes += int64(pathBytes)
	r.ephemerals++
	return int32(len(b.nodes) - 1)
}

// disown is the reverse of own, for the ephemeral of a session at an index. It returns the node
// that has that index from now on.
func (r *Registry) disown(id wire.SessionID, at int32, pathBytes int) (moved slot) {
	b := r.belongingsOf(r.slots[id])
	last := len(b.nodes) - 1
	moved = b.nodes[last]
	b.nodes[at] = moved
	b.nodes = b.nodes[:last]
	b.bytes -= int64(pathBytes)
	r.ephemerals--
	return moved
}

// From returns up to n sessions, beginning with the one at a position, and the next
// position; -1 at the end. A session is skipped or returned twice at the most if it is created or
// closed between two calls.
func (r *Registry) From(at, n int) (list []SessionInfo, next int) {
	for ; at < int(r.rows.used); at++ {
		if n == 0 {
			return list, at
		}
		n--
		if r.rows.row(slot(at)).generation != 0 {
			list = append(list, r.info(slot(at)))
		}
	}
	return list, -1
}

// Addr returns the address of a session's newest connection, "" if there is no such session.
func (r *Registry) Addr(id wire.SessionID) string {
	i, ok := r.slots[id]
	if !ok {
		return ""
	}
	return r.rows.row(i).addr.text
}

// AddrIdentity returns a list of one identity, the address of a session's newest connection; nil if
// there is no such session. Sessions share it; it is not to be modified.
func (r *Registry) AddrIdentity(id wire.SessionID) *[]Identity {
	i, ok := r.slots[id]
	if !ok {
		return nil
	}
	return &r.rows.row(i).addr.identity
}

// mayBeSession reports whether a session may have this id. ZooKeeper's owner field uses the others
// for nodes that belong to no session, to containers and to TTL nodes.
func mayBeSession(id wire.SessionID) bool {
	return id != 0 && uint64(id) != 1<<63 && uint64(id)>>56 != 0xFF
}

// generations number the connections of sessions.
//
// Invariant: no two connections of one id have the same generation, though the id may come back
// when its session has ended, because a wall clock was set back (session/credentials.go). So a
// request that an earlier session of that id has in flight is never applied for the new one.
type generations struct {
	ended uint64 // the largest of a session that has ended: new sessions begin above it
	given uint64 // the largest of any session
}

func (g *generations) give(generation uint64) { g.given = max(g.given, generation) }

func (g *generations) end(generation uint64) { g.ended = max(g.ended, generation) }

// first is the generation of a new session.
func (g *generations) first() uint64 { return g.ended + 1 }

// replace ends all sessions, of this state and of the one that replaces it.
func (g *generations) replace(n *generations) {
	g.given = max(g.given, g.ended, n.given, n.ended)
	g.ended = g.given
}

// create opens a session; res has a Status, and created is false, if there is one already or the
// id cannot be a session's.
func (r *Registry) create(id wire.SessionID, c *Connection, res *Result) (created bool) {
	if i, ok := r.slots[id]; ok {
		row := r.rows.row(i)
		if !samePassword(&row.password, &c.Password) {
			res.Status = BadPassword
			return false
		}
		res.Status, res.Generation = Duplicate, row.generation
		return false
	}
	if !mayBeSession(id) {
		res.Status = BadPassword
		return false
	}
	res.Generation = r.generations.first()
	r.add(session{
		id: id, generation: res.Generation, timeoutMs: c.TimeoutMs, password: c.Password,
	}, c.Addr)
	return true
}

// samePassword compares in a time that does not depend on the passwords.
func samePassword(a, b *wire.Password) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

// attach gives a session a new connection.
func (r *Registry) attach(c *Command, by *Connection, res *Result) {
	if i, ok := r.slots[c.Session]; ok && !samePassword(&r.rows.row(i).password, &by.Password) {
		res.Status = BadPassword
		return
	}
	i, ok := r.current(c, res)
	if !ok {
		return
	}
	row := r.rows.mut(i)
	row.generation++
	r.generations.give(row.generation)
	row.lastSeq = 0
	row.timeoutMs = by.TimeoutMs
	r.leaveAddr(row.addr)
	row.addr = r.enterAddr(by.Addr)
	row.identities = nil
	res.Generation = row.generation
}

// current returns the session of a command if it comes from the session's current connection. Else
// res has a Status.
func (r *Registry) current(c *Command, res *Result) (slot, bool) {
	i, ok := r.slots[c.Session]
	if !ok {
		res.Status = NoSession
		return noSlot, false
	}
	row := r.rows.row(i)
	res.Generation = row.generation
	if c.Generation != row.generation {
		res.Status = Moved
		return noSlot, false
	}
	return i, true
}

// next returns the session of a command that is the next one of its current connection, and counts
// it. Else res has a Status.
func (r *Registry) next(c *Command, res *Result) (slot, bool) {
	i, ok := r.current(c, res)
	if !ok {
		return noSlot, false
	}
	row := r.rows.row(i)
	switch {
	case c.Seq <= row.lastSeq:
		res.Status = Duplicate
		return noSlot, false
	case c.Seq > row.lastSeq+1:
		res.Status = Gap
		return noSlot, false
	}
	// The number is used up whether the request succeeds or not: the client gets an answer
	// either way.
	r.rows.mut(i).lastSeq = c.Seq
	return i, true
}

// remove takes the session at i, which has no ephemerals, out of the registry.
func (r *Registry) remove(i slot) {
	row := r.rows.row(i)
	r.generations.end(row.generation)
	delete(r.slots, row.id)
	r.leaveAddr(row.addr)
	r.rows.remove(i)
	r.belong(i, nil)
}

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
	sessions *Registry
	session  slot   // the next one
	nodes    []slot // of the session before that one, which are to be visited
}

// WalkEphemerals begins a walk.
func (s *Store) WalkEphemerals() *EphemeralWalk {
	return &EphemeralWalk{sessions: s.state.sessions}
}

// Step visits up to n more sessions and nodes of s. lost says that s is another Store than at the
// beginning, or its state replaced, so that the walk cannot be continued.
func (w *EphemeralWalk) Step(s *Store, n int, visit func(Ephemeral)) (done, lost bool) {
	if s.state.sessions != w.sessions {
		return false, true
	}
	for ; n > 0; n-- {
		if len(w.nodes) == 0 {
			if w.session >= w.sessions.rows.used {
				return true, false
			}
			w.nodes = append(w.nodes[:0:0], w.sessions.ephemeralsOf(w.session)...)
			w.session++
			continue
		}
		i := w.nodes[0]
		w.nodes = w.nodes[1:]
		// The node may have been deleted since, and another one be in its place.
		t := s.state.tree
		if node := t.nodes.row(i); node.acl != nil && t.kind(node) == kindEphemeral {
			visit(Ephemeral{Path: t.path(i), Owner: wire.SessionID(t.details(node).owner), Czxid: node.czxid,
				CtimeMs: node.ctimeMs, Data: node.share(), Access: (*Access)(node.acl)})
		}
	}
	return false, false
}

// Ephemerals returns the paths of a session's ephemeral nodes, sorted; nil if there is no such
// session.
func (s *Store) Ephemerals(id wire.SessionID) []string { return s.state.ephemerals(id) }

func (st *state) ephemerals(id wire.SessionID) []string {
	i, ok := st.sessions.slots[id]
	if !ok {
		return nil
	}
	nodes := st.sessions.ephemeralsOf(i)
	paths := make([]string, 0, len(nodes))
	for _, n := range nodes {
		paths = append(paths, st.tree.path(n))
	}
	slices.Sort(paths)
	return paths
}

// own makes the node at i, if it is ephemeral, a belonging of its session. Its path has pathBytes
// bytes.
func (st *state) own(i slot, pathBytes int) {
	if n := st.tree.nodes.row(i); st.tree.kind(n) == kindEphemeral {
		owner := wire.SessionID(st.tree.details(n).owner)
		st.tree.family(n).owned = st.sessions.own(owner, i, pathBytes)
	}
}

// disown is the reverse of own.
func (st *state) disown(i slot, pathBytes int) {
	if n := st.tree.nodes.row(i); st.tree.kind(n) == kindEphemeral {
		at := st.tree.family(n).owned
		moved := st.sessions.disown(wire.SessionID(st.tree.details(n).owner), at, pathBytes)
		st.tree.family(st.tree.nodes.row(moved)).owned = at
	}
}
