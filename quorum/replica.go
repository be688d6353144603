package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/loglimit"
	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// ErrNoLeader says that there is no leader, none that this member knows of, or none that can prove
// it.
var ErrNoLeader = errors.New("quorum: no leader")

// ErrCommandTooLong says that a command is longer than MaxCommandBytes.
var ErrCommandTooLong = errors.New("quorum: command too long")

// MaxCommandBytes is the longest encoded command that becomes a part of the log. An entry holds one
// command of that length, or several of entryMaxBytes together; a frame of a forward stream one
// such command behind others of sendMaxBytes; and a raft frame as many entries as one request may
// have.
const MaxCommandBytes = 5<<20 - 64<<10

// These are negative, and do not compile, when the limits contradict each other.
const (
	_ = uint64(peer.MaxEntryBytes - MaxCommandBytes - 64<<10)
	_ = uint64(MaxCommandBytes - 2*entryMaxBytes)
	_ = uint64(peer.MaxFrame - 2*sendMaxBytes - MaxCommandBytes)
)

// Replica is one member's copy of the replicated state and its part in keeping the copies equal.
type Replica struct {
	cfg Config
	log *slog.Logger

	raft      *raft.Raft
	disk      *store.RaftStore
	transport *peer.Transport
	port      *peer.Port // nil for a member alone
	batcher   *batcher
	outbox    *outbox
	lease     leaderStream
	claims    leaderStream
	clock     clusterClock
	catchUp   catchUp
	stops     stops
	measures  Measures
	trouble   *loglimit.Limiter // warnings about what is slow
	roster    *peer.Roster
	self      raft.ServerID
	newcomers newcomers
	// fileMembers are those of the configuration file; none for a member alone.
	fileMembers []znode.Member
	brought     peer.Imported  // what a blank disk has imported; zero: nothing
	futures     sync.WaitGroup // of changes of what raft counts; they end with raft

	notify       chan bool             // from raft: whether this member leads
	events       chan raft.Observation // from raft: the leader may have changed
	doubt        chan struct{}         // capacity 1: an entry was not, or perhaps not, committed
	full         chan struct{}         // capacity 1: the log has grown enough for a snapshot
	changed      chan struct{}         // capacity 1: the members may have changed
	growing      atomic.Bool           // this member stood alone, and may not begin its cluster yet
	grown        chan struct{}         // capacity 1: it may
	joining      chan struct{}         // capacity 1: full while join runs
	transferring atomic.Bool           // the leadership is being transferred
	stop         context.CancelFunc
	wg           sync.WaitGroup
	closed       sync.Once
	// stopped is done when raft has been shut down.
	stopped sync.Once

	// Lock: mu is taken before any lock of the listener, and before the outbox's.
	mu            sync.RWMutex
	store         *znode.Store
	imported      bool // the state is what was imported, and nothing came after
	appliedIndex  uint64
	lockedAt      time.Time     // when ApplyBatch took mu
	replayedIndex atomic.Uint64 // the log was applied up to here before raft was started
	passedIndex   uint64        // the newest entry that raft has passed to ApplyBatch
	compaction    compaction
	newest        savedSnapshot
	poisoned      atomic.Pointer[error] // why no entry can be applied any more

	stateMu    sync.Mutex
	leader     MemberID  // NoMember while unknown
	leaderFrom time.Time // since when
	leaders    leaderLog
	epoch      context.Context    // ends with the leader
	endEpoch   context.CancelFunc //
	term       uint64             // of this member's leadership, 0 when it does not lead
	settled    uint64             // the same, once everything from before the term has been applied
	// settledIndex is an index up to which everything had been applied when settled was set.
	settledIndex uint64
	streams      context.Context    // while it leads: ends the streams of followers
	endStreams   context.CancelFunc //
}

