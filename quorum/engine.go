package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/histogram"
	"lockkeeper/internal/loglimit"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// ErrNoLeader says that there is no leader, none that this member knows of, or none that can prove
// it.
var ErrNoLeader = errors.New("quorum: no leader")

var errOtherCluster = errors.New("quorum: another cluster")

// engine is hashicorp/raft as one member runs it, with the stores below it and the port and the
// transport beside it. Every part of a replica embeds it, and knows its member by it.
type engine struct {
	cfg      Config
	self     raft.ServerID
	log      *slog.Logger
	trouble  *loglimit.Limiter // warnings about slow disks and the like
	measures Measures
	clock    clusterClock
	roster   *peer.Roster

	port      *peer.Port // nil for a member alone
	transport *raftnet.Transport
	disk      *store.RaftStore
	raft      *raft.Raft
	notify    chan bool             // from raft: whether this member leads
	events    chan raft.Observation // from raft: the leader may have changed

	wg      sync.WaitGroup // goroutines that end with the replica
	futures sync.WaitGroup // goroutines that end with raft
	down    chan struct{}  // closed when raft has shut down
}

// upper is the replica as the layers of the engine know it.
type upper interface {
	store.Owner
	raftnet.Local
	raft.BatchingFSM
}

// newEngine builds raft from leaf to root: the layers on the stores, the port between members, the
// transport on the port, raft. up is the replica above them.
func newEngine(cfg Config, up upper) (_ *engine, err error) {
	e := &engine{
		cfg:     cfg,
		self:    raftnet.ServerID(cfg.ID, cfg.Peers.Disk),
		log:     cfg.Logger,
		trouble: loglimit.New(cfg.Logger),
		clock:   clusterClock{clock: cfg.Clock},
		roster:  peer.NewRoster(cfg.Members, cfg.Flags&znode.Reconfig != 0, raftnet.ForPort(up)),
		notify:  make(chan bool, 64),
		events:  make(chan raft.Observation, 64),
		down:    make(chan struct{}),
	}
	if files := cfg.Stores.Files; files != nil {
		files.NotifyStarved(func(err error, limit time.Duration) {
			e.trouble.Warn("starved", "the log waits for a file descriptor (ulimit -n); nothing is written meanwhile",
				"err", err, "limit", limit)
		})
	}
	rc := e.raftConfig()
	if err := bootstrapAlone(&cfg, rc, e.self); err != nil {
		return nil, err
	}
	if e.disk, err = store.NewRaftStore(&e.cfg.Stores, up); err != nil {
		return nil, fmt.Errorf("quorum: start raft: %w", err)
	}
	defer func() {
		if err != nil {
			e.closePort()
			e.disk.Close()
		}
	}()
	if !cfg.alone() {
		if e.port, err = peer.Listen(cfg.Peers, e.roster, raftnet.ForPort(up)); err != nil {
			return nil, fmt.Errorf("quorum: %w", err)
		}
	}
	e.transport = raftnet.New(raftnet.Config{Self: e.self, Local: up, Port: e.port, Clock: cfg.Clock,
		Observe: cfg.ObserveRaft})
	if e.raft, err = e.disk.NewRaft(rc, up, e.transport); err != nil {
		return nil, fmt.Errorf("quorum: start raft: %w", err)
	}
	e.raft.RegisterObserver(raft.NewObserver(e.events, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	return e, nil
}

// claimDisk finds out which member's the stores are, or makes them this one's.
func claimDisk(cfg *Config) (peer.DiskID, error) {
	s := &cfg.Stores
	if !cfg.alone() {
		if err := renumber(s, cfg.ID); err != nil {
			return 0, err
		}
	}
	disk, err := claim(s, cfg.ID)
	return disk, errors.Join(err, checkImport(s), s.CheckRetired())
}

// bootstrapAlone writes the first configuration of a member that stands alone, if its log is empty.
func bootstrapAlone(cfg *Config, rc *raft.Config, self raft.ServerID) error {
	s := &cfg.Stores
	known, err := raft.HasExistingState(s.Log, s.Stable, s.Snapshots)
	if err != nil {
		return fmt.Errorf("quorum: read log: %w", err)
	}
	if known || !cfg.alone() {
		return nil
	}
	// Raft needs the transport only for earlier versions of its protocol.
	if err := raft.BootstrapCluster(rc, s.Log, s.Stable, s.Snapshots, nil, aloneConfiguration(self)); err != nil {
		return fmt.Errorf("quorum: write first configuration: %w", err)
	}
	return nil
}

// raftConfig is the configuration of the library.
func (e *engine) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = e.self
	rc.HeartbeatTimeout = e.cfg.heartbeatTimeout()
	rc.ElectionTimeout = rc.HeartbeatTimeout
	rc.LeaderLeaseTimeout = rc.HeartbeatTimeout
	// The transport sends followers the commit index at once; this is for commit indexes that it
	// could not send.
	rc.CommitTimeout = rc.HeartbeatTimeout / 2
	rc.MaxAppendEntries = raftnet.MaxAppendEntries
	rc.BatchApplyCh = true
	// snapshotLoop decides; the library cannot see how full entries are (UPSTREAM.md, 12).
	rc.SnapshotThreshold = math.MaxUint64
	rc.TrailingLogs = e.cfg.TrailingEntries
	rc.NoSnapshotRestoreOnStart = true // loadSnapshot has done it, and names a damaged file
	rc.ShutdownOnRemove = false
	rc.NotifyCh = e.notify
	// Nobody reads these measures, and each answer of a follower builds their names.
	rc.NoLegacyTelemetry = true
	rc.Logger = newHclog(e.log)
	return rc
}

// shutdown ends raft and its stores' layers. The member has been cut off from its peers.
func (e *engine) shutdown() {
	down := e.raft.Shutdown()
	e.disk.Release()
	_ = down.Error()
	close(e.down)
	e.disk.Close()
}

// closePort ends the port and the transport.
func (e *engine) closePort() {
	if e.port != nil {
		e.port.Close()
	}
	if e.transport != nil {
		e.transport.Close()
	}
}

// stamp is the leader's addition to the commands of an entry.
func (e *engine) stamp() znode.Stamp {
	return znode.Stamp{TimeMs: e.cfg.Now().UnixMilli(), ClockMs: e.clock.nowMs(), Flags: e.cfg.Flags}
}

// peerTimeout bounds one exchange with the leader.
func (e *engine) peerTimeout() time.Duration { return 2 * e.cfg.heartbeatTimeout() }

// ID is the number of this member.
func (e *engine) ID() MemberID { return e.cfg.ID }

// Disk is the id of this member's data directory.
func (e *engine) Disk() peer.DiskID { return e.cfg.Peers.Disk }

// Cluster is the cluster that this member belongs to; 0 while it is in none.
func (e *engine) Cluster() peer.ClusterID { return e.roster.Cluster() }

// Term is the term that this member is in.
func (e *engine) Term() uint64 { return e.raft.CurrentTerm() }

// Counted reports whether raft counts this member with the disk that it has, as far as it knows.
func (e *engine) Counted() bool {
	return slices.ContainsFunc(e.Servers(), func(s raft.Server) bool { return s.ID == e.self })
}

// ClockMs returns the cluster's clock: the Stamp.ClockMs of an entry of this moment if this member
// leads.
func (e *engine) ClockMs() int64 { return e.clock.nowMs() }

// Measures returns the counts and times.
func (e *engine) Measures() *Measures { return &e.measures }

// Servers are the disks that raft counts, or is about to: the newest configuration in the log. It
// is empty while this member is in no cluster.
func (e *engine) Servers() []raft.Server {
	f := e.raft.GetConfiguration()
	if f.Error() != nil { // it never fails
		return nil
	}
	return f.Configuration().Servers
}

// maj is the majority rule for the members that raft counts.
func (e *engine) maj() Maj {
	voters := 0
	for _, s := range e.Servers() {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	return NewMaj(max(1, voters))
}

// Maj is the majority rule: a set of voters is a quorum if it holds more than half of all voters
// (set.size > n/2). Observers are not voters and never count, neither in the set nor in n.
type Maj struct {
	voters int
}

// NewMaj returns the rule for a cluster of that many voters, at least 1.
func NewMaj(voters int) Maj {
	if voters < 1 {
		panic(fmt.Sprintf("quorum: a cluster of %d voters", voters))
	}
	return Maj{voters: voters}
}

// Voters is n, the number of voters of the whole cluster.
func (m Maj) Voters() int { return m.voters }

// Quorum reports whether that many voters are a quorum.
func (m Maj) Quorum(voters int) bool { return voters > m.voters/2 }

// Size is the smallest number of voters that is a quorum.
func (m Maj) Size() int { return m.voters/2 + 1 }

// Tolerates is the number of voters that may fail while the rest still is a quorum.
func (m Maj) Tolerates() int { return m.voters - m.Size() }

// EvenWarning says why an even number of voters is a poor choice; it is empty for an odd number.
func (m Maj) EvenWarning() string {
	if m.voters%2 == 1 {
		return ""
	}
	return fmt.Sprintf("%d voters tolerate the failure of %d, no more than %d voters do: a side may act only if it "+
		"holds more than half (set.size > %d/2), "+
		"so a split into two halves stops both", m.voters, m.Tolerates(), m.voters-1, m.voters)
}

// birthState is how far this member has come.
func (e *engine) birthState() peer.State {
	switch {
	case len(e.Servers()) > 0:
		return peer.Used
	case e.cfg.Lost:
		return peer.Lost
	}
	return peer.Blank
}

// stoodAlone reports whether raft counts just this member, as one that stands alone.
func (e *engine) stoodAlone() bool {
	servers := e.Servers()
	return len(servers) == 1 && servers[0].Address == raftnet.AloneAddr && servers[0].ID == e.self
}

// caughtUp reports whether a follower has the log up to index, as of its newest answer.
func (e *engine) caughtUp(id raft.ServerID, index uint64) bool {
	matched, _ := e.transport.Progress(id)
	return matched >= index
}

// heardOf reports whether a follower has answered a request of the last peerTimeout.
func (e *engine) heardOf(id raft.ServerID) bool {
	_, at := e.transport.Progress(id)
	return e.cfg.Clock.Now().Sub(at) < e.peerTimeout()
}

// entryTerm is the term of an entry of the log; false if it is not there.
func (e *engine) entryTerm(index uint64) (term uint64, ok bool) {
	var entry raft.Log
	err := e.disk.GetLog(index, &entry)
	return entry.Term, err == nil
}

// lastCommand is the index of the newest entry of the log behind from that the state is made of; 0
// if there is none. Raft passes no others to the state machine (its no-ops, configurations).
func (e *engine) lastCommand(from uint64) (uint64, error) {
	for i := e.raft.LastIndex(); i > from; i-- {
		var l raft.Log
		if err := e.disk.GetLog(i, &l); errors.Is(err, raft.ErrLogNotFound) {
			return 0, nil // it is in a snapshot, and so applied
		} else if err != nil {
			return 0, fmt.Errorf("quorum: read log: %w", err)
		}
		if l.Type == raft.LogCommand {
			return i, nil
		}
	}
	return 0, nil
}

// helloAll queries several members at once; those that do not answer are not in the result.
func (e *engine) helloAll(ctx context.Context, ids []MemberID) map[MemberID]peer.Hello {
	ctx, cancel := context.WithTimeout(ctx, e.peerTimeout())
	defer cancel()
	return e.port.Hello(ctx, ids)
}

// await waits for a future until ctx ends. The future itself ends with raft.
func (e *engine) await(ctx context.Context, f raft.Future) error {
	endWith(f, e.down)
	done := make(chan error, 1)
	e.futures.Go(func() { done <- f.Error() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endWith has a future end when raft is down. The library (UPSTREAM.md, 1) leaves the futures
// unanswered that are in the queues of Apply and of the state machine when it shuts down. Its
// futures have a field for this, ShutdownCh, which it sets in some of them only; there is no other
// way to it from outside.
func endWith(f raft.Future, down chan struct{}) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return // answered already
	}
	field := v.Elem().FieldByName("ShutdownCh")
	if field.IsValid() && field.CanSet() && field.Type() == reflect.TypeOf(down) {
		field.Set(reflect.ValueOf(down))
	}
}

// repeatAfter is how long a message of the raft library, once logged, is only logged as debug: it
// reports an unreachable peer with each of ten heartbeats a second (UPSTREAM.md, 14).
const repeatAfter = 30 * time.Second

// hlog makes the raft library log through slog, one level lower: its information is detail to an
// operator, and its errors are most often peers that are down. It has the methods that the library
// calls; the others log nothing.
type hlog struct {
	hclog.Logger
	to   *slog.Logger
	seen *seenMessages
}

type seenMessages struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newHclog(to *slog.Logger) hclog.Logger {
	return hlog{Logger: hclog.NewNullLogger(), to: to.With("part", "raft"),
		seen: &seenMessages{at: map[string]time.Time{}}}
}

// Debug implements hclog.Logger.
func (h hlog) Debug(msg string, args ...any) { h.to.Debug(msg, args...) }

// Info implements hclog.Logger.
func (h hlog) Info(msg string, args ...any) { h.to.Debug(msg, args...) }

// Warn implements hclog.Logger.
func (h hlog) Warn(msg string, args ...any) { h.Error(msg, args...) }

// Error implements hclog.Logger.
func (h hlog) Error(msg string, args ...any) {
	if h.seen.recently(msg) {
		h.to.Debug(msg, args...)
	} else {
		h.to.Info(msg, args...)
	}
}

// With implements hclog.Logger.
func (h hlog) With(args ...any) hclog.Logger {
	return hlog{Logger: h.Logger, to: h.to.With(args...), seen: h.seen}
}

// recently reports whether a message was logged within repeatAfter. If not, it counts as logged
// now.
func (s *seenMessages) recently(msg string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if last, ok := s.at[msg]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	if len(s.at) < 1000 {
		s.at[msg] = now
	}
	return false
}

// clusterClock is the cluster's clock on this member (znode.Store.ClockMs), which it continues when
// it leads: the clock of the newest entry, and the time that has passed since then by the monotonic
// clock of this machine. While it follows, each entry sets it right, so that clocks of different
// speed do not depart from each other.
//
// It stands still while this machine is suspended, and while no member runs: sessions and nodes
// that expire by it live longer then, never shorter.
type clusterClock struct {
	clock *clock.Clock

	mu sync.Mutex
	ms int64     // at the moment at
	at time.Time // by clock.Awake
}

// set sets the clock.
func (c *clusterClock) set(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ms, c.at = ms, c.clock.Awake()
}

// nowMs returns the clock. It does not run backwards while this member leads.
func (c *clusterClock) nowMs() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked(c.clock.Awake())
}

func (c *clusterClock) nowLocked(now time.Time) int64 { return c.ms + now.Sub(c.at).Milliseconds() }

// applied is called with the clock of an entry that has been applied. A leader made it some time
// ago, perhaps this one: a leader is set forward only.
func (c *clusterClock) applied(ms int64, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.clock.Awake(); !leads || ms > c.nowLocked(now) {
		c.ms, c.at = ms, now
	}
}

// signal puts a token into c, which has room for one, unless one is there.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// broadcastAfter has c's waiters look again when ctx ends, until stop is called. c's lock must be
// one that they hold.
func broadcastAfter(ctx context.Context, c *sync.Cond) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		c.L.Lock()
		defer c.L.Unlock()
		c.Broadcast()
	})
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Measures are the counts and times of a Replica since its start, or since Reset. Durations are in
// nanoseconds. All of it may be read at any time.
type Measures struct {
	LogMeasures
	SnapshotMeasures
	LeaderMeasures
	EntryMeasures

	Apply           histogram.Histogram // of an entry to the state, watches and replies included
	PipelinesOpened atomic.Int64        // times that a member began to be sent entries of the log
	Damaged         atomic.Int64        // committed entries that cannot be applied

	// These compare the wall clocks of the leader and of this member. Negative values are left out.
	Proposal    histogram.Histogram // of a follower: until an entry was here
	Propagation histogram.Histogram // until an entry was applied here
}

