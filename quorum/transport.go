package quorum

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
)

// transport wraps the library's transport, through which a leader talks to its followers, for three
// things that the library does not offer:
//
//   - when was this leader last known to a quorum as the leader (provenAt), which is what leases may
//     rely on,
//   - holding back what followers answer until this leader's own log is durable (hold), and
//   - telling followers of a commit at once. The library does so with the next entries or after
//     CommitTimeout; a client of a follower would wait that long for its reply. An AppendEntries
//     without entries, sent when a follower has the committed entry and does not yet know, does it.
type transport struct {
	raft.Transport
	self    raft.ServerID
	servers func() []raft.Server // the newest configuration in the log

	wg   sync.WaitGroup
	stop chan struct{}
	rpcs chan raft.RPC // nil: those of the library's transport
	own  chan raft.RPC // what this member asks of its own library, as a peer would
	// mayStand says why this member must not be voted for; nil: it always may.
	mayStand func() error
	// durable waits until this member's log is durable up to index, or stop is closed; nil: it always is.
	durable func(index uint64, stop <-chan struct{}) error

	mu         sync.Mutex
	term       uint64 // of the leadership that the fields below belong to
	commit     uint64 // the newest entry that this leader has applied, and its term
	commitTerm uint64
	followers  map[raft.ServerID]*follower
}

// follower is what a leader knows of one follower, within one term.
type follower struct {
	id        raft.ServerID
	addr      raft.ServerAddress
	header    raft.AppendEntriesRequest // Term and RPCHeader of a request of this term
	contactAt time.Time                 // when the newest request that it answered in this term was sent
	acked     uint64                    // it has the log up to here
	told      uint64                    // and knows that it is committed up to here
	hint      chan struct{}             // capacity 1
}

func newTransport(inner raft.Transport, self MemberID, servers func() []raft.Server) *transport {
	return &transport{
		Transport: inner,
		self:      serverID(self),
		servers:   servers,
		stop:      make(chan struct{}),
		own:       make(chan raft.RPC),
		followers: map[raft.ServerID]*follower{},
	}
}

func (t *transport) close() {
	close(t.stop)
	t.wg.Wait()
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC {
	if t.rpcs != nil {
		return t.rpcs
	}
	return t.Transport.Consumer()
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	start := time.Now()
	err := t.Transport.AppendEntries(id, target, args, resp)
	if err == nil {
		t.answered(id, target, start, args, resp)
		err = t.hold(args, resp, nil)
	}
	return err
}

// hold waits, with the answer of a follower that has stored entries, until they are durable here, too: see backlog. Answers
// to requests without entries, and refusals, commit nothing and are not held back; and what an answer proves (answered)
// counts from when its request was sent, however long it is held. Errors: the entries will not be durable, or it makes no
// difference any more; then the library must not see the answer.
func (t *transport) hold(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, stop <-chan struct{}) error {
	if t.durable == nil || len(args.Entries) == 0 || !resp.Success || mutant.On(mutant.GateOpen) {
		return nil
	}
	return t.durable(args.Entries[len(args.Entries)-1].Index, stop)
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, t: t, id: id, addr: target, out: make(chan raft.AppendFuture), stop: make(chan struct{})}
	p.wg.Add(1)
	go p.relay()
	return p, nil
}

// pipeline sees the answers of a pipeline before the library does.
type pipeline struct {
	raft.AppendPipeline
	t    *transport
	id   raft.ServerID
	addr raft.ServerAddress
	out  chan raft.AppendFuture
	stop chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.stop) })
	err := p.AppendPipeline.Close()
	p.wg.Wait()
	return err
}

// relay hands answers on. After one that ends the pipeline the library takes no more (v1.7.3), and may at the same time wait for room
// to send: it would do so for ever, replicate no longer to that follower, and never shut down. So the others are taken here. So are
// those that it must not see (hold), and all behind them: this member then ends, or no longer leads.
func (p *pipeline) relay() {
	defer p.wg.Done()
	over := false
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			if f.Error() == nil {
				p.t.answered(p.id, p.addr, f.Start(), f.Request(), f.Response())
			}
			if over = over || p.t.hold(f.Request(), f.Response(), p.stop) != nil; over {
				continue
			}
			over = endsPipeline(f)
			select {
			case p.out <- f:
			case <-p.stop:
				return
			}
		case <-p.stop:
			return
		}
	}
}

// endsPipeline says whether the library stops reading answers with this one: it was refused, or is none.
func endsPipeline(f raft.AppendFuture) bool {
	resp := f.Response()
	return !resp.Success || resp.Term > f.Request().Term
}

