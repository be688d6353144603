package raftnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/peer"
)

// Local is what the transport needs to know of this member, its raft node, its log and its state,
// and what it reports to it. Its methods are called by several goroutines, from Port.Start on.
type Local interface {
	// Term is the current term.
	Term() uint64
	// Leader is the leader that raft knows; empty: it knows none.
	Leader() raft.ServerID
	// Servers are the members of the newest configuration in the log, committed or not.
	Servers() []raft.Server
	// LastIndex is the last index of the log or the snapshot.
	LastIndex() uint64
	// EntryTerm is the term of an entry of the log; false if it is not there.
	EntryTerm(index uint64) (term uint64, ok bool)
	// PrevTerm is the term that raft has to be shown for the entry of that index and term, before
	// those that a leader sends: the same, but for the end of a snapshot that contradicted the log.
	PrevTerm(index, term uint64) uint64
	// AppliedIndex is the newest entry that is in the state.
	AppliedIndex() uint64
	// AwaitDurable waits until this member's log is durable up to index. Errors: it will not be, or
	// stop is closed before it is.
	AwaitDurable(index uint64, stop <-chan struct{}) error
	// Heard is called with each AppendEntries request that arrives, before raft takes it. It does
	// not block.
	Heard(*raft.AppendEntriesRequest)
	// ReplicationBegan is called when this member, as the leader, begins to send a follower entries
	// of the log, or a snapshot.
	ReplicationBegan(snapshot bool)
	// SnapshotTaken is called when this member has installed a snapshot that a leader has sent, or
	// could not and why.
	SnapshotTaken(err error)
	// SnapshotSent is called when this member, as the leader, has sent another one a snapshot; err
	// says why that has not installed it.
	SnapshotSent(to peer.MemberID, err error)
}

// Config describes the transport of one member.
type Config struct {
	Self  raft.ServerID
	Local Local
	// Port carries the streams; nil for a member that is in no cluster with others.
	Port *peer.Port
	// Clock is what the proof of leadership counts by; nil means Go's monotonic clock.
	Clock *clock.Clock
	// Observe is called with each request of raft that arrives and is to be answered. The function
	// that it returns is called with the answer before that is sent. It is for simulations; nil:
	// nothing is called.
	Observe func(request any) (answered func(answer any))
}

// Transport is raft's transport. Beside the exchange of requests (network) it has three things that
// the library's interface does not have:
//
//   - the proof of leadership: when a quorum of voters last answered this leader in its term
//     (ProvenAt), which leases rely on;
//   - holding back followers' answers until this leader's own log is durable (hold), because the
//     leader's disk is written in parallel with the followers' (Local.AwaitDurable);
//   - sending followers the commit index at once (commitLoop; UPSTREAM.md, 10). The library sends
//     it with the next entries or after CommitTimeout, and a client of a follower would wait that
//     long for its reply. A follower that has the entry and does not know that it is committed is
//     sent a notice over the pipeline, an AppendEntries without entries that has no answer. Where a
//     leader and one follower are a majority, that is done as soon as the entry is on the leader's
//     disk: the early commit, docs/decisions/001-early-commit.md.
//
// Requests of peers pass it on their way to the library (hand): it declines old snapshots.
type Transport struct {
	net   *network // nil for a member alone
	self  raft.ServerID
	local Local
	clock *clock.Clock

	wg   sync.WaitGroup
	stop chan struct{}
	rpcs chan raft.RPC // to the library

	mu         sync.Mutex
	term       uint64 // of the leadership that the fields below belong to
	commit     uint64 // the commit index that followers are sent: what this leader has applied
	commitTerm uint64 // of the entry there
	durable    uint64 // the newest entry of this leadership that is on this member's disk
	followers  map[raft.ServerID]*follower
	acked      map[peer.DiskID]ack         // see Acked; it outlives terms
	pipelines  map[raft.ServerID]*pipeline // the newest of each follower, while it works
}

