package quorum

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Replica is one member's copy of the replicated state and its part in keeping the copies equal. It
// owns the parts; each has a file.
type Replica struct {
	*engine

	outbox     *outbox
	batcher    *batcher
	leadership *leadership
	state      *state
	members    *members
	leases     *leases
	claims     *claims
	catchUp    *catchUp
	stops      *stops
	forward    *forwarder
	control    *control

	cancel  context.CancelFunc // ends the loops
	closed  sync.Once
	stopped sync.Once // done when raft has been shut down
}

// Open starts a member: it builds raft on the stores (newEngine), and the parts of the replica on
// raft, each with the parts below it. It returns as soon as the member takes part; there may be no
// leader yet. On an error the stores stay open and the caller's.
func Open(cfg Config) (*Replica, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	var err error
	if cfg.Peers.Disk, err = claimDisk(&cfg); err != nil {
		return nil, err
	}
	from, err := load(&cfg)
	if err != nil {
		return nil, err
	}
	file, _, err := znode.ParseConfigText(cfg.ConfigText)
	if err != nil && cfg.ConfigText != "" {
		return nil, fmt.Errorf("quorum: configuration: %w", err)
	}
	up := newAbove(&cfg)
	e, err := newEngine(cfg, up)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := newReplica(e, from, file, cancel)
	up.connect(r)
	if err := r.members.check(); err != nil {
		cancel()
		r.engine.shutdown()
		r.batcher.close()
		r.closePort()
		return nil, err
	}
	r.run(ctx)
	return r, nil
}

// newReplica puts the parts on top of raft. Nothing of them runs but the batcher.
func newReplica(e *engine, from loaded, file []znode.Member, cancel context.CancelFunc) *Replica {
	r := &Replica{engine: e, outbox: newOutbox(), cancel: cancel}
	doubt := make(chan struct{}, 1)
	r.batcher = newBatcher(e, doubt)
	r.leadership = newLeadership(e, r.batcher)
	r.state = newState(e, r.leadership, r.batcher, r.outbox, from)
	r.members = newMembers(e, r.leadership, r.state, file, from.brought)
	r.leases = newLeases(e, r.leadership)
	r.claims = newClaims(e, r.leadership, r.state)
	r.catchUp = newCatchUp(e, r.leadership, r.state)
	r.stops = newStops(e, r.leadership, r.catchUp)
	r.forward = &forwarder{engine: e, leadership: r.leadership, batcher: r.batcher, outbox: r.outbox}
	r.control = &control{engine: e, leadership: r.leadership, state: r.state, members: r.members, batcher: r.batcher,
		outbox:  r.outbox,
		forward: r.forward, doubt: doubt}
	return r
}

// run opens the port, and starts the loops, which end with ctx.
func (r *Replica) run(ctx context.Context) {
	if r.port != nil {
		r.port.Start(peer.Handlers{Join: r.members.join, Hello: r.hello,
			Streams: map[peer.StreamKind]func(peer.Identity, *peer.Stream) error{
				peer.StreamRaft: r.transport.Serve, peer.StreamForward: r.forward.serveForward,
				peer.StreamLease:  r.leases.serveLease,
				peer.StreamClaims: r.claims.serveClaims, peer.StreamTransfer: r.leadership.serveTransfer,
				peer.StreamStop: r.stops.serveStop}})
	}
	loops := []func(context.Context){r.control.controlLoop, r.state.snapshotLoop, r.members.changeLoop,
		r.leadership.diskLoop, r.catchUp.catchUpLoop}
	if r.cfg.alone() {
		r.transport.Stand(ctx) // nobody to wait for
	} else {
		loops = append(loops, r.members.queryLoop)
	}
	for _, loop := range loops {
		r.wg.Go(func() { loop(ctx) })
	}
}

// Close stops the member and waits for everything it started. A leader first tries to transfer its
// leadership, so that the others need not wait for an election timeout. The stores are closed too.
func (r *Replica) Close() error {
	var err error
	r.closed.Do(func() {
		switch _, leads := r.leadership.leadingTerm(); {
		case r.disk.Broken():
			// raft may be blocked in a write, and with it all calls of raft.
			r.stopRaft()
		case leads && r.maj().Voters() > 1:
			if err := r.leadership.transferTo(NoMember); err != nil {
				r.log.Info("leadership not transferred before stopping", "err", err)
			}
		}
		r.cancel()
		r.wg.Wait()
		r.stopRaft()
		r.futures.Wait()
		r.closePort()
		if r.cfg.Stores.Close != nil {
			err = r.cfg.Stores.Close()
		}
	})
	return err
}