// LogMeasures are of writes to the log.
type LogMeasures struct {
	Fsync        histogram.Histogram // of a write with its fsync
	FsyncEntries histogram.Histogram // entries in a write
	SlowFsyncs   atomic.Int64        // writes that took Config.SlowFsync or longer
}

// SnapshotMeasures are of snapshots, this member's own and those between members.
type SnapshotMeasures struct {
	Snapshots             histogram.Histogram // of a snapshot, until it was durable
	NoSnapshots           atomic.Int64        // snapshots that failed
	SnapshotsSent         atomic.Int64        // to members that need a compacted entry
	SnapshotsNotDelivered atomic.Int64        // SnapshotsSent that the member did not take
	SnapshotsNotTaken     atomic.Int64        // that a leader has sent this member
}

// LeaderMeasures are of changes of the leader, and of a leader's decisions.
type LeaderMeasures struct {
	Election      histogram.Histogram // without a leader, until there was one
	Looking       atomic.Int64        // times that this member began to be without a leader
	HandOvers     atomic.Int64        // to another voter, because this disk hung
	DisksReplaced atomic.Int64        // disks of members that this leader has begun to replace
}

// EntryMeasures are of the entries that this member has proposed, as the leader.
type EntryMeasures struct {
	Queued         histogram.Histogram // commands that waited when an entry was made
	EntryCommands  histogram.Histogram
	EntryBytes     histogram.Histogram
	LastEntryBytes atomic.Int64
	QuorumAck      histogram.Histogram // from raft's taking an entry until it was committed
	Proposals      atomic.Int64        // commands in them
	Commits        atomic.Int64        // commands committed
}

// Reset sets all to zero, except for Damaged.
func (m *Measures) Reset() {
	for _, h := range []*histogram.Histogram{&m.Fsync, &m.FsyncEntries, &m.Apply, &m.Snapshots, &m.Election, &m.Queued,
		&m.EntryCommands, &m.EntryBytes, &m.QuorumAck, &m.Proposal, &m.Propagation} {
		h.Reset()
	}
	for _, n := range []*atomic.Int64{&m.SlowFsyncs, &m.NoSnapshots, &m.Looking, &m.HandOvers, &m.DisksReplaced,
		&m.LastEntryBytes, &m.Proposals, &m.Commits, &m.SnapshotsSent, &m.PipelinesOpened, &m.SnapshotsNotDelivered,
		&m.SnapshotsNotTaken} {
		n.Store(0)
	}
}

// proposing counts an entry that is about to be proposed, from a queue of waiting commands.
func (m *EntryMeasures) proposing(waiting, commands, bytes int) {
	m.Queued.Observe(int64(waiting))
	m.EntryCommands.Observe(int64(commands))
	m.EntryBytes.Observe(int64(bytes))
	m.LastEntryBytes.Store(int64(bytes))
	m.Proposals.Add(int64(commands))
}
