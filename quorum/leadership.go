package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/raftnet"
	"lockkeeper/znode"
)

// leadership knows the leader, as far as this member does, and the term in which this member leads.
// It decides to stand for election, and to transfer the leadership (transfer.go).
type leadership struct {
	*engine
	batcher *batcher

	transferring atomic.Bool // the leadership is being transferred
	// step is full while raft is being made to count other members, or the leadership is being
	// transferred: a voter that lacks the newest entry is not elected. Capacity 1.
	step chan struct{}

	// Lock: mu is a leaf.
	mu         sync.Mutex
	leader     MemberID  // NoMember while unknown
	leaderFrom time.Time // since when
	changes    leaderLog
	epoch      context.Context    // ends with the leader
	endEpoch   context.CancelFunc //
	term       uint64             // of this member's leadership, 0 when it does not lead
	settled    uint64             // the same, once everything from before the term has been applied
	// settledIndex is an index up to which everything had been applied when settled was set.
	settledIndex uint64
	streams      context.Context    // while it leads: ends the streams of followers
	endStreams   context.CancelFunc //
}

func newLeadership(e *engine, b *batcher) *leadership {
	l := &leadership{engine: e, batcher: b, step: make(chan struct{}, 1), leader: NoMember, leaderFrom: time.Now(),
		changes: leaderLog{last: NoMember, ended: NoMember}}
	l.epoch, l.endEpoch = context.WithCancel(context.Background())
	l.measures.Looking.Add(1)
	return l
}

// Leader is Replica.Leader.
func (l *leadership) Leader() MemberID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

// leaderEpoch is the leader and a context that ends when that is no longer the leader.
func (l *leadership) leaderEpoch() (MemberID, context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader, l.epoch
}

// setLeader records the leader, and reports a change.
func (l *leadership) setLeader(id MemberID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == l.cfg.ID && l.term == 0 {
		id = NoMember // raft says so already; notify will follow
	}
	if id == l.leader {
		return false
	}
	l.endEpoch()
	now := time.Now()
	switch {
	case id == NoMember:
		l.measures.Looking.Add(1)
	case l.leader == NoMember:
		l.measures.Election.Observe(int64(now.Sub(l.leaderFrom)))
	}
	l.recordLocked(l.leader, id)
	l.leader, l.leaderFrom = id, now
	l.epoch, l.endEpoch = context.WithCancel(context.Background())
	return true
}

// begin makes this member the leader of a term, and opens it to the streams of followers.
func (l *leadership) begin(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = term
	l.streams, l.endStreams = context.WithCancel(context.Background())
}

// settle records that everything from before the term is applied, and all up to index.
func (l *leadership) settle(term, index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == term {
		l.settled, l.settledIndex = term, index
	}
}

// end ends this member's leadership, and reports whether it led.
func (l *leadership) end() (led bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	led = l.term != 0
	l.term, l.settled = 0, 0
	if l.endStreams != nil {
		l.endStreams()
	}
	return led
}

// reopen ends the streams of followers, so that they open new ones.
func (l *leadership) reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != 0 {
		l.endStreams()
		l.streams, l.endStreams = context.WithCancel(context.Background())
	}
}

// close ends the present leader's epoch.
func (l *leadership) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endEpoch()
}

// leadingTerm is the term in which this member leads, if it does.
func (l *leadership) leadingTerm() (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term, l.term != 0
}

// settledTerm is the term in which this member leads, if it does and has applied everything from
// before.
func (l *leadership) settledTerm() (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled, l.settled != 0 && l.settled == l.term
}

// settledFrom is settledTerm, with an index up to which everything had been applied by then.
func (l *leadership) settledFrom() (term, index uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled, l.settledIndex, l.settled != 0 && l.settled == l.term
}

// proofStep is how often a leader looks whether a quorum has followed it.
const proofStep = 2 * time.Millisecond

// proveSince waits until a quorum has followed this leader in its term after a moment of
// Config.Clock. Errors: ErrNoLeader.
func (l *leadership) proveSince(ctx context.Context, term uint64, moment time.Time) error {
	for {
		if now, leads := l.settledTerm(); !leads || now != term || ctx.Err() != nil {
			return ErrNoLeader
		}
		if !l.transport.ProvenAt(term, l.cfg.Clock.Now()).Before(moment) {
			return nil
		}
		sleep(ctx, proofStep)
	}
}

