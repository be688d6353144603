package znode

import (
	"fmt"
	"sync/atomic"

	"lockkeeper/wire"
)

// Store is the replicated state, as the other packages see it.
//
// Lock: it has none. The caller ensures that no other method runs while Apply, Snapshot or Check
// does; all others are reads and may run at the same time. Data and ACLs that a read returns are
// never modified, so they may be used after the caller's lock is released. A Snapshot may be
// written and released at any time.
type Store struct {
	state     state
	tx        tx
	snapshots atomic.Int32 // not released yet
}

// state is the replicated state: the part of a Store that commands change and snapshots keep.
type state struct {
	zxid   wire.Zxid // of the newest update
	timeMs int64     // of the newest entry, since 1970; may run backwards
	clock  clock

	cluster    ClusterID
	membership membership
	// replacement is the state of a restore in progress; nil without one.
	replacement *replacement

	tree     *tree
	sessions *Registry

	// keepsQuotas is a setting of this member, see KeepQuotas.
	keepsQuotas bool
}

// newStore returns a Store with that state, which it takes over.
func newStore(st *state) *Store {
	s := &Store{state: *st}
	s.tx.state, s.tx.effects.state = &s.state, &s.state
	return s
}

// New returns the state that every history starts from: the built-in nodes
// (docs/protocol/semantics.md section 3.3) and no session, at zxid 0.
func New() *Store {
	st := empty()
	add := func(path string, acl []wire.ACL, aversion int32) {
		dir, name := splitPath(path)
		r := record{dir: dir, node: node{body: newBody(name, []byte{}), acl: st.tree.acls.intern(acl)},
			details: plain(0, 0)}
		r.aversion = aversion
		parent := noSlot
		if path != rootPath {
			parent = st.tree.slotOf(parentOf(path))
		}
		st.tree.insert(&r, parent)
	}
	add(rootPath, wire.OpenACL, 0)
	add(zookeeperPath, wire.OpenACL, 0)
	add(quotaPath, wire.OpenACL, 0)
	add(configPath, []wire.ACL{{Perms: wire.PermRead, ID: wire.OpenACL[0].ID}}, -1)
	return newStore(st)
}

// empty returns a state without even a root.
func empty() *state { return &state{tree: newTree(), sessions: newRegistry()} }

// Apply applies the commands of e in order; term is the term of e in the log. After each command,
// before the next is applied, it calls each (unless each is nil) with the command and its result.
// Both are valid only during the call, but for strings and for the ACLs and Paths of events, which
// are never modified. each may read the Store, and let others read it.
//
// Apply cannot fail: a refused command has a result that says so, and changes nothing. The state
// after it depends on nothing but the state before, term and e.
func (s *Store) Apply(term uint64, e *Entry, each func(*Command, *Result)) {
	if s.snapshots.Load() == 0 {
		s.state.tree.nodes.thaw()
		s.state.tree.more.thaw()
		s.state.sessions.rows.thaw()
	}
	s.state.timeMs = e.TimeMs
	s.state.clock.advance(e.ClockMs)
	for i := range e.Commands {
		r := s.tx.apply(term, e.Flags, &e.Commands[i])
		if each != nil {
			each(&e.Commands[i], r)
		}
	}
}

// Sessions returns the registry of sessions. It is for reads, and is valid until the next Apply.
func (s *Store) Sessions() *Registry { return s.state.sessions }

// Zxid returns the zxid of the newest update.
func (s *Store) Zxid() wire.Zxid { return s.state.zxid }

// TimeMs is the time of the newest entry by the leader's wall clock, in ms since 1970. It may run
// backwards.
func (s *Store) TimeMs() int64 { return s.state.timeMs }

// ClockMs returns the cluster's clock as of the newest entry, as Stamp has it.
func (s *Store) ClockMs() int64 { return s.state.clock.stampMs }

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
	return s.state.tree.size()
}

func (t *tree) size() Size {
	n := int64(t.nodes.len())
	return Size{Nodes: n, Bytes: NodeMemory*n + t.sizeBytes + t.acls.sizeBytes}
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
	t := s.state.tree
	root := t.nodes.row(t.slotOf(rootPath))
	return Counts{
		Nodes:         t.nodes.len() + 1,
		Ephemerals:    s.state.sessions.ephemerals,
		DataSizeBytes: t.sizeBytes + int64(len(root.data())),
		Sessions:      s.state.sessions.rows.len(),
	}
}

// clock is the cluster's clock: how much time has passed while the cluster had a leader, in
// milliseconds. Containers and TTL nodes count by it, and nobody sets it. A leader adds the time
// that passes by its own monotonic clock to the state's clock, and stamps entries with the sum
// (Stamp.ClockMs). Wall clocks, right or wrong, have no part in it.
//
// Invariant: it never runs backwards.
type clock struct {
	stampMs int64 // the largest stamp so far
	// shiftMs is added to stamps. A restore replaces a state by one of another time: the nodes of
	// that one keep their ages.
	shiftMs int64
}

func (c *clock) advance(stampMs int64) { c.stampMs = max(c.stampMs, stampMs) }

// nowMs is the time by which nodes count.
func (c *clock) nowMs() int64 { return c.stampMs + c.shiftMs }

// replaced is the clock of a state that has been replaced by one with the clock n: stamps go on
// from c, and ages count by n.
func (c *clock) replaced(n *clock) clock { return clock{c.stampMs, n.nowMs() - c.stampMs} }

// ClusterID names a cluster: a digest of its first configuration, never 0. States and snapshots
// carry it, so that the files of two clusters are not confused.
type ClusterID uint64

// String has 16 hexadecimal digits.
func (c ClusterID) String() string { return fmt.Sprintf("%016x", uint64(c)) }

// Cluster is the cluster that the state belongs to; 0 if that has not been recorded.
func (s *Store) Cluster() ClusterID { return s.state.cluster }

// RenameCluster moves the state to another cluster, which begins with it. The members of the old
// one do not go over, nor does a restore that was under way.
func (s *Store) RenameCluster(id ClusterID) {
	s.state.cluster, s.state.replacement, s.state.membership = id, nil, membership{}
}