// answered takes note of a follower's answer to a request that was sent at start.
func (t *transport) answered(id raft.ServerID, addr raft.ServerAddress, start time.Time, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if resp.Term != args.Term {
		return // it follows somebody else
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if args.Term < t.term {
		return
	}
	t.enterTermLocked(args.Term)
	f := t.followers[id]
	if f == nil {
		f = &follower{id: id, hint: make(chan struct{}, 1)}
		f.header = raft.AppendEntriesRequest{RPCHeader: args.RPCHeader, Term: args.Term}
		t.followers[id] = f
		t.wg.Add(1)
		go t.hintLoop(f)
	}
	f.addr = addr
	if start.After(f.contactAt) {
		f.contactAt = start
	}
	if !resp.Success {
		f.acked = min(f.acked, resp.LastLog) // it has lost its log, if it had more
		return
	}
	if args.PrevLogEntry == 0 && len(args.Entries) == 0 {
		return // a heartbeat, which says nothing of the log
	}
	f.acked = max(f.acked, args.PrevLogEntry+uint64(len(args.Entries)))
	f.told = max(f.told, min(args.LeaderCommitIndex, f.acked))
	t.hintLocked(f)
}

// enterTermLocked forgets what belongs to an earlier term.
func (t *transport) enterTermLocked(term uint64) {
	if term <= t.term {
		return
	}
	t.term, t.commit = term, 0
	for id, f := range t.followers {
		close(f.hint)
		delete(t.followers, id)
	}
}

// applied takes note that this member has applied its log up to that entry.
func (t *transport) applied(index, term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commit, t.commitTerm = index, term
	for _, f := range t.followers {
		t.hintLocked(f)
	}
}

func (t *transport) hintLocked(f *follower) {
	if f.acked >= t.commit && f.told < t.commit {
		select {
		case f.hint <- struct{}{}:
		default:
		}
	}
}

// hintLoop tells one follower of commits that no entry follows. It ends with the term.
func (t *transport) hintLoop(f *follower) {
	defer t.wg.Done()
	for {
		select {
		case <-t.stop:
			return
		case _, ok := <-f.hint:
			if !ok {
				return
			}
		}
		t.mu.Lock()
		args := f.header
		// The committed entry stands as the previous one, so that a follower whose log differs there
		// refuses. With 0 it would not look.
		args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = t.commit, t.commitTerm, t.commit
		due := t.term == args.Term && f.acked >= t.commit && f.told < t.commit && t.commit > 0
		addr := f.addr
		t.mu.Unlock()
		if !due {
			continue
		}
		var resp raft.AppendEntriesResponse
		// A failure needs no second try: the library's own next request carries the commit index too.
		_ = t.AppendEntries(f.id, addr, &args, &resp)
	}
}

// provenAt is a moment at which a quorum of voters still took this member for the leader of term: no
// other leader had been elected by then. For a single voter that is now. The zero time means that
// there is no such moment yet.
//
// The voters are those of the newest configuration in the log, committed or not. Whoever else was elected before that moment had this
// configuration, the one before it, or one that this leader has seen replaced by a committed one. A majority of the newest has a member in
// common with every majority of the first two, which differ by one voter at most; and by the last nobody can be elected who
// lacks the committed one, whose majority knew it (Raft, section 5.4).
func (t *transport) provenAt(term uint64, now time.Time) time.Time {
	voters, need := map[raft.ServerID]bool{}, 0
	for _, s := range t.servers() {
		if s.Suffrage == raft.Voter {
			voters[s.ID] = true
		}
	}
	if need = len(voters)/2 + 1; voters[t.self] {
		need--
	}
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
	for i := range need { // selection of the few newest of a handful
		for j := i + 1; j < len(newest); j++ {
			if newest[j].After(newest[i]) {
				newest[i], newest[j] = newest[j], newest[i]
			}
		}
	}
	return newest[need-1]
}

// synced counts the followers, and observers, that have all that this leader knows to be committed.
func (t *transport) synced() (followers, observers int) {
	servers := t.servers()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range servers {
		f := t.followers[s.ID]
		switch {
		case f == nil || f.acked < t.commit:
		case s.Suffrage == raft.Voter:
			followers++
		default:
			observers++
		}
	}
	return followers, observers
}

// caughtUp says whether a follower has the log up to commit, as of its newest answer.
func (t *transport) caughtUp(id MemberID, commit uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[serverID(id)]
	return f != nil && f.acked >= commit
}

// knowsAll says whether it also knows that all of it is committed.
func (t *transport) knowsAll(id MemberID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[serverID(id)]
	return f != nil && f.told >= t.commit
}

// progress is up to where a follower has the log, and when the newest request that it has answered was sent.
func (t *transport) progress(id MemberID) (acked uint64, heard time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.followers[serverID(id)]; f != nil {
		return f.acked, f.contactAt
	}
	return 0, time.Time{}
}

// heardWithin says whether a follower has answered a request that was sent no longer than d ago.
func (t *transport) heardWithin(id MemberID, d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[serverID(id)]
	return f != nil && time.Since(f.contactAt) < d
}

// forget drops what is known of a follower, who may come back with another log.
func (t *transport) forget(id raft.ServerID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.followers[id]; f != nil {
		close(f.hint)
		delete(t.followers, id)
	}
}

// RequestPreVote implements raft.WithPreVote. Without it a member that comes back from a partition would
// depose the leader with the high term that it reached alone.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.mayStand != nil {
		if err := t.mayStand(); err != nil {
			return err
		}
	}
	return t.Transport.(raft.WithPreVote).RequestPreVote(id, target, args, resp)
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if t.mayStand != nil {
		if err := t.mayStand(); err != nil {
			return err
		}
	}
	return t.Transport.RequestVote(id, target, args, resp)
}
