package znode

import (
	"io"
	"iter"

	"lockkeeper/wire"
)

// Store is the replicated state. Its methods must not run at the same time as Apply; reads may run together.
type Store struct{}

// New returns the state that every history starts from: the built-in nodes and no session.
func New() *Store { return &Store{} }

// Apply applies the commands of e in order. each, if not nil, is called after each command, before the next one is applied.
// The result is valid only during the call.
func (s *Store) Apply(term uint64, e *Entry, each func(*Command, *Result)) {}

// Zxid returns the zxid of the newest update.
func (s *Store) Zxid() wire.Zxid { return 0 }

// TimeMs returns the time of the newest entry, in milliseconds since 1970. It never runs backwards.
func (s *Store) TimeMs() int64 { return 0 }

// Get returns the data and Stat of a node.
func (s *Store) Get(path string, ids []Identity) ([]byte, wire.Stat, wire.Code) {
	return nil, wire.Stat{}, wire.CodeNoNode
}

// Exists returns the Stat of a node.
func (s *Store) Exists(path string, ids []Identity) (wire.Stat, wire.Code) {
	return wire.Stat{}, wire.CodeNoNode
}

// Children returns the names of a node's children, in no particular order, and its Stat.
func (s *Store) Children(path string, ids []Identity) ([]string, wire.Stat, wire.Code) {
	return nil, wire.Stat{}, wire.CodeNoNode
}

// GetACL returns the ACL of a node as ids may see it, and its Stat.
func (s *Store) GetACL(path string, ids []Identity) ([]wire.ACL, wire.Stat, wire.Code) {
	return nil, wire.Stat{}, wire.CodeNoNode
}

// AllChildrenNumber returns the number of all descendants of a node.
func (s *Store) AllChildrenNumber(path string, ids []Identity) (int32, wire.Code) {
	return 0, wire.CodeNoNode
}

// Node returns the Stat of a node without a permission check.
func (s *Store) Node(path string) (wire.Stat, bool) { return wire.Stat{}, false }

// SessionInfo is what the state knows about a session.
type SessionInfo struct {
	ID         wire.SessionID
	TimeoutMs  int32
	Generation uint64
	LastSeq    uint64
	Addr       string
	Password   []byte
	Ephemerals int
}

// Session returns the session with the given id.
func (s *Store) Session(id wire.SessionID) (SessionInfo, bool) { return SessionInfo{}, false }

// Sessions returns all sessions, in no particular order.
func (s *Store) Sessions() iter.Seq[SessionInfo] { return func(func(SessionInfo) bool) {} }

// Ephemerals returns the paths of a session's ephemeral nodes, sorted.
func (s *Store) Ephemerals(id wire.SessionID) []string { return nil }

// Counts are the totals that operators look at.
type Counts struct {
	Nodes         int   // as ZooKeeper counts them: the root twice
	Ephemerals    int   // ephemeral nodes
	DataSizeBytes int64 // as ZooKeeper approximates it: characters of the paths and bytes of the data
	Sessions      int
}

// Counts returns the totals.
func (s *Store) Counts() Counts { return Counts{} }

// Allowed reports whether a connection with the identities ids has one of the permissions want on a node with this ACL.
func Allowed(acl []wire.ACL, ids []Identity, want wire.Perm) bool { return true }

// Snapshot is the state at one moment.
type Snapshot struct{}

// Snapshot returns the state as it is now.
func (s *Store) Snapshot() *Snapshot { return &Snapshot{} }

// WriteTo writes the snapshot. It may run while Apply does.
func (sn *Snapshot) WriteTo(w io.Writer) (int64, error) { return 0, nil }

// Release gives up the snapshot.
func (sn *Snapshot) Release() {}

// Restore reads what WriteTo wrote.
func Restore(r io.Reader) (*Store, error) { return New(), nil }

// Check verifies all invariants.
func (s *Store) Check() error { return nil }

// Digest returns a hash of the whole state.
func (s *Store) Digest() uint64 { return 0 }