// follower is what a leader knows of one follower, within one term.
type follower struct {
	id     raft.ServerID
	disk   peer.DiskID // of id
	addr   raft.ServerAddress
	header raft.AppendEntriesRequest // Term and RPCHeader of a request of this term
	// contactAt is when the newest request that it has answered was sent, by Transport.clock.
	contactAt time.Time
	// syncedAt is when the newest request was sent that it has answered when it had everything that
	// was committed at that time; zero since its pipeline ended or it refused a request.
	syncedAt time.Time

	matched uint64 // it has the log up to here
	// took is the time from the newest request with entries, of those that it has answered, to the
	// answer: about that of its disk.
	took         time.Duration
	commitAcked  uint64 // the commit index that it has confirmed to know
	commitSent   uint64 // the commit index that it was sent, confirmed or not
	confirm      bool   // it is to confirm the commit index, so a notice is not enough
	entriesSent  uint64 // its pipeline has carried the entries up to here; 0: there is none
	commitsEarly bool   // it and this leader are a majority

	wake chan struct{} // capacity 1: a commit index may be due
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
)

// New makes the transport of a member.
func New(cfg Config) *Transport {
	t := newTransport(cfg.Self, cfg.Local)
	t.clock = cfg.Clock
	if cfg.Port != nil {
		t.net = newNetwork(cfg.Port, cfg.Local, t.hand)
		t.net.observe = cfg.Observe
	}
	return t
}

func newTransport(self raft.ServerID, local Local) *Transport {
	return &Transport{
		self:      self,
		local:     local,
		stop:      make(chan struct{}),
		rpcs:      make(chan raft.RPC),
		followers: map[raft.ServerID]*follower{},
		acked:     map[peer.DiskID]ack{},
		pipelines: map[raft.ServerID]*pipeline{},
	}
}

// Serve serves a stream of the kind peer.StreamRaft that another member has opened, until that or
// the port ends. Errors: peer.ErrRefused, those of the stream.
func (t *Transport) Serve(from peer.Identity, s *peer.Stream) error {
	return t.net.serve(ServerID(from.Member, from.Disk), &conn{Stream: s})
}

// hand gives the library a peer's request, or this member's own, unless it answers it itself.
func (t *Transport) hand(rpc raft.RPC, stop <-chan struct{}) {
	if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && t.declineOld(&rpc, req) {
		return
	}
	select {
	case t.rpcs <- rpc:
	case <-stop:
	}
}

// Close ends the goroutines of the transport. Its port has been closed.
func (t *Transport) Close() {
	close(t.stop)
	t.wg.Wait()
	if t.net != nil {
		t.net.wg.Wait()
	}
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.rpcs }

// AppendEntries implements raft.Transport. While a follower is out of reach, the failure of a
// request that is no heartbeat is returned when a heartbeat has reached it (UPSTREAM.md, 18). The
// request is not sent then: its commit index is that of an earlier time, and the follower would
// take itself for caught up with it.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := t.appendEntries(id, target, args, resp)
	if err != nil && t.net != nil && !isHeartbeat(args) && !isRefusal(err) && !errors.Is(err, errStale) {
		t.awaitContact(id, args.Term)
	}
	return err
}

const (
	// contactStep is how often a leader looks whether a heartbeat has reached a follower.
	contactStep = 20 * time.Millisecond
	// contactWait is how long it looks.
	contactWait = time.Minute
)

// awaitContact waits until a follower has answered a request that is sent from now on, or is no
// longer to be waited for: this member does not lead in that term any more, or does not have that
// follower, or ends, or contactWait is over.
func (t *Transport) awaitContact(id raft.ServerID, term uint64) {
	began := t.clock.Now()
	over := time.NewTimer(contactWait)
	defer over.Stop()
	ticker := time.NewTicker(contactStep)
	defer ticker.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-t.net.port.Done():
			return
		case <-over.C:
			return
		case <-ticker.C:
		}
		_, heard := t.Progress(id)
		if heard.After(began) || t.local.Term() != term || t.local.Leader() != t.self ||
			!slices.ContainsFunc(t.local.Servers(), func(s raft.Server) bool { return s.ID == id }) {
			return
		}
	}
}