// Open starts a member. It returns as soon as the member takes part; there may be no leader yet. On
// an error the stores stay open and the caller's.
func Open(cfg Config) (_ *Replica, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	r := &Replica{
		cfg:        cfg,
		log:        cfg.Logger,
		outbox:     newOutbox(),
		notify:     make(chan bool, 64),
		events:     make(chan raft.Observation, 64),
		doubt:      make(chan struct{}, 1),
		full:       make(chan struct{}, 1),
		changed:    make(chan struct{}, 1),
		grown:      make(chan struct{}, 1),
		compaction: newCompaction(&cfg),
		joining:    make(chan struct{}, 1),
		catchUp:    catchUp{joined: make(chan struct{})},
		trouble:    loglimit.New(cfg.Logger),
		lease:      leaderStream{kind: peer.StreamLease, maxFrame: maxLeaseFrame},
		claims:     leaderStream{kind: peer.StreamClaims, maxFrame: maxClaimsFrame},
		stops:      newStops(),
	}
	if files := cfg.Stores.Files; files != nil {
		lines := loglimit.New(cfg.Logger)
		files.NotifyStarved(func(err error, limit time.Duration) {
			lines.Warn("starved", "the log waits for a file descriptor (ulimit -n); nothing is written meanwhile", "err", err, "limit", limit)
		})
	}
	r.roster = peer.NewRoster(cfg.Members, cfg.Flags&znode.Reconfig != 0, local{r})
	if r.fileMembers, _, err = znode.ParseConfigText(cfg.ConfigText); err != nil && cfg.ConfigText != "" {
		return nil, fmt.Errorf("quorum: configuration: %w", err)
	}
	r.setLeader(NoMember)
	if err := r.openState(); err != nil {
		return nil, err
	}
	if err := r.openTransport(); err != nil {
		return nil, err
	}
	r.batcher = newBatcher(r.stamp, func(error) { r.inDoubt() })
	r.batcher.measures = &r.measures
	if err := r.openRaft(); err != nil {
		r.batcher.close()
		r.closeTransport()
		return nil, err
	}
	r.batcher.raft = r.raft
	if r.port != nil {
		r.port.Start(peer.Handlers{Join: r.join, Hello: r.hello,
			Streams: map[peer.StreamKind]func(MemberID, *peer.Stream) error{
				peer.StreamForward: r.serveForward, peer.StreamLease: r.serveLease, peer.StreamClaims: r.serveClaims,
				peer.StreamTransfer: r.serveTransfer, peer.StreamStop: r.serveStop}})
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.raft.RegisterObserver(raft.NewObserver(r.events, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	r.wg.Add(5)
	go r.controlLoop(ctx)
	go r.snapshotLoop(ctx)
	go r.changeLoop(ctx)
	go r.diskLoop(ctx)
	go r.catchUpLoop(ctx)
	if r.cfg.alone() {
		r.transport.Stand(ctx) // nobody to wait for
	} else {
		r.wg.Add(1)
		go r.queryLoop(ctx)
	}
	return r, nil
}

// openState finds out whose the stores are, and reads the state that is known to be committed.
func (r *Replica) openState() error {
	s := &r.cfg.Stores
	if !r.cfg.alone() {
		if err := renumber(s, r.cfg.ID); err != nil {
			return err
		}
	}
	disk, err := claim(s, r.cfg.ID)
	if err := errors.Join(err, checkImport(s), s.CheckRetired()); err != nil {
		return err
	}
	r.cfg.Peers.Disk, r.self = disk, peer.ServerID(r.cfg.ID, disk)
	state, at, err := loadSnapshot(s)
	if err != nil {
		return err
	}
	r.useStore(state)
	r.newest.at = at
	imported, err := importedSnapshot(s)
	if err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	if imported != nil {
		r.imported = true
		r.brought = peer.Imported{StateTerm: imported.Term, Index: imported.Index, Digest: r.store.Digest()}
	}
	r.newest.zxid = r.store.Zxid()
	r.compaction.restart(r.store.Counts().DataSizeBytes)
	c, err := s.DiscardConflict()
	if err != nil {
		return err
	}
	if c != nil {
		r.log.Warn("the log is discarded: a snapshot from a leader contradicts it, so its end was never committed",
			"first", c.First, "last", c.Last, "snapshot", c.Snapshot)
	}
	if err := r.applyCommitted(); err != nil {
		return err
	}
	r.clock.clock = r.cfg.Clock
	r.clock.set(r.store.ClockMs())
	return nil
}

func (r *Replica) openTransport() (err error) {
	if r.cfg.alone() {
		r.transport = peer.NewAlone(r.self, local{r})
		return nil
	}
	if r.port, err = peer.Listen(r.cfg.Peers, r.roster, local{r}); err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	r.transport = peer.NewTransport(r.port)
	r.transport.Began = func(snapshot bool) {
		if snapshot {
			r.measures.SnapshotsSent.Add(1)
		} else {
			r.measures.PipelinesOpened.Add(1)
		}
	}
	return nil
}

// local is what the peer port and raft's transport know of this member.
type local struct{ *Replica }

var _ peer.Local = local{}

// Term implements peer.Local.
func (l local) Term() uint64 {
	l.cfg.Yield()
	return l.raft.CurrentTerm()
}

// Leader implements peer.Local.
func (l local) Leader() raft.ServerID {
	l.cfg.Yield()
	_, id := l.raft.LeaderWithID()
	return id
}

// Servers implements peer.Local.
func (l local) Servers() []raft.Server { return l.servers() }

// LastIndex implements peer.Local.
func (l local) LastIndex() uint64 {
	l.cfg.Yield()
	return l.raft.LastIndex()
}

// EntryTerm implements peer.Local.
func (l local) EntryTerm(index uint64) (term uint64, ok bool) {
	var entry raft.Log
	err := l.disk.GetLog(index, &entry)
	return entry.Term, err == nil
}

// AppliedIndex implements peer.Local.
func (l local) AppliedIndex() uint64 { return max(l.raft.AppliedIndex(), l.replayedIndex.Load()) }

// PrevTerm implements peer.Local. While the library takes an entry that a snapshot has replaced for
// its last one, it compares with that.
func (l local) PrevTerm(index, term uint64) uint64 {
	if replaced := l.disk.ReplacedTerm(index, term); replaced == term || l.raft.LastIndex() == index {
		return replaced
	}
	return term
}

// AwaitDurable implements peer.Local.
func (l local) AwaitDurable(index uint64, stop <-chan struct{}) error {
	return l.disk.Await(index, stop)
}

func (r *Replica) openRaft() error {
	rc := raft.DefaultConfig()
	rc.LocalID = r.self
	rc.HeartbeatTimeout = r.cfg.heartbeatTimeout()
	rc.ElectionTimeout = rc.HeartbeatTimeout
	rc.LeaderLeaseTimeout = rc.HeartbeatTimeout
	// The transport sends followers the commit index at once; this is for what it could not send.
	rc.CommitTimeout = rc.HeartbeatTimeout / 2
	rc.MaxAppendEntries = peer.MaxAppendEntries
	rc.BatchApplyCh = true
	// snapshotLoop decides; the library cannot see how full entries are (UPSTREAM.md, 12).
	rc.SnapshotThreshold = math.MaxUint64
	rc.TrailingLogs = r.cfg.TrailingEntries
	rc.NoSnapshotRestoreOnStart = true // loadSnapshot has done it, and names what is damaged
	rc.ShutdownOnRemove = false
	rc.NotifyCh = r.notify
	rc.Logger = newHclog(r.log)

	s := r.cfg.Stores
	known, err := raft.HasExistingState(s.Log, s.Stable, s.Snapshots)
	if err != nil {
		return fmt.Errorf("quorum: read log: %w", err)
	}
	if !known && r.cfg.alone() {
		if err := raft.BootstrapCluster(rc, s.Log, s.Stable, s.Snapshots, r.transport, aloneConfiguration(r.self)); err != nil {
			return fmt.Errorf("quorum: write first configuration: %w", err)
		}
	}
	owner := &diskOwner{Replica: r}
	if r.disk, err = store.NewRaftStore(&r.cfg.Stores, owner); err != nil {
		return fmt.Errorf("quorum: start raft: %w", err)
	}
	if r.raft, err = r.disk.NewRaft(rc, fsm{r}, r.transport); err != nil {
		r.disk.Close()
		return fmt.Errorf("quorum: start raft: %w", err)
	}
	owner.running.Store(r.raft)
	if err := r.checkMembers(); err != nil {
		r.shutdownRaft()
		return err
	}
	return nil
}

// aloneConfiguration is that of a member that stands alone.
func aloneConfiguration(self raft.ServerID) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: self, Address: peer.AloneAddr}}}
}

