package quorum

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
)

// transport wraps the network, through which a leader talks to its followers, for three
// things that the library asks of no transport:
//
//   - when was this leader last known to a quorum as the leader (provenAt), which is what leases may
//     rely on,
//   - holding back what followers answer until this leader's own log is durable (hold), and
//   - telling followers of a commit at once. The library does so with the next entries or after
//     CommitTimeout; a client of a follower would wait that long for its reply. An AppendEntries
//     without entries, sent when a follower has the committed entry and does not yet know, does it;
//     over a pipeline it is a notice, which nobody answers. Where a leader and one follower are a
//     majority, it goes before the leader knows of the commit (pair.go).
type transport struct {
	raft.Transport
	self    raft.ServerID
	servers func() []raft.Server // the newest configuration in the log

	net *network // the same as Transport; nil for a member alone

	wg   sync.WaitGroup
	stop chan struct{}
	rpcs chan raft.RPC // to the library
	// hand takes what peers ask, and what this member asks of its own library, as a peer would. What stands between them and the library
	// wraps it.
	hand rpcHandler
	// mayStand says why this member must not be voted for; nil: it always may.
	mayStand func() error
	// durable waits until this member's log is durable up to index, or stop is closed; nil: it always is.
	durable func(index uint64, stop <-chan struct{}) error

	mu         sync.Mutex
	term       uint64 // of the leadership that the fields below belong to
	commit     uint64 // the newest entry that this leader has applied, and its term
	commitTerm uint64
	written    uint64 // the newest entry of this leadership that is on this member's disk
	followers  map[raft.ServerID]*follower
	pipelines  map[raft.ServerID]*pipeline // the newest of each follower, while it works
}

// follower is what a leader knows of one follower, within one term.
type follower struct {
	id        raft.ServerID
	addr      raft.ServerAddress
	header    raft.AppendEntriesRequest // Term and RPCHeader of a request of this term
	contactAt time.Time                 // when the newest request that it answered in this term was sent
	acked     uint64                    // it has the log up to here
	told      uint64                    // and knows that it is committed up to here: it has said so
	noticed   uint64                    // it has been sent word that it is committed up to here
	ask       bool                      // it is to say so, and not only to be sent word
	sent      uint64                    // its pipeline has carried the entries up to here; 0: there is none
	pairs     bool                      // it and this leader are a majority
	quiet     bool                      // nobody waits there for what is committed (quiet.go), as of its newest answer
	paused    bool                      // it is looked at again when a quietPause ends
	hint      chan struct{}             // capacity 1
}

func newTransport(inner raft.Transport, self MemberID, servers func() []raft.Server) *transport {
	t := &transport{
		Transport: inner,
		self:      serverID(self),
		servers:   servers,
		stop:      make(chan struct{}),
		rpcs:      make(chan raft.RPC),
		followers: map[raft.ServerID]*follower{},
		pipelines: map[raft.ServerID]*pipeline{},
	}
	t.hand = t.toLibrary
	return t
}

// toLibrary has the library answer what a peer asks.
func (t *transport) toLibrary(rpc raft.RPC, stop <-chan struct{}) {
	select {
	case t.rpcs <- rpc:
	case <-stop:
	}
}

