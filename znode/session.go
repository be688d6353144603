package znode

import (
	"crypto/subtle"
	"iter"
	"slices"

	"lockkeeper/wire"
)

// session is a session as a snapshot has it.
type session struct {
	id         wire.SessionID
	generation uint64 // of the connection that counts; 0 in a row that is not in use
	lastSeq    uint64 // of the newest request of that generation that was applied
	timeoutMs  int32
	addr       string
	password   string
	// identities are from the newest command of the generation that carried any. Replaced,
	// never modified.
	identities []Identity
}

// belongings are the ephemeral nodes of a session. They follow from the nodes and are no part of a
// snapshot.
type belongings struct {
	nodes []slot // in any order
	bytes int64  // of their paths
}

// belongingsOf returns the belongings of the session at i.
func (s *Store) belongingsOf(i slot) *belongings { return &s.belongings[i/pageRows][i%pageRows] }

// SessionInfo describes a session.
type SessionInfo struct {
	ID         wire.SessionID
	TimeoutMs  int32  // negotiated by the newest connection
	Generation uint64 // of the newest connection (generations)
	// of the newest request of that connection that was applied; 0 before the first
	LastSeq  uint64
	Addr     string // of that connection, as identity of scheme "ip"
	Password []byte // a copy
	// that this connection has shown with a write, its address aside; not to be modified
	Identities []Identity
	Ephemerals int // number of nodes
}

// Session returns the session with the given id.
func (s *Store) Session(id wire.SessionID) (SessionInfo, bool) {
	i, ok := s.sessionSlots[id]
	if !ok {
		return SessionInfo{}, false
	}
	return s.sessionInfo(i), true
}

// Claim names a session and proves the right to attach to it.
type Claim struct {
	Session  wire.SessionID
	Password [wire.PasswordLen]byte
}

// Holds reports whether the session of a claim exists and has that password. How long that takes
// does not depend on the password.
func (s *Store) Holds(c *Claim) bool {
	i, ok := s.sessionSlots[c.Session]
	return ok && samePassword(s.sessions.row(i).password, c.Password[:])
}

// EphemeralCount returns the number of a session's ephemeral nodes; 0 if there is no such session.
func (s *Store) EphemeralCount(id wire.SessionID) int {
	i, ok := s.sessionSlots[id]
	if !ok {
		return 0
	}
	return len(s.belongingsOf(i).nodes)
}

// Sessions returns all sessions, in no particular order.
func (s *Store) Sessions() iter.Seq[SessionInfo] {
	return func(yield func(SessionInfo) bool) {
		for i := range s.sessions.used {
			if s.sessions.row(i).generation != 0 && !yield(s.sessionInfo(i)) {
				return
			}
		}
	}
}

func (s *Store) sessionInfo(i slot) SessionInfo {
	row := s.sessions.row(i)
	return SessionInfo{
		ID: row.id, TimeoutMs: row.timeoutMs, Generation: row.generation, LastSeq: row.lastSeq,
		Addr: row.addr, Password: []byte(row.password), Identities: row.identities,
		Ephemerals: len(s.belongingsOf(i).nodes),
	}
}

// Ephemerals returns the paths of a session's ephemeral nodes, sorted; nil if there is no such
// session.
func (s *Store) Ephemerals(id wire.SessionID) []string {
	i, ok := s.sessionSlots[id]
	if !ok {
		return nil
	}
	nodes := s.belongingsOf(i).nodes
	paths := make([]string, 0, len(nodes))
	for _, n := range nodes {
		paths = append(paths, s.nodes.row(n).path)
	}
	slices.Sort(paths)
	return paths
}

// EphemeralsBytes returns the size of the paths of a session's ephemeral nodes in an answer,
// without reading them.
func (s *Store) EphemeralsBytes(id wire.SessionID) int {
	i, ok := s.sessionSlots[id]
	if !ok {
		return 0
	}
	b := s.belongingsOf(i)
	return int(b.bytes) + 4*len(b.nodes)
}

