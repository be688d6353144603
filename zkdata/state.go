package zkdata

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"lockkeeper/wire"
)

// Node is a node as ZooKeeper stores it.
type Node struct {
	Data             []byte     // nil is null
	ACL              []wire.ACL // nil: not known yet, see ReadSnapshot
	Czxid, Mzxid     wire.Zxid
	Pzxid            wire.Zxid
	CtimeMs, MtimeMs int64 // since 1970
	Version          int32
	Creates          int32 // children that were ever created: ZooKeeper stores this as cversion
	Aversion         int32
	// Owner is ephemeralOwner as it is stored: a session, or the mark of a container or TTL node.
	// See KindOf.
	Owner int64

	children map[string]struct{} // names; nil without children
}

// Children returns the names of the node's children, sorted.
func (n *Node) Children() []string { return slices.Sorted(maps.Keys(n.children)) }

// State is the content of a ZooKeeper server: its sessions and nodes. The zero value is not valid;
// see NewState.
type State struct {
	// Zxid is the number of the newest applied transaction; of a snapshot alone, the number in the
	// name of its file.
	Zxid wire.Zxid
	// Sessions are the timeouts of the sessions, in ms.
	Sessions map[wire.SessionID]int32

	nodes map[string]*Node // by path; the root is ""
	// ephemerals are the paths of the nodes that have an Owner which may be a session.
	ephemerals map[int64]map[string]struct{}
}

// NewState returns the state of a server that has never run: a root and nothing else.
func NewState() *State {
	s := emptyState()
	s.nodes[""] = &Node{Data: []byte{}, ACL: wire.OpenACL}
	return s
}

func emptyState() *State {
	return &State{
		Sessions:   map[wire.SessionID]int32{},
		nodes:      map[string]*Node{},
		ephemerals: map[int64]map[string]struct{}{},
	}
}

// Node returns the node at a path, nil if there is none.
func (s *State) Node(path string) *Node {
	if path == "/" {
		path = ""
	}
	return s.nodes[path]
}

// Nodes yields all nodes that can be reached from the root, parents before children, children in
// the order of their names. The root has the path "/".
func (s *State) Nodes() iter.Seq2[string, *Node] {
	return func(yield func(string, *Node) bool) {
		if root := s.nodes[""]; root != nil && yield("/", root) {
			s.walk("", root, yield)
		}
	}
}

func (s *State) walk(path string, n *Node, yield func(string, *Node) bool) bool {
	for _, name := range n.Children() {
		below := path + "/" + name
		child := s.nodes[below]
		if child == nil {
			continue
		}
		if !yield(below, child) || !s.walk(below, child, yield) {
			return false
		}
	}
	return true
}

// Len is the number of nodes, the root counted once.
func (s *State) Len() int { return len(s.nodes) }

// Ephemerals returns the paths of the nodes of an owner, sorted.
func (s *State) Ephemerals(owner int64) []string {
	return slices.Sorted(maps.Keys(s.ephemerals[owner]))
}

// Apply applies a transaction as ZooKeeper does when it replays a log over a snapshot that was
// written while transactions were applied: it skips effects that are impossible because the
// snapshot already has a later transaction.
func (s *State) Apply(t *Txn) {
	switch body := t.Body.(type) {
	case *CreateSession:
		s.Sessions[t.Session] = body.TimeoutMs
	case *CloseSession:
		delete(s.Sessions, t.Session)
	}
	s.applyBody(t, t.Body)
	s.Zxid = max(s.Zxid, t.Zxid)
}

func (s *State) applyBody(t *Txn, body any) {
	switch b := body.(type) {
	case *Create:
		s.create(t, b)
	case *Delete:
		s.remove(b.Path, t.Zxid)
	case *SetData:
		if n := s.Node(b.Path); n != nil {
			n.Data, n.Version, n.Mzxid, n.MtimeMs = b.Data, b.Version, t.Zxid, t.TimeMs
		}
	case *SetACL:
		if n := s.Node(b.Path); n != nil {
			n.ACL, n.Aversion = aclOrOpen(b.ACL), b.Version
		}
	case *CloseSession:
		s.closeSession(t, b)
	case *Multi:
		if !b.failed() {
			for _, op := range b.Ops {
				s.applyBody(t, op)
			}
		}
	}
}

func (s *State) create(t *Txn, c *Create) {
	parentPath, name := splitPath(c.Path)
	parent := s.nodes[parentPath]
	if parent == nil {
		return
	}
	if _, exists := parent.children[name]; exists {
		if n := s.nodes[c.Path]; n != nil && n.ACL == nil {
			n.ACL = aclOrOpen(c.ACL)
		}
		if c.Op == wire.OpCreate {
			parent.raise(c.ParentCreates, t.Zxid)
		}
		return
	}
	parent.raise(c.ParentCreates, t.Zxid)
	n := &Node{Data: c.Data, ACL: aclOrOpen(c.ACL), Czxid: t.Zxid, Mzxid: t.Zxid, Pzxid: t.Zxid,
		CtimeMs: t.TimeMs, MtimeMs: t.TimeMs, Owner: c.owner(t.Session)}
	if old := s.nodes[c.Path]; old != nil { // it is no child of its parent any more
		s.disown(c.Path, old)
	}
	s.add(c.Path, n)
}