func (t *Transport) appendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	start := t.clock.Now()
	err := t.net.call(id, args, resp)
	if err == nil {
		t.answered(id, target, start, args, resp)
		err = t.hold(args, resp, nil)
	}
	return err
}

// hold delays the answer of a follower that has stored entries until they are durable here, too.
// Answers to requests without entries, and refusals, commit nothing and are not delayed; and the
// contact that an answer proves (answered) counts from when its request was sent, however long it
// is delayed. Errors: the entries will not be durable, or stop is closed; then the library must not
// see the answer.
func (t *Transport) hold(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, stop <-chan struct{}) error {
	if len(args.Entries) == 0 || !resp.Success || mutant.On(mutant.GateOpen) {
		return nil
	}
	return t.local.AwaitDurable(args.Entries[len(args.Entries)-1].Index, stop)
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.net == nil {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	c, err := t.net.connect(id)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // that of what it was used for before
	t.local.ReplicationBegan(false)
	return newPipeline(t, id, target, c), nil
}

// InstallSnapshot implements raft.Transport.
func (t *Transport) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	t.local.ReplicationBegan(true)
	err := t.net.sendSnapshot(id, args, resp, data)
	switch {
	case err == nil && !resp.Success && resp.Term <= args.Term:
		t.local.SnapshotSent(IDOf(id), errNotInstalled)
	case err == nil || !errors.Is(err, net.ErrClosed):
		t.local.SnapshotSent(IDOf(id), err)
	}
	return err
}

// errNotInstalled says that a member has refused a snapshot without a reason.
var errNotInstalled = errors.New("raftnet: the member has not installed it")

// opened records the newest pipeline of its follower.
func (t *Transport) opened(p *pipeline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pipelines[p.id] = p
}

// ended records that a pipeline has failed or was closed: what it carried may not have reached the
// follower.
func (t *Transport) ended(p *pipeline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pipelines[p.id] != p {
		return
	}
	delete(t.pipelines, p.id)
	if f := t.followers[p.id]; f != nil {
		f.commitSent, f.entriesSent, f.syncedAt = f.commitAcked, 0, time.Time{}
	}
}

// carried records that a request was sent over a pipeline, with its entries and its commit index.
func (t *Transport) carried(p *pipeline, args *raft.AppendEntriesRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[p.id]
	if f == nil || t.pipelines[p.id] != p || t.term != args.Term {
		return
	}
	f.commitSent = max(f.commitSent, min(args.LeaderCommitIndex, f.matched))
	if len(args.Entries) == 0 {
		return
	}
	f.entriesSent = args.Entries[len(args.Entries)-1].Index
	if mutant.On(mutant.CommitBeforeDisk) {
		t.durable, f.commitsEarly = f.entriesSent, true
	}
	t.wakeLocked(f)
}

// answered records a follower's answer to a request that was sent at start, by t.clock.
func (t *Transport) answered(id raft.ServerID, addr raft.ServerAddress, start time.Time,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if resp.Term != args.Term {
		return // it follows another leader
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if args.Term < t.term {
		return
	}
	t.enterTermLocked(args.Term)
	f := t.followers[id]
	if f == nil {
		f = &follower{id: id, disk: DiskOf(id), wake: make(chan struct{}, 1)}
		f.header = raft.AppendEntriesRequest{RPCHeader: args.RPCHeader, Term: args.Term}
		t.followers[id] = f
		t.wg.Add(1)
		go t.commitLoop(f)
	}
	f.addr = addr
	if start.After(f.contactAt) {
		f.contactAt = start
	}
	// A request may overtake another one on its own stream, but not one that was answered before it
	// was sent.
	if known := t.acked[f.disk]; resp.LastLog < known.index && start.After(known.at) {
		known.setBack = true
		t.acked[f.disk] = known
	}
	if !resp.Success {
		f.matched = min(f.matched, resp.LastLog) // it has lost its log, if it had more
		f.syncedAt = time.Time{}
		return
	}
	if args.PrevLogEntry == 0 && len(args.Entries) == 0 {
		// A heartbeat, which says nothing of the log.
		if !f.syncedAt.IsZero() && f.matched >= t.commit {
			f.synced(start)
		}
		return
	}
	now := t.clock.Now()
	f.matched = max(f.matched, args.PrevLogEntry+uint64(len(args.Entries)))
	if len(args.Entries) > 0 {
		f.took = now.Sub(start)
	}
	if f.matched >= args.LeaderCommitIndex {
		f.synced(start)
	}
	t.ackedLocked(f.disk, min(t.commit, f.matched), now)
	f.commitAcked = max(f.commitAcked, min(args.LeaderCommitIndex, f.matched))
	f.commitSent = max(f.commitSent, f.commitAcked)
	t.wakeLocked(f)
}

// ack is how far a disk has acknowledged entries that are committed.
type ack struct {
	index   uint64
	at      time.Time // when this member learned of it, by Transport.clock
	setBack bool      // the disk has answered this leader with less
}

// Acked is the committed index up to which each disk is known to have acknowledged entries. A disk
// that has less was set back.
func (t *Transport) Acked() map[peer.DiskID]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	acked := map[peer.DiskID]uint64{}
	for disk, a := range t.acked {
		acked[disk] = a.index
	}
	return acked
}