// checkMembers compares the stored members with the configuration. The stored ones count; but a
// member alone must have been alone: the others of its cluster may have what it does not. One that
// stood alone may become the first one of a cluster (growth.go).
func (r *Replica) checkMembers() error {
	servers := r.servers()
	if len(servers) > 0 {
		wasAlone := servers[0].Address == peer.AloneAddr
		switch {
		case r.cfg.alone() && !wasAlone:
			return fmt.Errorf("quorum: %s is the log of a member of a cluster (%d members), and this member is to stand alone: "+
				"its server lines are missing. If the other members are lost, or to be given up, 'lockkeeper recover' makes it one that "+
				"stands alone, and says what may be missing then", r.cfg.Stores.LogName, len(servers))
		case !r.cfg.alone() && wasAlone && servers[0].ID != r.self && peer.DiskOf(servers[0].ID) == peer.DiskOf(r.self):
			return fmt.Errorf("quorum: %s is the log of member %d, and this is member %d: compare myid and the server lines",
				r.cfg.Stores.LogName, peer.IDOf(servers[0].ID), r.cfg.ID)
		}
		r.growing.Store(!r.cfg.alone() && r.stoodAlone())
	}
	saved, err := r.cfg.Stores.Number(store.Cluster)
	cluster := peer.ClusterID(saved)
	if of := r.store.Cluster(); err == nil && of != 0 && cluster != 0 && of != cluster && !mutant.On(mutant.ClustersMix) {
		err = fmt.Errorf("quorum: %s: %w: it belongs to cluster %v, and the state is of cluster %v: are these the files of one member?",
			r.cfg.Stores.StableName, errOtherCluster, cluster, of)
	}
	if err == nil && cluster == 0 && len(servers) > 0 {
		// The member has written the first configuration, and ended before it saved the cluster.
		cluster = peer.BirthOf(servers)
		err = r.cfg.Stores.SetNumber(store.Cluster, uint64(cluster))
	}
	if err == nil && len(servers) > 0 {
		err = recordStanding(&r.cfg.Stores, servers)
	}
	r.roster.SetCluster(cluster)
	return err
}