// raise sets the number of children that the node has had, unless the known number is larger. -1
// stands for one more.
func (n *Node) raise(creates int32, zxid wire.Zxid) {
	if creates == -1 {
		creates = n.Creates + 1
	}
	if creates > n.Creates {
		n.Creates, n.Pzxid = creates, zxid
	}
}

// add puts a node under its parent, which exists unless the node is the root.
func (s *State) add(path string, n *Node) {
	s.nodes[path] = n
	if path != "" {
		parentPath, name := splitPath(path)
		parent := s.nodes[parentPath]
		if parent.children == nil {
			parent.children = map[string]struct{}{}
		}
		parent.children[name] = struct{}{}
	}
	if n.Owner != 0 && n.Owner != ContainerOwner {
		if s.ephemerals[n.Owner] == nil {
			s.ephemerals[n.Owner] = map[string]struct{}{}
		}
		s.ephemerals[n.Owner][path] = struct{}{}
	}
}

// remove deletes the node at a path, if there is one. Its parent's pzxid counts in any case.
func (s *State) remove(path string, zxid wire.Zxid) {
	parentPath, name := splitPath(path)
	parent := s.nodes[parentPath]
	if parent == nil {
		return
	}
	delete(parent.children, name)
	parent.Pzxid = max(parent.Pzxid, zxid)
	if n := s.nodes[path]; n != nil {
		delete(s.nodes, path)
		s.disown(path, n)
	}
}

func (s *State) disown(path string, n *Node) {
	if paths := s.ephemerals[n.Owner]; paths != nil {
		if delete(paths, path); len(paths) == 0 {
			delete(s.ephemerals, n.Owner)
		}
	}
}

func (s *State) closeSession(t *Txn, c *CloseSession) {
	for _, path := range c.Paths {
		s.remove(path, t.Zxid)
	}
	for _, path := range s.Ephemerals(int64(t.Session)) {
		s.remove(path, t.Zxid)
	}
}

// RemoveExpiredSessions deletes the ephemeral nodes of sessions that do not exist, as ZooKeeper
// does at a start, and returns their paths. extended has the meaning that KindOf gives it.
func (s *State) RemoveExpiredSessions(extended bool) (removed []string) {
	for _, owner := range slices.Sorted(maps.Keys(s.ephemerals)) {
		if _, alive := s.Sessions[wire.SessionID(owner)]; alive || KindOf(owner, extended) != Ephemeral {
			continue
		}
		for _, path := range s.Ephemerals(owner) {
			s.remove(path, s.Zxid)
			removed = append(removed, path)
		}
	}
	return removed
}

// markedTTL returns the TTL nodes: their owner is the mark of a TTL node, and no live session.
func (s *State) markedTTL() (paths []string) {
	for _, owner := range slices.Sorted(maps.Keys(s.ephemerals)) {
		if _, alive := s.Sessions[wire.SessionID(owner)]; !alive && KindOf(owner, true) == TTL {
			paths = append(paths, s.Ephemerals(owner)...)
		}
	}
	return paths
}

// Kind is how long a node lives.
type Kind uint8

// The kinds of nodes.
const (
	Persistent Kind = iota
	Ephemeral
	Container
	TTL
)

const (
	// ContainerOwner is the ephemeralOwner that marks a container.
	ContainerOwner = -1 << 63
	// ttlOwner are the upper 24 bits of the ephemeralOwner of a TTL node; the lower 40 bits are its
	// time to live in ms.
	ttlOwner     = -1 << 56
	ttlOwnerMask = -1 << 40
)

// KindOf returns the kind of a node with an ephemeralOwner. extended says that the ZooKeeper that
// wrote it ran with extendedTypesEnabled: without it there are no TTL nodes, and the mark of one is
// the id of a session.
func KindOf(owner int64, extended bool) Kind {
	switch {
	case owner == 0:
		return Persistent
	case owner == ContainerOwner:
		return Container
	case extended && owner&ttlOwnerMask == ttlOwner:
		return TTL
	}
	return Ephemeral
}

// TTLMs is the time to live that the ephemeralOwner of a TTL node says, in ms.
func TTLMs(owner int64) int64 { return owner &^ ttlOwnerMask }

// splitPath returns the path of the parent, "" for the root, and the name.
func splitPath(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// aclOrOpen is an ACL as ZooKeeper takes it: none is one that allows everything to everybody.
func aclOrOpen(acl []wire.ACL) []wire.ACL {
	if len(acl) == 0 {
		return wire.OpenACL
	}
	return acl
}
