package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Who the members are is package peer's.
type (
	MemberID = peer.MemberID
	Member   = peer.Member
	Report   = peer.Report
)

// NoMember is the MemberID of no member.
const NoMember = peer.NoMember

// Listener is the member above the replica: it hears of the replica's events, and answers for the
// member. Applied, Restored and Lead run inside the critical section in which entries are applied:
// their effects are atomic with the change for every reader, and they must neither block nor call
// the Replica.
type Listener interface {
	// Applied is called after each command, before the next one is applied.
	Applied(*znode.Store, *znode.Command, *znode.Result)
	// Restored is called when a snapshot from the leader has replaced the state of a running
	// member.
	Restored(*znode.Store)
	// Lead is called when this member has become the leader and has applied every entry that was
	// committed before its term.
	Lead(*znode.Store)
	// Undeliverable is called when a command that was given to Propose cannot be sent to the
	// leader, or could not be applied there. It is forgotten, and will not be applied. It may be
	// called inside the critical section.
	Undeliverable(znode.Key)
	// Follow is called when this member is no longer the leader.
	Follow()
	// Touch is called on the leader with sessions that a member heard from. It returns the sessions
	// with a lease that it extended by their full timeout from now.
	Touch(heard []wire.SessionID) (extended []wire.SessionID)
	// MembersChanged is called, from one goroutine, when this member learns who the members are,
	// and when they have changed.
	MembersChanged(members []znode.Member, version wire.Zxid)
	// Failed is called when the member cannot go on, for example because its log cannot be
	// written. By then nothing is acknowledged any more.
	Failed(error)
	// Describe returns the ClientAddr, the PeerAuth and the Details of this member's Report.
	Describe() Report
	// MayTransfer says whether a request with this proof may have the leadership transferred. It is
	// called on the leader, with the proof that the Prove function of another member has returned
	// for the same occasion.
	MayTransfer(proof string, occasion []byte) error
}

// Config describes one member. Zero values are useful where a comment says so.
type Config struct {
	SnapshotConfig
	DiskConfig
	Seams

	ID MemberID
	// Members are the members of the first start, including this one; afterwards the agreed members
	// count. A member alone, which has no peer port, is a single one without an address.
	Members []Member

	// Tick is the basic unit of time. Heartbeat and election timeouts are a quarter of it, within
	// 500 ms and 1 s: on a busy machine a member that is well may not run for a few hundred ms.
	// 0 means 3 s.
	Tick time.Duration
	// SlowFsync is how long a write to the log, with its fsync, may take without being counted and
	// logged as slow. 0 means 1 s; less than 0 never.
	SlowFsync time.Duration
	// ConfigText becomes the data of /zookeeper/config at the first start (znode.ConfigText). Empty
	// for a standalone member, and then the members cannot be changed.
	ConfigText string
	// KeepQuotas is znode.Store.KeepQuotas.
	KeepQuotas bool
	// Flags are the settings that change the results of Apply; each entry carries the leader's.
	Flags znode.Flags

	Stores   store.Stores
	Listener Listener
	Logger   *slog.Logger // nil: slog.Default

	// Peers describes the peer port. Open sets its ID, Members and Logger.
	Peers peer.Config
}

// SnapshotConfig says when snapshots are taken, and the entries that stay in the log behind them.
type SnapshotConfig struct {
	// SnapshotCommands is the number of applied commands after which a snapshot is taken and the
	// log compacted, at the latest: each time a number from above a half of it is drawn (type
	// compaction). 0 means 100 000 (ZooKeeper's snapCount), or more, until the log is half as large
	// as the state.
	SnapshotCommands int
	// SnapshotLogBytes is the same in bytes of applied entries. 0 means 256 MiB.
	SnapshotLogBytes int64
	// TrailingEntries stay in the log after a snapshot, so that a follower that is a little behind
	// needs no snapshot. 0 means 2048.
	TrailingEntries uint64
	// TrailingBytes bounds these entries too. 0 means 64 MiB.
	TrailingBytes int64
}

// DiskConfig says which disks may join the cluster.
type DiskConfig struct {
	// Lost says that the disk replaces one that was set aside: no cluster begins with it.
	Lost bool
	// KeepDisks keeps a leader from replacing the disk of a member that comes back with another
	// one.
	KeepDisks bool
	// Without is the word of the operator at a first start: members that have never worked in this
	// cluster, and do not run, begin it later. It must belong to one run of the process
	// (docs/decisions/017-a-member-is-its-disk.md).
	Without []MemberID
}

// Seams are the clocks of a member, and the hooks of a simulation.
type Seams struct {
	// Now is the wall clock that stamps entries when this member leads; nil means time.Now. Nothing
	// else uses it: leases run on the monotonic clock.
	Now func() time.Time
	// Leases and the cluster's clock count by Clock; nil means Go's monotonic clock, which may not
	// count suspends.
	Clock *clock.Clock
	// Yield is called before the term, the leader or the end of the log is read beside raft's main
	// loop, and before a term or a vote is saved: a simulation decides there which goroutine goes
	// on. nil: nothing is called.
	Yield func()
	// ObserveRaft is raftnet.Config.Observe.
	ObserveRaft func(request any) (answered func(answer any))
	// ObserveView calls the function that View is given; nil: View does. It is for tests.
	ObserveView func(view func())
}

// Validate reports everything that is wrong with c.
func (c *Config) Validate() error {
	var faults []error
	voters, self := 0, false
	seen := map[MemberID]bool{}
	for _, m := range c.Members {
		if seen[m.ID] {
			faults = append(faults, fmt.Errorf("member %d is listed twice", m.ID))
		}
		seen[m.ID] = true
		self = self || m.ID == c.ID
		if !m.Observer {
			voters++
		}
		if len(c.Members) > 1 && m.Addr == "" {
			faults = append(faults, fmt.Errorf("member %d has no address", m.ID))
		}
	}
	if !self {
		faults = append(faults, fmt.Errorf("member %d is not in the list of members", c.ID))
	}
	if voters == 0 {
		faults = append(faults, errors.New("no member votes"))
	}
	if c.Stores.Log == nil || c.Stores.Stable == nil || c.Stores.Snapshots == nil {
		faults = append(faults, errors.New("a store is missing"))
	}
	if c.Listener == nil {
		faults = append(faults, errors.New("no listener"))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("quorum: configuration: %w", err)
	}
	return nil
}

// defaultSnapshotCommands is ZooKeeper's snapCount.
const defaultSnapshotCommands = 100_000

func (c *Config) setDefaults() {
	c.SlowFsync = cmp.Or(c.SlowFsync, time.Second)
	if c.Tick == 0 {
		c.Tick = 3 * time.Second
	}
	if c.SnapshotLogBytes == 0 {
		c.SnapshotLogBytes = 256 << 20
	}
	if c.TrailingEntries == 0 {
		c.TrailingEntries = 2048
	}
	if c.TrailingBytes == 0 {
		c.TrailingBytes = 64 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Peers.ID, c.Peers.Members, c.Peers.Logger = c.ID, c.Members, c.Logger
	if c.Yield == nil {
		c.Yield = func() {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

func (c *Config) member(id MemberID) Member {
	for _, m := range c.Members {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

// alone says that this member is no member of a cluster, and can become none.
func (c *Config) alone() bool { return len(c.Members) == 1 && c.Members[0].Addr == "" }

// heartbeatTimeout is how long a follower waits for its leader before it stands for election.
func (c *Config) heartbeatTimeout() time.Duration {
	return min(max(c.Tick/4, 500*time.Millisecond), time.Second)
}