// maj is the majority rule for the members that raft counts.
func (r *Replica) maj() Maj { return NewMaj(max(1, r.Status().Voters)) }

// stamp is what this member, as the leader, adds to the commands of an entry.
func (r *Replica) stamp() znode.Stamp {
	return znode.Stamp{TimeMs: r.cfg.Now().UnixMilli(), ClockMs: r.clock.nowMs(), Flags: r.cfg.Flags}
}

// ClockMs returns the cluster's clock: what an entry of this moment has as its Stamp.ClockMs if
// this member leads.
func (r *Replica) ClockMs() int64 { return r.clock.nowMs() }

// peerTimeout bounds one exchange with the leader.
func (r *Replica) peerTimeout() time.Duration { return 2 * r.cfg.heartbeatTimeout() }

// View calls f with the state as it is after some entry. f must not keep it, nor call the Replica.
func (r *Replica) View(f func(*znode.Store)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if observe := r.cfg.ObserveView; observe != nil {
		observe(func() { f(r.store) })
		return
	}
	f(r.store)
}

// Propose sends a command to the leader, and again whenever it may have been lost with a leader or
// a stream, until it has been applied; the listener learns of that. Commands proposed by one
// goroutine keep their order. Propose blocks while too many commands are not applied, until ctx
// ends (back-pressure). An error says that the command was not sent: ctx has ended, the Replica is
// closed, or the command is longer than MaxCommandBytes (ErrCommandTooLong).
func (r *Replica) Propose(ctx context.Context, c *znode.Command) error {
	data, err := encodeCommand(c)
	if err != nil {
		return err
	}
	return r.outbox.add(ctx, c.Key(), data)
}

// encodeCommand encodes a command that is to become a part of the log, if it fits into the frames
// between members.
func encodeCommand(c *znode.Command) ([]byte, error) {
	data := c.Append(nil)
	if len(data) > MaxCommandBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrCommandTooLong, len(data), MaxCommandBytes)
	}
	return data, nil
}

// ProposeOnce proposes a command if this member leads, and forgets it: it may be lost.
func (r *Replica) ProposeOnce(ctx context.Context, c *znode.Command) error {
	if _, ok := r.leadingTerm(); !ok {
		return ErrNoLeader
	}
	data, err := encodeCommand(c)
	if err != nil {
		return err
	}
	return r.batcher.submit(ctx, [][]byte{data})
}

// Leader is the member that leads, as far as this one knows; NoMember while it knows none.
func (r *Replica) Leader() MemberID {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	return r.leader
}

// slowApply is how long an entry may take to be applied without a warning. Readers get their turn
// in between (lockedMax).
const slowApply = 500 * time.Millisecond

// applied records that an entry has been applied, which began at start.
func (r *Replica) applied(l *raft.Log, entry *znode.Entry, start time.Time) {
	now := time.Now()
	m, took := &r.measures, now.Sub(start)
	m.Apply.Observe(int64(took))
	if took >= slowApply {
		r.trouble.Warn("apply", "an entry took long to apply, and what follows it waited: this machine is overloaded, or sessions "+
			"with many ephemeral nodes or nodes with many watches have ended (mntr: watch_count, ephemerals_count)",
			"took", took.Round(time.Millisecond), "limit", slowApply, "commands", len(entry.Commands), "index", l.Index)
	}
	_, leads := r.leadingTerm()
	r.clock.applied(entry.ClockMs, leads)
	if late := r.cfg.Now().UnixMilli() - entry.TimeMs; late >= 0 {
		m.Propagation.Observe(late * int64(time.Millisecond))
	}
	if term, leads := r.leadingTerm(); leads && term == l.Term {
		m.Commits.Add(int64(len(entry.Commands)))
		if !l.AppendedAt.IsZero() {
			m.QuorumAck.Observe(int64(start.Sub(l.AppendedAt)))
		}
	}
}