// AckedBy is Acked for one disk, and whether that has answered this leader with less.
func (t *Transport) AckedBy(disk peer.DiskID) (index uint64, setBack bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.acked[disk]
	return a.index, a.setBack
}

// NoteAcked records what another member, the leader, knows of the disks.
func (t *Transport) NoteAcked(acked map[peer.DiskID]uint64) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for disk, index := range acked {
		t.ackedLocked(disk, index, now)
	}
}

// maxAcked bounds the disks that a member knows: those of a configuration, and some that were
// replaced.
const maxAcked = 256

func (t *Transport) ackedLocked(disk peer.DiskID, index uint64, now time.Time) {
	a, ok := t.acked[disk]
	if ok && index <= a.index {
		return
	}
	if !ok && len(t.acked) >= maxAcked {
		clear(t.acked) // those of this cluster come again
	}
	a.index, a.at = index, now
	t.acked[disk] = a
}

// synced records that a follower has everything that was committed at the time at.
func (f *follower) synced(at time.Time) {
	if at.After(f.syncedAt) {
		f.syncedAt = at
	}
}

// enterTermLocked forgets what belongs to an earlier term.
func (t *Transport) enterTermLocked(term uint64) {
	if term <= t.term {
		return
	}
	t.term, t.commit, t.durable = term, 0, 0
	for id, f := range t.followers {
		close(f.wake)
		delete(t.followers, id)
	}
}

// Commit records the commit index, up to which this leader has applied its log, and the term of the
// entry there, and sends them to followers.
func (t *Transport) Commit(index, term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commit, t.commitTerm = index, term
	for _, f := range t.followers {
		t.wakeLocked(f)
	}
}

// Settled is Commit for the first entry of this leader's term that is committed, which has no
// updates: followers that are behind learn from it up to where they have to catch up.
func (t *Transport) Settled(index, term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term || index <= t.commit {
		return
	}
	t.commit, t.commitTerm = index, term
	for _, f := range t.followers {
		t.wakeLocked(f)
	}
}

// Wrote is called when an entry of that term of this leader, and with it all entries before, are on
// its disk. It reports whether any follower can apply it before this leader knows that it is
// committed (early commit).
func (t *Transport) Wrote(index, term uint64) (early bool) {
	voters, others := t.quorum()
	pairs := voters[t.self] && others == 1
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term {
		return false
	}
	t.durable = index
	for id, f := range t.followers {
		f.commitsEarly = pairs && voters[id]
		early = early || f.commitsEarly
		t.wakeLocked(f)
	}
	return early
}