func (t *transport) close() {
	close(t.stop)
	t.wg.Wait()
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	start := time.Now()
	err := t.Transport.AppendEntries(id, target, args, resp)
	if err == nil {
		t.answered(id, target, start, args, resp, false)
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
	if t.net == nil {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	c, err := t.net.connect(id)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // that of what it was used for before
	return newPipeline(t, id, target, c), nil
}

// opened takes note of a pipeline.
func (t *transport) opened(p *pipeline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pipelines[p.id] = p
}

// ended takes note that a pipeline has failed or was closed, and with it what may not have reached the follower.
func (t *transport) ended(p *pipeline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pipelines[p.id] != p {
		return
	}
	delete(t.pipelines, p.id)
	if f := t.followers[p.id]; f != nil {
		f.noticed, f.sent = f.told, 0
	}
}

// carried takes note that a request has been sent over a pipeline. It brings its commit index, and word of its entries can follow.
func (t *transport) carried(p *pipeline, args *raft.AppendEntriesRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[p.id]
	if f == nil || t.pipelines[p.id] != p || t.term != args.Term {
		return
	}
	f.noticed = max(f.noticed, min(args.LeaderCommitIndex, f.acked))
	if len(args.Entries) == 0 {
		return
	}
	f.sent = args.Entries[len(args.Entries)-1].Index
	if mutant.On(mutant.WordBeforeDisk) {
		t.written, f.pairs = f.sent, true
	}
	t.hintLocked(f)
}

// answered takes note of a follower's answer to a request that was sent at start. Quiet: it says that nobody waits there.
func (t *transport) answered(id raft.ServerID, addr raft.ServerAddress, start time.Time, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, quiet bool) {
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
	f.noticed = max(f.noticed, f.told)
	f.quiet = quiet
	t.hintLocked(f)
}

// enterTermLocked forgets what belongs to an earlier term.
func (t *transport) enterTermLocked(term uint64) {
	if term <= t.term {
		return
	}
	t.term, t.commit, t.written = term, 0, 0
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

// wordLocked is up to where a follower is to be told now that the log is committed, and the term of the entry there; 0: nothing. That
// is the newest commit, if the follower has the entry and has had no word, or what the two of them make committed (pair.go).
func (t *transport) wordLocked(f *follower) (index, term uint64) {
	switch {
	case f.acked >= t.commit && (f.noticed < t.commit || f.ask && f.told < t.commit):
		return t.commit, t.commitTerm
	case t.pairDueLocked(f):
		return t.written, t.term
	}
	return 0, 0
}

// hintLocked has a follower told what there is to tell, or, if nobody waits there, has it told later.
func (t *transport) hintLocked(f *follower) {
	index, _ := t.wordLocked(f)
	switch {
	case index == 0:
	case f.quiet && !f.ask:
		t.pauseLocked(f)
	default:
		f.wake()
	}
}

// wake has hintLoop look.
func (f *follower) wake() {
	select {
	case f.hint <- struct{}{}:
	default:
	}
}

// hintLoop sends one follower word of commits that no entry tells it of, or not early enough: with a notice, as long as there is a
// pipeline that it can go over, for a follower that hears of them one after the other need not say so each time. It ends with the term.
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
		index, term := t.wordLocked(f)
		args := f.header
		// The entry stands as the previous one, so that a follower whose log differs there refuses. With 0 it would not look.
		args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = index, term, index
		due := index > 0 && t.term == args.Term
		addr, p, ask := f.addr, t.pipelines[f.id], f.ask
		if due {
			f.noticed, f.ask = index, false
		}
		t.mu.Unlock()
		if !due || p != nil && !ask && p.notice(&args) == nil {
			continue
		}
		var resp raft.AppendEntriesResponse
		// A failure needs no second try: the library's own next request carries the commit index too.
		_ = t.AppendEntries(f.id, addr, &args, &resp)
	}
}

// quorum is who votes, by the newest configuration in the log, and how many of them make a majority together with this member.
func (t *transport) quorum() (voters map[raft.ServerID]bool, others int) {
	voters = map[raft.ServerID]bool{}
	for _, s := range t.servers() {
		if s.Suffrage == raft.Voter {
			voters[s.ID] = true
		}
	}
	if others = len(voters)/2 + 1; voters[t.self] {
		others--
	}
	return voters, others
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

// knowsAll says whether it also knows that all of it is committed. If not, it is asked.
func (t *transport) knowsAll(id MemberID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[serverID(id)]
	if f == nil || f.told >= t.commit {
		return f != nil
	}
	f.ask = true
	t.hintLocked(f)
	return false
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