// Term is the term that this member is in.
func (r *Replica) Term() uint64 { return r.raft.CurrentTerm() }

// ID is the number of this member.
func (r *Replica) ID() MemberID { return r.cfg.ID }

// Disk is the id of this member's data directory.
func (r *Replica) Disk() peer.DiskID { return r.cfg.Peers.Disk }

// Counted reports whether raft counts this member with the disk that it has, as far as it knows.
func (r *Replica) Counted() bool {
	return slices.ContainsFunc(r.servers(), func(s raft.Server) bool { return s.ID == r.self })
}

// Cluster is the cluster that this member belongs to; 0 while it is in none.
func (r *Replica) Cluster() peer.ClusterID { return r.roster.Cluster() }

// Members returns who the members are, in ascending order, as of what this member has applied, and
// the zxid of the newest change (0: there was none). It is empty for a member that stands alone, or
// is new. The slice must not be modified.
func (r *Replica) Members() ([]znode.Member, wire.Zxid) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.store.Members()
}

// leaderEpoch is the leader and a context that ends when that is no longer the leader.
func (r *Replica) leaderEpoch() (MemberID, context.Context) {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	return r.leader, r.epoch
}

// setLeader records the leader and reports whether it is another one than before.
func (r *Replica) setLeader(id MemberID) bool {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	if id == r.cfg.ID && r.term == 0 {
		id = NoMember // raft says so already; notify will follow
	}
	if id == r.leader && r.epoch != nil {
		return false
	}
	if r.endEpoch != nil {
		r.endEpoch()
	}
	now := time.Now()
	switch {
	case id == NoMember:
		r.measures.Looking.Add(1)
	case r.leader == NoMember:
		r.measures.Election.Observe(int64(now.Sub(r.leaderFrom)))
	}
	r.leaders.setLocked(r, r.leader, id)
	r.leader, r.leaderFrom = id, now
	r.epoch, r.endEpoch = context.WithCancel(context.Background())
	return true
}

// leadingTerm is the term in which this member leads, if it does.
func (r *Replica) leadingTerm() (uint64, bool) {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	return r.term, r.term != 0
}