// pendingCommitLocked returns the commit index to send to a follower now, and the term of the entry
// there; 0: none. It is the newest commit if the follower has that entry and was not sent the
// index, or an early commit: what is on this leader's disk and was sent to a follower with which it
// is a majority. The follower applies no entry that is not on its own disk.
func (t *Transport) pendingCommitLocked(f *follower) (index, term uint64) {
	switch {
	case f.matched >= t.commit && (f.commitSent < t.commit || f.confirm && f.commitAcked < t.commit):
		return t.commit, t.commitTerm
	case f.commitsEarly && !f.confirm && f.entriesSent >= t.durable &&
		f.commitSent < t.durable && t.commit < t.durable:
		return t.durable, t.term
	}
	return 0, 0
}

// wakeLocked wakes a follower's commitLoop if there is a commit index to send.
func (t *Transport) wakeLocked(f *follower) {
	if index, _ := t.pendingCommitLocked(f); index == 0 {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// commitLoop sends one follower the commit indexes that no entry carries, or not early enough: in a
// notice, which has no answer, while there is a pipeline, else in a request. It ends with the term.
func (t *Transport) commitLoop(f *follower) {
	defer t.wg.Done()
	for {
		select {
		case <-t.stop:
			return
		case _, ok := <-f.wake:
			if !ok {
				return
			}
		}
		t.mu.Lock()
		index, term := t.pendingCommitLocked(f)
		args := f.header
		// The entry is the previous one of this request, so that a follower whose log differs there
		// refuses. With 0 it would not compare.
		args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = index, term, index
		due := index > 0 && t.term == args.Term
		addr, p, confirm := f.addr, t.pipelines[f.id], f.confirm
		if due {
			f.commitSent, f.confirm = index, false
		}
		t.mu.Unlock()
		if !due || p != nil && !confirm && p.notice(&args) == nil {
			continue
		}
		var resp raft.AppendEntriesResponse
		// A failure needs no second try: the library's own next request carries the commit index
		// too.
		_ = t.appendEntries(f.id, addr, &args, &resp)
	}
}

// quorum returns the voters of the newest configuration in the log, and how many of them make a
// majority together with this member.
func (t *Transport) quorum() (voters map[raft.ServerID]bool, others int) {
	voters = map[raft.ServerID]bool{}
	for _, s := range t.local.Servers() {
		if s.Suffrage == raft.Voter {
			voters[s.ID] = true
		}
	}
	if others = len(voters)/2 + 1; voters[t.self] {
		others--
	}
	return voters, others
}

// ProvenAt returns a moment, by the clock that counts suspends (Config.Clock), at which a quorum of
// voters still took this member for the leader of term: no other leader had been elected by then.
// For a single voter that is now. The zero time means that there is no such moment yet, or none
// since this machine woke from a suspend.
//
// The voters are those of the newest configuration in the log, committed or not. Any other leader
// elected before that moment had this configuration, the one before it, or one that this leader has
// seen replaced by a committed one. A majority of the newest has a member in common with every
// majority of the first two, which differ by one voter at most; and by the last no member can
// be elected that lacks the committed one, whose majority knew it (Raft, section 5.4).
func (t *Transport) ProvenAt(term uint64, now time.Time) time.Time {
	voters, need := t.quorum()
	if need == 0 || mutant.On(mutant.LeaseUnproven) {
		return now
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term {
		return time.Time{}
	}
	// The newest moment with which enough followers agree: the need-th newest of their contacts.
	var newest []time.Time
	for id, f := range t.followers {
		if voters[id] && id != t.self {
			newest = append(newest, f.contactAt)
		}
	}
	if len(newest) < need {
		return time.Time{}
	}
	slices.SortFunc(newest, func(a, b time.Time) int { return b.Compare(a) })
	at := newest[need-1]
	if at.Before(t.clock.Woke()) && !mutant.On(mutant.LeaseSleeps) {
		return time.Time{}
	}
	return at
}

// Synced counts the followers, and observers, that have answered a request that was sent after
// since, by Config.Clock, and had all that was committed then.
func (t *Transport) Synced(since time.Time) (followers, observers int) {
	servers := t.local.Servers()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range servers {
		f := t.followers[s.ID]
		switch {
		case f == nil || !f.syncedAt.After(since):
		case s.Suffrage == raft.Voter:
			followers++
		default:
			observers++
		}
	}
	return followers, observers
}

// SyncedSince is Synced for one of them.
func (t *Transport) SyncedSince(id raft.ServerID, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[id]
	return f != nil && f.syncedAt.After(since)
}

// KnowsAll reports whether a follower has confirmed to know the newest commit index. If not, it is
// sent a request that makes it confirm.
func (t *Transport) KnowsAll(id raft.ServerID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[id]
	if f == nil || f.commitAcked >= t.commit {
		return f != nil
	}
	f.confirm = true
	t.wakeLocked(f)
	return false
}

// Progress returns up to where a follower has the log, and when the newest request that it has
// answered was sent, by Config.Clock.
func (t *Transport) Progress(id raft.ServerID) (matched uint64, heard time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.followers[id]; f != nil {
		return f.matched, f.contactAt
	}
	return 0, time.Time{}
}

// Took returns the time that a follower took for the newest request with entries that it has
// answered; 0 if there was none.
func (t *Transport) Took(id raft.ServerID) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.followers[id]; f != nil {
		return f.took
	}
	return 0
}

// Forget drops what is known of a follower, which may come back with another log.
func (t *Transport) Forget(id raft.ServerID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.followers[id]; f != nil {
		close(f.wake)
		delete(t.followers, id)
	}
}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.net.call(id, args, resp)
}

// RequestPreVote implements raft.WithPreVote. Without it a member that comes back from a partition
// would depose the leader with the high term that it reached alone.
func (t *Transport) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.net.call(id, args, resp)
}