// whileLeading returns a context that ends with this member's leadership at the latest, and a
// function to call when it is no longer needed; false if it does not lead.
func (l *leadership) whileLeading() (context.Context, context.CancelFunc, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == 0 {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(l.streams)
	return ctx, cancel, true
}

// propose proposes a command if this member leads, and forgets it: it may be lost.
func (l *leadership) propose(ctx context.Context, c *znode.Command) error {
	if _, ok := l.leadingTerm(); !ok {
		return ErrNoLeader
	}
	data, err := encodeCommand(c)
	if err != nil {
		return err
	}
	return l.batcher.submit(ctx, [][]byte{data})
}

// LeaderKnown is Replica.LeaderKnown.
func (l *leadership) LeaderKnown() (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaderFrom, l.leader != NoMember
}

// LeaderSilence is Replica.LeaderSilence.
func (l *leadership) LeaderSilence() (time.Duration, bool) {
	l.mu.Lock()
	leader := l.leader
	l.mu.Unlock()
	if leader == NoMember || leader == l.cfg.ID {
		return 0, false
	}
	return max(0, time.Since(l.raft.LastContact())), true
}

// leaderlessFor is for how long this member has known no leader; 0 if it knows one.
func (l *leadership) leaderlessFor() time.Duration {
	since, known := l.LeaderKnown()
	if known {
		return 0
	}
	return time.Since(since)
}

// LeaderChange is a change of the leader, as this member saw it.
type LeaderChange struct {
	At     time.Time
	Term   uint64
	Leader MemberID // the new one
	Before MemberID // NoMember at the first one after the start
	Cause  string   // one of the Cause constants
	Detail string
	Gap    time.Duration // for how long this member knew no leader
	seen   time.Time     // as At, of the monotonic clock
}

// Why a leader changed, as far as this member can tell.
const (
	CauseStart    = "start"         // it is the first one after the start of this member
	CauseEnded    = "process ended" // nothing listens at the leader's addresses any more
	CauseTimeout  = "timeout"       // the leader was not heard of for the heartbeat timeout
	CauseTransfer = "transfer"      // the leadership was transferred
	CauseLost     = "lost majority" // this member led, and gave up
)

// leaderChanges bounds the kept changes.
const leaderChanges = 20

// leaderLog keeps the last changes of the leader. leadership.mu guards it.
type leaderLog struct {
	list   []LeaderChange
	last   MemberID
	lostAt time.Time
	cause  string
	detail string
	ended  MemberID // its process is known to have ended
	moving string   // why this member transfers its leadership; empty if it does not
}

// recordLocked is called when the leader is another one, or unknown.
func (l *leadership) recordLocked(before, id MemberID) {
	log := &l.changes
	now := time.Now()
	if id == NoMember {
		if before != NoMember {
			log.last, log.lostAt = before, now
			log.cause, log.detail = l.causeLocked(before)
		}
		return
	}
	c := LeaderChange{At: l.cfg.Now(), Leader: id, seen: now, Before: log.last, Cause: log.cause, Detail: log.detail,
		Term: l.raft.CurrentTerm()}
	switch {
	case before != NoMember: // without a time in between
		c.Before = before
		c.Cause, c.Detail = CauseTransfer, "another member leads, and the leader was heard of until then"
	case log.last == NoMember:
		c.Cause = CauseStart
	case log.ended == log.last:
		c.Cause, c.Detail = CauseEnded, "nothing listens at the addresses of the leader any more"
	}
	if before == NoMember && log.last != NoMember {
		c.Gap = now.Sub(log.lostAt)
	}
	log.last, log.cause, log.detail, log.ended, log.moving = id, "", "", NoMember, ""
	if c.Before == c.Leader && c.Cause == CauseTransfer {
		c.Cause, c.Detail = CauseLost, "it leads again, in a new term"
	}
	log.list = append(log.list, c)
	if len(log.list) > leaderChanges {
		log.list = slices.Clone(log.list[1:])
	}
}

// causeLocked finds out why there is no leader any more.
func (l *leadership) causeLocked(before MemberID) (cause, detail string) {
	silent := time.Since(l.raft.LastContact())
	switch {
	case before == l.cfg.ID && l.changes.moving != "":
		return CauseTransfer, l.changes.moving
	case before == l.cfg.ID:
		return CauseLost, "this member did not hear of a majority, or could not write its log"
	case l.changes.ended == before:
		return CauseEnded, "nothing listens at the addresses of the leader any more"
	case silent >= l.cfg.heartbeatTimeout()*9/10:
		return CauseTimeout, fmt.Sprintf("nothing was heard of the leader for %v", silent.Round(time.Millisecond))
	}
	return CauseTransfer, "another member stood for election, and the leader was heard of until then"
}

// leaderMoves records why this member transfers its leadership.
func (l *leadership) leaderMoves(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes.moving = why
}

// LeaderChanges is Replica.LeaderChanges.
func (l *leadership) LeaderChanges() []LeaderChange {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.changes.list)
	slices.Reverse(list)
	return list
}