// leadership returns a context that ends with this member's leadership at the latest, and a
// function to call when it is no longer needed; false if it does not lead.
func (r *Replica) leadership() (context.Context, context.CancelFunc, bool) {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	if r.term == 0 {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(r.streams)
	return ctx, cancel, true
}

// LeaderKnown says since when this member has known the present leader; false while it knows none,
// with since when.
func (r *Replica) LeaderKnown() (since time.Time, ok bool) {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	return r.leaderFrom, r.leader != NoMember
}

// LeaderSilence is for how long this member has heard nothing of the leader that it follows; false
// if it leads, or knows no leader.
func (r *Replica) LeaderSilence() (time.Duration, bool) {
	r.stateMu.Lock()
	leader := r.leader
	r.stateMu.Unlock()
	if leader == NoMember || leader == r.cfg.ID {
		return 0, false
	}
	return max(0, time.Since(r.raft.LastContact())), true
}

// Close stops the member and waits for everything it started. A leader first tries to transfer its
// leadership, so that the others need not wait for an election timeout. The stores are closed too.
func (r *Replica) Close() error {
	var err error
	r.closed.Do(func() {
		switch _, leads := r.leadingTerm(); {
		case r.disk.Broken():
			// raft may be blocked in a write, and with it all calls of raft.
			r.stopRaft()
		case leads && r.maj().Voters() > 1:
			if err := r.transferTo(NoMember); err != nil {
				r.log.Info("leadership not transferred before stopping", "err", err)
			}
		}
		r.stop()
		r.wg.Wait()
		r.shutdown()
		if r.cfg.Stores.Close != nil {
			err = r.cfg.Stores.Close()
		}
	})
	return err
}

func (r *Replica) shutdown() {
	r.stopRaft()
	r.futures.Wait()
	r.closeTransport()
}

// stopRaft cuts this member off from its peers, and then ends raft and all that wait for it.
func (r *Replica) stopRaft() {
	r.stopped.Do(func() {
		r.stateMu.Lock()
		r.endEpoch()
		r.stateMu.Unlock()
		r.outbox.close()
		if r.port != nil {
			r.port.Cut()
		}
		r.shutdownRaft()
		r.batcher.close()
		if r.port != nil {
			r.port.Close()
		}
	})
}

func (r *Replica) shutdownRaft() {
	down := r.raft.Shutdown()
	r.disk.Release()
	_ = down.Error()
	r.disk.Close()
}

func (r *Replica) closeTransport() {
	if r.port != nil {
		r.port.Close()
	}
	r.transport.Close()
}

// Status is what a member knows of itself and the cluster.
type Status struct {
	ID           MemberID
	Role         string   // standalone, leader, follower, observer or looking
	Leader       MemberID // NoMember while unknown
	Term         uint64
	CommitIndex  uint64
	AppliedIndex uint64
	LastIndex    uint64
	Voters       int
	Members      int
	// Synced counts the followers and observers that have answered this leader lately, and had then
	// all that it knew to be committed (peer.Transport.Synced).
	SyncedFollowers, SyncedObservers int
}

// PeerStats counts what happens at the peer port, and waits of the log.
type PeerStats struct {
	peer.Stats
	// DescriptorWaits is how often the log had to wait for a file descriptor.
	DescriptorWaits int64
}

// PeerStats reports the counts. Those of the port are 0 for a member alone.
func (r *Replica) PeerStats() PeerStats {
	var s PeerStats
	if files := r.cfg.Stores.Files; files != nil {
		s.DescriptorWaits = files.DescriptorWaits()
	}
	if r.port != nil {
		s.Stats = r.port.Stats()
	}
	return s
}

// Freeze returns the state as it is after some entry, to be written out. It has to be released.
func (r *Replica) Freeze() *LiveSnapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &LiveSnapshot{Snapshot: r.store.Snapshot(), replica: r}
}

// LiveSnapshot is the state of a replica at one moment. While it is held, the memory of what
// changes is taken twice.
type LiveSnapshot struct {
	*znode.Snapshot
	replica *Replica
}

// Release gives the snapshot up.
func (s *LiveSnapshot) Release() {
	s.replica.mu.Lock()
	defer s.replica.mu.Unlock()
	s.Snapshot.Release()
}

// CommonVersion is the newest version of the protocol that all members speak, as the leader has
// heard from them: what came with it may be used in the log (docs/decisions/013-versions.md). It is
// 0 if there is none, or a member has not been heard of, and on members that do not lead.
func (r *Replica) CommonVersion() uint8 {
	if r.port == nil || r.Leader() != r.cfg.ID {
		return 0
	}
	return r.port.CommonVersion()
}

// Status reports how things stand.
func (r *Replica) Status() Status {
	s := Status{
		ID:          r.cfg.ID,
		Leader:      r.Leader(),
		Term:        r.raft.CurrentTerm(),
		CommitIndex: r.raft.CommitIndex(),
		LastIndex:   r.raft.LastIndex(),
	}
	votes, members := false, map[MemberID]bool{}
	for _, srv := range r.servers() {
		members[peer.IDOf(srv.ID)] = true
		if srv.Suffrage == raft.Voter {
			s.Voters++
			votes = votes || srv.ID == r.self
		}
	}
	s.Members = len(members)
	r.mu.RLock()
	s.AppliedIndex = r.appliedIndex
	r.mu.RUnlock()
	switch {
	case s.Leader == NoMember:
		s.Role = "looking"
	case r.cfg.alone():
		s.Role = "standalone"
	case s.Leader == r.cfg.ID:
		s.Role = "leader"
		s.SyncedFollowers, s.SyncedObservers = r.transport.Synced(r.cfg.Clock.Now().Add(-r.peerTimeout()))
	case !votes:
		s.Role = "observer"
	default:
		s.Role = "follower"
	}
	return s
}

// Servers are the disks that raft counts, or is about to: the newest configuration in the log. It
// is empty while this member is in no cluster.
func (r *Replica) Servers() []raft.Server { return r.servers() }

// servers are the members that raft counts, or is about to: the newest configuration in the log.
func (r *Replica) servers() []raft.Server {
	f := r.raft.GetConfiguration()
	if f.Error() != nil { // it never fails
		return nil
	}
	return f.Configuration().Servers
}