// TimeoutNow implements raft.Transport.
func (t *Transport) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.net.call(id, args, resp)
}

// LocalAddr implements raft.Transport. A server's name is its address for raft: the port knows
// where the member is at present.
func (t *Transport) LocalAddr() raft.ServerAddress {
	if t.net == nil {
		return AloneAddr
	}
	return raft.ServerAddress(t.self)
}

// EncodePeer implements raft.Transport.
func (t *Transport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	if t.net == nil {
		return []byte(addr)
	}
	return []byte(id)
}

// DecodePeer implements raft.Transport.
func (t *Transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport. The handler is never called (UPSTREAM.md, 15).
func (t *Transport) SetHeartbeatHandler(f func(raft.RPC)) {
	if t.net != nil && mutant.On(mutant.HeartbeatPath) {
		t.net.beats.library.Store(&f)
	}
}

// Stand has the library of this member hold an election at once.
func (t *Transport) Stand(ctx context.Context) {
	// The answer says nothing.
	t.hand(raft.RPC{Command: timeoutNow(), RespChan: make(chan raft.RPCResponse, 1)}, ctx.Done())
}

// Append has the library of this member take entries that no leader sends: the first configuration
// of a cluster. Errors: it refuses them, or ctx has ended.
func (t *Transport) Append(ctx context.Context, args *raft.AppendEntriesRequest) error {
	args.RPCHeader.ProtocolVersion = raft.ProtocolVersionMax
	answers := make(chan raft.RPCResponse, 1)
	t.hand(raft.RPC{Command: args, RespChan: answers}, ctx.Done())
	select {
	case a := <-answers:
		if resp, ok := a.Response.(*raft.AppendEntriesResponse); a.Error == nil && (!ok || !resp.Success) {
			return fmt.Errorf("raftnet: entry %d is refused", args.Entries[0].Index)
		}
		return a.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Elect has the library of another voter hold an election at once. It waits for its answer.
func (t *Transport) Elect(id raft.ServerID) error {
	return t.TimeoutNow(id, "", timeoutNow(), &raft.TimeoutNowResponse{})
}

// timeoutNow is the request that makes the library of a voter hold an election at once.
func timeoutNow() *raft.TimeoutNowRequest {
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
}

// Votes reports the newest term in which this member has voted for a peer, and whether it has
// a request for a vote that it has not answered.
func (t *Transport) Votes() (term uint64, pending bool) {
	return t.net.voted.Load(), t.net.votesPending.Load() > 0
}