// stopRaft cuts this member off from its peers, and then ends raft and all that wait for it.
func (r *Replica) stopRaft() {
	r.stopped.Do(func() {
		r.leadership.close()
		r.outbox.close()
		if r.port != nil {
			r.port.Cut()
		}
		r.engine.shutdown()
		r.batcher.close()
		if r.port != nil {
			r.port.Close()
		}
	})
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

// ProposeOnce proposes a command if this member leads, and forgets it: it may be lost.
func (r *Replica) ProposeOnce(ctx context.Context, c *znode.Command) error {
	return r.leadership.propose(ctx, c)
}

// View calls f with the state as it is after some entry. f must not keep it, nor call the Replica.
func (r *Replica) View(f func(*znode.Store)) { r.state.View(f) }

// Freeze returns the state as it is after some entry, to be written out. It has to be released.
func (r *Replica) Freeze() *LiveSnapshot { return r.state.Freeze() }

// Members returns the members in ascending order, as of what this member has applied, and the zxid
// of the newest change (0: there was none). It is empty for a member that stands alone, or is new.
// The slice must not be modified.
func (r *Replica) Members() ([]znode.Member, wire.Zxid) { return r.state.Members() }

// Snapshot returns the newest snapshot, zero if there is none.
func (r *Replica) Snapshot() (SnapshotInfo, error) { return r.state.newestSnapshot() }

// TakeSnapshot writes a snapshot now, and compacts the log. If nothing has been applied since the
// newest one, that is returned.
func (r *Replica) TakeSnapshot(ctx context.Context) (SnapshotInfo, error) {
	return r.state.TakeSnapshot(ctx)
}

// LastSnapshot returns the zxid of the newest snapshot on this member's disk, and when it was
// taken; 0 and the zero time if there is none.
func (r *Replica) LastSnapshot() (wire.Zxid, time.Time) { return r.state.LastSnapshot() }

// Touch reports sessions that this member heard from to the leader. It returns the sessions with an
// extended lease, and a moment, not after the call began, from which the extension counts: no
// leader expires one of them before that moment plus its timeout. The moment is of Config.Clock. An
// error means that nothing is known. Touch serves one call at a time; others wait.
func (r *Replica) Touch(ctx context.Context, heard []wire.SessionID) (extended []wire.SessionID, from time.Time,
	err error) {
	return r.leases.Touch(ctx, heard)
}

// MayExist asks the leader whether the sessions of claims exist and have those passwords. False is
// certain: the session did not exist, with that password, at some moment during the call. True is
// not, for a command that ends the session may be in the log. An error means that nothing is known.
// MayExist serves one call at a time; others wait.
func (r *Replica) MayExist(ctx context.Context, claims []znode.Claim) ([]bool, error) {
	return r.claims.MayExist(ctx, claims)
}

// MayStop asks the leader whether this member may stop now. It may be called on any member. Errors:
// ErrNoLeader, the leader's and ctx's; then nothing is known.
func (r *Replica) MayStop(ctx context.Context, wish StopWish) (StopAnswer, error) {
	return r.stops.MayStop(ctx, wish)
}

// Ready reports whether this member counts: it knows a leader, and has applied everything that it
// has been told to be committed, as of the last few seconds. If not, why says it in words, in at
// most maxWhy bytes.
func (r *Replica) Ready() (ok bool, why string) { return r.catchUp.Ready() }

// Joined reports whether this member has caught up with a leader since it started. Until then it
// serves no client.
func (r *Replica) Joined() bool { return r.catchUp.Joined() }

// CaughtUp is closed when Joined becomes true.
func (r *Replica) CaughtUp() <-chan struct{} { return r.catchUp.joined }

// Leader is the member that leads, as far as this one knows; NoMember while it knows none.
func (r *Replica) Leader() MemberID { return r.leadership.Leader() }

// LeaderKnown says since when this member has known the present leader; false while it knows none,
// with since when.
func (r *Replica) LeaderKnown() (since time.Time, ok bool) { return r.leadership.LeaderKnown() }

// LeaderSilence is for how long this member has heard nothing of the leader that it follows; false
// if it leads, or knows no leader.
func (r *Replica) LeaderSilence() (time.Duration, bool) { return r.leadership.LeaderSilence() }

// LeaderChanges returns the last changes of the leader that this member saw, the newest first.
func (r *Replica) LeaderChanges() []LeaderChange { return r.leadership.LeaderChanges() }

// TransferLeadership makes another voter the leader: the one named, or with NoMember the one that
// has most of the log. It may be called on any member, and returns when this member knows the new
// leader. Nothing is lost by it, and no client disconnected. The caller has seen to it that this
// may be done; prove is for the leader, if that is another member (Listener.MayTransfer), and may
// be nil.
func (r *Replica) TransferLeadership(ctx context.Context, to MemberID, prove Prove) error {
	return r.leadership.TransferLeadership(ctx, to, prove)
}

// CommonVersion is the newest version of the protocol that all members speak, as the leader has
// heard from them: the log may use its features (docs/decisions/013-versions.md). It is 0 if there
// is none, or a member has not been heard of, and on members that do not lead.
func (r *Replica) CommonVersion() uint8 {
	if r.port == nil || r.Leader() != r.cfg.ID {
		return 0
	}
	return r.port.CommonVersion()
}

// RoleApart is the Role of a member that has no version of the protocol in common with this one.
const RoleApart = "incompatible"

// Reports queries how other members are. Those that do not answer are not in the result, unless
// their Role is RoleApart.
func (r *Replica) Reports(ctx context.Context, others []MemberID) map[MemberID]Report {
	reports := map[MemberID]Report{}
	answers := r.helloAll(ctx, others)
	for _, id := range others {
		h, ok := answers[id]
		newest, apart := r.port.VersionOf(id)
		h.Protocol = newest
		if !ok && apart {
			h.Role, ok = RoleApart, true
		}
		if ok {
			reports[id] = h.Report
		}
	}
	return reports
}

// hello answers a query of another member.
func (r *Replica) hello(asked peer.Identity) peer.Hello {
	r.members.noteNewcomer(asked)
	_, version := r.Members()
	h := peer.Hello{State: r.birthState(), Version: uint64(version), Imported: r.members.brought,
		Report: r.cfg.Listener.Describe()}
	h.Role = r.Status().Role
	h.Ready, h.NotReady = r.catchUp.readiness()
	h.Stop = r.stops.reported()
	h.Acked, h.SetBack = r.transport.AckedBy(asked.Disk)
	if h.State == peer.Blank && slices.Contains(r.cfg.Without, asked.Member) {
		h.State = peer.Lost // this member begins a cluster without the one that asks
	}
	return h
}

// Status is a member's view of itself and the cluster.
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
	// all that it knew to be committed (raftnet.Transport.Synced).
	SyncedFollowers, SyncedObservers int
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
	for _, srv := range r.Servers() {
		members[raftnet.IDOf(srv.ID)] = true
		if srv.Suffrage == raft.Voter {
			s.Voters++
			votes = votes || srv.ID == r.self
		}
	}
	s.Members, s.AppliedIndex = len(members), r.state.applied()
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

// PeerStats counts events at the peer port, and waits of the log.
type PeerStats struct {
	peer.Stats
	// DescriptorWaits is how often the log had to wait for a file descriptor.
	DescriptorWaits int64
}

// PeerStats reports the counts. The port's are 0 for a member alone.
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

// above is the replica as the layers below it know it: the stores (store.Owner), the transport and
// the port (raftnet.Local), and raft itself (raft.FSM). They are built before the replica, which is
// built on them. So a call that needs the replica waits until connect; the stores ask nothing of
// the replica before raft runs.
type above struct {
	cfg       *Config
	connected chan struct{} // closed by connect
	r         *Replica      // set before connected is closed
}

var _ upper = (*above)(nil)

func newAbove(cfg *Config) *above { return &above{cfg: cfg, connected: make(chan struct{})} }

// connect gives the layers below their replica. It is called once.
func (a *above) connect(r *Replica) {
	a.r = r
	close(a.connected)
}

func (a *above) replica() *Replica {
	<-a.connected
	return a.r
}

// Apply implements raft.FSM.
func (a *above) Apply(l *raft.Log) any { return a.replica().state.Apply(l) }

// ApplyBatch implements raft.BatchingFSM.
func (a *above) ApplyBatch(logs []*raft.Log) []any { return a.replica().state.ApplyBatch(logs) }

// Snapshot implements raft.FSM.
func (a *above) Snapshot() (raft.FSMSnapshot, error) { return a.replica().state.Snapshot() }

// Restore implements raft.FSM.
func (a *above) Restore(from io.ReadCloser) error { return a.replica().state.Restore(from) }

// Servers implements raftnet.Local.
func (a *above) Servers() []raft.Server { return a.replica().Servers() }

// Term implements raftnet.Local.
func (a *above) Term() uint64 {
	a.cfg.Yield()
	return a.replica().raft.CurrentTerm()
}

// Leader implements raftnet.Local.
func (a *above) Leader() raft.ServerID {
	a.cfg.Yield()
	_, id := a.replica().raft.LeaderWithID()
	return id
}

// LastIndex implements raftnet.Local.
func (a *above) LastIndex() uint64 {
	a.cfg.Yield()
	return a.replica().raft.LastIndex()
}

// EntryTerm implements raftnet.Local.
func (a *above) EntryTerm(index uint64) (term uint64, ok bool) { return a.replica().entryTerm(index) }

// AppliedIndex implements raftnet.Local.
func (a *above) AppliedIndex() uint64 { return a.replica().state.reached() }

// PrevTerm implements raftnet.Local. While the library takes an entry that a snapshot has replaced
// for its last one, it compares with that.
func (a *above) PrevTerm(index, term uint64) uint64 {
	if replaced := a.replica().disk.ReplacedTerm(index, term); replaced == term ||
		a.replica().raft.LastIndex() == index {
		return replaced
	}
	return term
}

// BeginInstall implements raftnet.Local.
func (a *above) BeginInstall(limit time.Duration, stop <-chan struct{}) (end func(), ok bool) {
	return a.replica().state.beginInstall(limit, stop)
}

// LastIncluded implements raftnet.Local.
func (a *above) LastIncluded() (index, term uint64) { return a.replica().disk.LastIncluded() }

// AwaitDurable implements raftnet.Local.
func (a *above) AwaitDurable(index uint64, stop <-chan struct{}) error {
	return a.replica().disk.Await(index, stop)
}

// Heard implements raftnet.Local.
func (a *above) Heard(q *raft.AppendEntriesRequest) { a.replica().catchUp.noteCommit(q) }

// ReplicationBegan implements raftnet.Local.
func (a *above) ReplicationBegan(snapshot bool) {
	if snapshot {
		a.replica().measures.SnapshotsSent.Add(1)
	} else {
		a.replica().measures.PipelinesOpened.Add(1)
	}
}

// SnapshotTaken implements raftnet.Local.
func (a *above) SnapshotTaken(err error) { a.replica().catchUp.snapshotTaken(err) }

// SnapshotSent implements raftnet.Local.
func (a *above) SnapshotSent(to MemberID, err error) { a.replica().catchUp.snapshotSent(to, err) }

// Yield implements store.Owner.
func (a *above) Yield() { a.cfg.Yield() }

// WriteFailed implements store.Owner.
func (a *above) WriteFailed(err error) { a.cfg.Listener.Failed(err) }

// ReadFailed implements store.Owner.
func (a *above) ReadFailed(err error) { a.replica().state.poison(err) }

// FlushFailed implements store.Owner. With the next entry that it is to store raft learns that it
// cannot, and leads no longer.
func (a *above) FlushFailed() { a.replica().raft.Barrier(0) }

// MayFlushLater implements store.Owner. Of a leader every commit needs an answer of a follower
// while there is another voter in the configuration that the entries are counted by, and in any
// configuration that is among them. A follower's answer means that the entries are durable.
func (a *above) MayFlushLater(entries []*raft.Log) bool {
	r := a.replica()
	return r.raft.State() == raft.Leader && needsOthers(r.self, r.Servers(), entries)
}

// Written implements store.Owner.
func (a *above) Written(entries []*raft.Log, start time.Time, later bool) {
	r := a.replica()
	m, took := &r.measures, time.Since(start)
	m.Fsync.Observe(int64(took))
	m.FsyncEntries.Observe(int64(len(entries)))
	if limit := a.cfg.SlowFsync; limit > 0 && took >= limit {
		m.SlowFsyncs.Add(1)
		r.trouble.Warn("fsync", "the disk of the log is slow: every update waits for it; "+
			"give dataLogDir a disk of its own, and look at what else uses this one (iostat -x 1)",
			"took", took.Round(time.Millisecond), "limit", limit, "entries", len(entries))
	}
	if last := entries[len(entries)-1]; later && last.Type == raft.LogCommand &&
		r.transport.Wrote(last.Index, last.Term) {
		r.batcher.answerable()
	}
	if term, leads := r.leadership.leadingTerm(); leads && term == entries[0].Term {
		return
	}
	for _, l := range entries {
		if late := start.Round(0).Sub(l.AppendedAt); l.Type == raft.LogCommand && late >= 0 && !l.AppendedAt.IsZero() {
			m.Proposal.Observe(int64(late))
		}
	}
}

// needsOthers reports whether these entries are committed only with another voter's answer.
func needsOthers(self raft.ServerID, servers []raft.Server, entries []*raft.Log) bool {
	onlyVoter := func(servers []raft.Server) bool {
		return !slices.ContainsFunc(servers,
			func(s raft.Server) bool { return s.Suffrage == raft.Voter && s.ID != self })
	}
	return !onlyVoter(servers) && !slices.ContainsFunc(entries, func(l *raft.Log) bool {
		return l.Type == raft.LogConfiguration && onlyVoter(raft.DecodeConfiguration(l.Data).Servers)
	})
}