// When the process of a leader ends, its connections end with it, and nobody listens at its address
// any more. The library (UPSTREAM.md, 9) looks at neither: its followers wait for a heartbeat
// timeout. Here a voter tries to connect when its forward stream to the leader has ended, until
// that is refused, for a process that dies closes its sockets one by one; and then stands for
// election, as a member does that the leader transfers its leadership to (Raft's thesis, 3.10).
//
// Elections are safe whenever they are held; the worst cost is a needless election, if a leader
// were taken for dead that is not. A refusal comes from the leader's machine, or from a firewall
// that answers for it. In the second case one voter that is cut off takes the leadership, once: a
// stream must have been accepted by the leader of the term before its end counts. Leases are not
// touched: a leader's confirmation counts from when a quorum still followed it
// (raftnet.Transport.ProvenAt), and the next leader begins anew.

// successionStep is how long a voter waits for each voter with a smaller number than its own before
// it stands, so that votes do not split. An election takes a few fsyncs and messages. Where that
// takes longer, a voter that has voted for another does not stand, and the library's timeouts
// remain if that election fails; one that has refused its vote, because its own log is newer,
// stands.
const successionStep = 50 * time.Millisecond

// streamEnded decides whether to stand for election when the forward stream to a leader has ended,
// which this member followed in term: it does when the leader's process has ended. life ends with
// the replica, ctx with the route to that leader.
func (l *leadership) streamEnded(ctx, life context.Context, leader MemberID, term uint64) {
	if l.knownEnded(leader) || !l.processEnded(ctx, leader) {
		return
	}
	l.mu.Lock()
	l.changes.ended = leader
	l.mu.Unlock()
	l.wg.Go(func() { l.succeed(life, leader, term) })
}

// knownEnded reports whether this member has stood for election already, or will.
func (l *leadership) knownEnded(leader MemberID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes.ended == leader
}

// succeed stands for election in place of a dead leader, which this member followed in term. ctx
// ends with the replica.
func (l *leadership) succeed(ctx context.Context, dead MemberID, term uint64) {
	rank := l.successor(dead)
	if rank < 0 {
		return
	}
	sleep(ctx, time.Duration(rank)*successionStep)
	voted, pending := l.transport.Votes()
	for ; pending && ctx.Err() == nil; voted, pending = l.transport.Votes() {
		sleep(ctx, successionStep/10)
	}
	if voted > term {
		return
	}
	_, id := l.raft.LeaderWithID()
	if leader := raftnet.IDOf(id); ctx.Err() != nil || leader != NoMember && leader != dead ||
		l.raft.State() != raft.Follower {
		return
	}
	l.log.Info("the leader's process has ended, standing for election", "leader", dead)
	l.transport.Stand(ctx)
}

// successor returns the number of voters that come before this member when the leader is replaced;
// less than 0 if it is not to stand.
func (l *leadership) successor(dead MemberID) int {
	var voters []MemberID
	for _, s := range l.Servers() {
		if id := raftnet.IDOf(s.ID); s.Suffrage == raft.Voter && id != dead {
			voters = append(voters, id)
		}
	}
	slices.Sort(voters)
	return slices.Index(voters, l.cfg.ID)
}

// processEnded reports whether nothing listens at the addresses of a member any more.
func (l *leadership) processEnded(ctx context.Context, id MemberID) bool {
	ctx, cancel := context.WithTimeout(ctx, successionStep)
	defer cancel()
	return l.port.Refuses(ctx, id)
}