// addSession puts a session into the registry.
func (s *Store) addSession(row session) {
	s.generations.give(row.generation)
	i, r := s.sessions.add()
	*r = row
	if len(s.belongings) < len(s.sessions.pages) {
		s.belongings = append(s.belongings, new([pageRows]belongings))
	}
	*s.belongingsOf(i) = belongings{}
	s.sessionSlots[row.id] = i
	s.sessionsAt[row.addr]++
}

// leaveAddr takes a session out of the count of its address.
func (s *Store) leaveAddr(addr string) {
	if s.sessionsAt[addr]--; s.sessionsAt[addr] == 0 {
		delete(s.sessionsAt, addr)
	}
}

// SessionCounts returns the number of all sessions, and of the sessions with their newest
// connection from an address (AddrText).
func (s *Store) SessionCounts(addr string) (all, there int) {
	return s.sessions.len(), s.sessionsAt[addr]
}

// own makes the node at i belong to a session.
func (s *Store) own(i slot, id wire.SessionID) {
	b := s.belongingsOf(s.sessionSlots[id])
	s.link(i).owned = int32(len(b.nodes))
	b.nodes = append(b.nodes, i)
	b.bytes += int64(len(s.nodes.row(i).path))
	s.ephemerals++
}

// disown is the reverse of own.
func (s *Store) disown(i slot, id wire.SessionID) {
	b := s.belongingsOf(s.sessionSlots[id])
	at, last := s.link(i).owned, len(b.nodes)-1
	b.nodes[at] = b.nodes[last] // the last one takes its place
	s.link(b.nodes[at]).owned = at
	b.nodes = b.nodes[:last]
	b.bytes -= int64(len(s.nodes.row(i).path))
	s.ephemerals--
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

// createSession opens a session.
func (s *Store) createSession(id wire.SessionID, c *Connection, r *Result) {
	if i, ok := s.sessionSlots[id]; ok {
		row := s.sessions.row(i)
		if !samePassword(row.password, c.Password) {
			r.Status = BadPassword
			return
		}
		r.Status, r.Generation = Duplicate, row.generation
		return
	}
	if !mayBeSession(id) {
		r.Status = BadPassword
		return
	}
	s.addSession(session{
		id: id, generation: s.generations.first(), timeoutMs: c.TimeoutMs, addr: c.Addr, password: string(c.Password),
	})
	r.Generation = s.generations.first()
	s.tx.changed = true
}

// samePassword compares in a time that does not depend on the passwords.
func samePassword(a string, b []byte) bool { return subtle.ConstantTimeCompare([]byte(a), b) == 1 }

// attachSession gives a session a new connection.
func (s *Store) attachSession(c *Command, by *Connection, r *Result) {
	i, ok := s.sessionSlots[c.Session]
	if !ok {
		r.Status = NoSession
		return
	}
	row := s.sessions.row(i)
	if !samePassword(row.password, by.Password) {
		r.Status = BadPassword
		return
	}
	r.Generation = row.generation
	if row.generation != c.Generation {
		r.Status = Moved
		return
	}
	row = s.sessions.mut(i)
	row.generation++
	s.generations.give(row.generation)
	row.lastSeq = 0
	row.timeoutMs = by.TimeoutMs
	s.leaveAddr(row.addr)
	row.addr = by.Addr
	s.sessionsAt[row.addr]++
	row.identities = nil
	r.Generation = row.generation
}

// expireSession closes a session with an expired lease, unless it has a newer connection.
func (s *Store) expireSession(c *Command, r *Result) {
	i, ok := s.sessionSlots[c.Session]
	if !ok {
		r.Status = NoSession
		return
	}
	if g := s.sessions.row(i).generation; g != c.Generation {
		r.Status, r.Generation = Moved, g
		return
	}
	s.closeSession(i)
}

// closeSession ends the session at i: it deletes its ephemerals, in the order of their paths, under
// one zxid.
func (s *Store) closeSession(i slot) {
	id := s.sessions.row(i).id
	for _, path := range s.Ephemerals(id) {
		s.deleteNode(s.paths[path])
	}
	if s.replacement != nil && s.replacement.session == id {
		s.replacement = nil
	}
	s.generations.end(s.sessions.row(i).generation)
	delete(s.sessionSlots, id)
	s.leaveAddr(s.sessions.row(i).addr)
	s.sessions.remove(i)
	s.tx.changed = true
}
