package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A change of the members goes like this. The command that requests it, once applied, is the
// state's Change: the members as they are to be. From then on the leader, whichever member that is,
// makes raft count those members, one step at a time:
//
//  1. Each new member becomes a nonvoter, which alters no majority, and gets the log, or a
//     snapshot.
//  2. New voters that answer and have caught up get their vote, and voters that are to go lose it,
//     one by one, each step such that the live members are a majority after it. A leader that is to
//     lose its vote transfers the leadership first.
//  3. When raft counts exactly the new voters, KindReconfigured makes the new members those of
//     /zookeeper/config.
//  4. Nonvoters that are no members are removed.
//
// There is no state but the log: each step compares what raft counts with what is wanted, so a new
// leader goes on where the old one ended. A change that cannot be made without losing the majority
// of the live voters ends with NewConfigNoQuorum, and what raft counts goes back to the members of
// /zookeeper/config in the same way.
const (
	// changePause is between two looks at a change that is under way.
	changePause = 20 * time.Millisecond
	// catchUpLimit is how long a new voter may take to get all of the log.
	catchUpLimit = 2 * time.Minute
	// stuckLimit is how long a change waits for a majority that was there when it began, and for a
	// new member that does not answer yet.
	stuckLimit = 10 * time.Second
)

// changer is what the change loop keeps in mind about the change under way. All of it can be found
// out again.
type changer struct {
	term      uint64
	change    *znode.Change
	begun     time.Time
	possible  bool      // a step has been possible
	stuck     time.Time // since when no step is possible; zero while one is
	transfers int       // how often the leadership could not be transferred
}

// changeLoop follows who the members are, and while this member leads makes raft count them.
func (r *Replica) changeLoop(ctx context.Context) {
	defer r.wg.Done()
	var ch changer
	told := toldMembers{addr: r.cfg.member(r.cfg.ID).Addr}
	for ctx.Err() == nil {
		wait := r.followMembers(&told)
		if r.driveChange(ctx, &ch) || wait {
			sleep(ctx, changePause)
			continue
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
		}
	}
}

// membersMayDiffer makes the change loop look.
func (r *Replica) membersMayDiffer() { signal(r.changed) }

// toldMembers are the members that MembersChanged was last called with.
type toldMembers struct {
	version wire.Zxid
	members []znode.Member
	addr    string // of this member's peer port

	newest wire.Zxid // that have been seen
	since  time.Time // when
}

// tellAfter is how long the members must have been the same before others are told of them: a
// member that gets the log goes through all that was ever agreed.
const tellAfter = 200 * time.Millisecond

// followMembers tells the roster, the peer port and the member above who the members are. It
// reports whether to look again soon.
func (r *Replica) followMembers(told *toldMembers) (again bool) {
	r.mu.RLock()
	members, version := r.store.Members()
	change := r.store.Change()
	r.mu.RUnlock()
	var coming []znode.Member
	if change != nil {
		coming = change.Members
	}
	r.roster.Update(members, coming)
	if members == nil || told.version == version && slices.Equal(told.members, members) {
		return false
	}
	if told.newest != version || told.since.IsZero() {
		told.newest, told.since = version, time.Now()
	}
	if time.Since(told.since) < tellAfter {
		return true
	}
	first := told.members == nil
	told.version, told.members = version, members
	agreed := r.cfg.Flags&znode.Reconfig != 0 && version > 0
	i := slices.IndexFunc(members, func(m znode.Member) bool { return MemberID(m.ID) == r.cfg.ID })
	switch {
	case i >= 0 && agreed:
		r.moveTo(told, members[i].PeerAddr())
	case i < 0 && !first:
		r.log.Warn("this member has been removed from the cluster; it will serve nobody", "version", version)
	}
	if r.cfg.MembersChanged != nil {
		r.cfg.MembersChanged(members, version)
	}
	return false
}

// moveTo listens for peers where the members have agreed that this one is.
func (r *Replica) moveTo(told *toldMembers, addr string) {
	if told.addr == addr || r.port == nil {
		return
	}
	told.addr = addr
	if err := r.port.Move(addr); err != nil {
		r.log.Error("cannot listen for peers at this member's new address; a restart may be needed", "address", addr, "err", err)
		return
	}
	r.log.Info("listening for peers at the agreed address", "address", addr)
}

// driveChange takes at most one step, if this member leads and what raft counts is not what is
// wanted. It reports whether to look again soon.
func (r *Replica) driveChange(ctx context.Context, ch *changer) (again bool) {
	term, leads := r.settledTerm()
	if !leads {
		*ch = changer{}
		return false
	}
	r.mu.RLock()
	wanted, _ := r.store.Members()
	change := r.store.Change()
	r.mu.RUnlock()
	if wanted == nil || r.cfg.alone() {
		return false
	}
	if ch.term != term || ch.change != change {
		*ch = changer{term: term, change: change, begun: time.Now()}
	}
	if change != nil {
		wanted = change.Members
	}
	p := r.plan(ctx, wanted, time.Since(ch.begun) > catchUpLimit)
	if !p.possible() {
		return r.cannotChange(ctx, ch, p)
	}
	ch.possible, ch.stuck = true, time.Time{}
	step := p.next()
	switch {
	case change != nil && (step.kind == stepNone || step.kind == stepRemove):
		r.endChange(ctx, change, wire.CodeOK, "")
		return true
	case step.kind == stepNone:
		return false
	case step.kind == stepAdd && p.unready[step.id] && time.Since(ch.begun) < stuckLimit:
		return true // it runs, and has not queried the other members yet
	case step.kind == stepVote && !p.alive[step.id] && time.Since(ch.begun) < stuckLimit:
		return true // it may be starting
	case step.kind == stepVote && p.alive[step.id] && !r.caughtUp(step.id, r.raft.CommitIndex()):
		return true // it is getting the log
	case step.kind == stepRemove && r.heardOf(step.id) && !r.transport.KnowsAll(step.id) && time.Since(ch.begun) < stuckLimit:
		return true // its clients are to hear of the change
	case step.kind == stepDemote && step.id == r.cfg.ID && ch.transfers < 3:
		ch.transfers++
		r.transferToRemaining(p)
		return true
	}
	r.take(ctx, step)
	return true
}

// cannotChange ends a change for which there is no majority, at once if there has been none since
// it was requested.
func (r *Replica) cannotChange(ctx context.Context, ch *changer, p *plan) (again bool) {
	if ch.stuck.IsZero() {
		ch.stuck = time.Now()
	}
	if ch.change == nil {
		if time.Since(ch.stuck) > stuckLimit {
			r.log.Warn("raft cannot be made to count the members of /zookeeper/config now", "why", p.missing())
			ch.stuck = time.Now()
		}
		return true
	}
	if (ch.possible || p.begun) && time.Since(ch.stuck) < stuckLimit {
		return true
	}
	r.endChange(ctx, ch.change, wire.CodeNewConfigNoQuorum, p.missing())
	return true
}

// endChange commits the result of a change. It may get lost with the leadership; then the next
// leader finds out.
func (r *Replica) endChange(ctx context.Context, c *znode.Change, code wire.Code, why string) {
	if code == wire.CodeOK {
		r.log.Info("members changed", "members", names(c.Members))
	} else {
		r.log.Warn("members not changed", "code", code, "why", why)
	}
	cmd := &znode.Command{Kind: znode.KindReconfigured, Session: c.Session, Generation: c.Generation, Seq: c.Seq,
		TimeoutMs: int32(code), Body: []byte(why)}
	if r.ProposeOnce(ctx, cmd) != nil {
		return
	}
	// Until it has been applied, another one would only be one too many.
	for range 100 {
		r.mu.RLock()
		over := r.store.Change() != c
		r.mu.RUnlock()
		if _, leads := r.settledTerm(); over || !leads || ctx.Err() != nil {
			return
		}
		sleep(ctx, changePause/4)
	}
}

func names(ms []znode.Member) string {
	var list []string
	for _, m := range ms {
		list = append(list, m.Key())
	}
	return strings.Join(list, " ")
}

// transferToRemaining transfers the leadership to a voter that stays one and has all of the log.
func (r *Replica) transferToRemaining(p *plan) {
	var err error = errNoSuccessor
	for _, id := range sortedIDs(p.voters) {
		if id != r.cfg.ID && p.target[id] && p.alive[id] && r.caughtUp(id, r.raft.CommitIndex()) {
			r.log.Info("transferring the leadership: this member is to vote no longer", "to", id)
			if err = r.transferTo(id); err == nil {
				return
			}
		}
	}
	r.log.Info("leadership not transferred", "err", err)
}

var (
	errNoSuccessor  = errors.New("quorum: no other voter has all of the log")
	errOtherCluster = errors.New("quorum: another cluster")
)

// caughtUp reports whether a follower has the log up to index, as of its newest answer.
func (r *Replica) caughtUp(id MemberID, index uint64) bool {
	matched, _ := r.transport.Progress(id)
	return matched >= index
}

// heardOf reports whether a follower has answered a request of the last peerTimeout.
func (r *Replica) heardOf(id MemberID) bool {
	_, at := r.transport.Progress(id)
	return r.cfg.Clock.Now().Sub(at) < r.peerTimeout()
}

// take makes raft count one member differently, and waits until that is committed.
func (r *Replica) take(ctx context.Context, s step) {
	id := peer.ServerID(s.id)
	addr := raft.ServerAddress(id) // the roster knows where it is
	for _, known := range r.servers() {
		if known.ID == id {
			addr = known.Address
		}
	}
	var f raft.IndexFuture
	switch s.kind {
	case stepAdd:
		r.transport.Forget(s.id)
		f = r.raft.AddNonvoter(id, addr, 0, r.peerTimeout())
	case stepVote:
		f = r.raft.AddVoter(id, addr, 0, r.peerTimeout())
	case stepDemote:
		f = r.raft.DemoteVoter(id, 0, r.peerTimeout())
	case stepRemove:
		f = r.raft.RemoveServer(id, 0, r.peerTimeout())
	}
	r.log.Info("changing what raft counts", "step", s.kind, "of", s.id)
	if err := r.await(ctx, f); err != nil && ctx.Err() == nil {
		r.log.Info("raft did not take the step, looking again", "step", s.kind, "of", s.id, "err", err)
	}
	r.membersMayDiffer()
}

// await waits for a future until ctx ends. The future itself ends with raft.
func (r *Replica) await(ctx context.Context, f raft.Future) error {
	endWith(f, r.batcher.down)
	done := make(chan error, 1)
	r.futures.Go(func() { done <- f.Error() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settledTerm is the term in which this member leads, if it does and has applied everything from
// before.
func (r *Replica) settledTerm() (uint64, bool) {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	return r.settled, r.settled != 0 && r.settled == r.term
}

// plan is what a leader knows when it decides on a step.
type plan struct {
	self    MemberID
	wanted  []znode.Member
	voters  map[MemberID]bool // that raft counts now
	others  map[MemberID]bool // non-voters that raft knows now
	target  map[MemberID]bool // voters as wanted
	alive   map[MemberID]bool
	unready map[MemberID]bool // alive, and do not know yet which cluster they are to belong to
	begun   bool              // raft does not count the members of /zookeeper/config any more
	steps   []step
	problem string
}

// step changes one member.
type step struct {
	kind stepKind
	id   MemberID
}

type stepKind string

const (
	stepNone   stepKind = ""
	stepAdd    stepKind = "add"    // make it a non-voter
	stepVote   stepKind = "vote"   // give it a vote
	stepDemote stepKind = "demote" // take its vote
	stepRemove stepKind = "remove" // forget it
)

// plan finds out what is to be done to make raft count the wanted members.
// With late, members that have still not caught up count as dead.
func (r *Replica) plan(ctx context.Context, wanted []znode.Member, late bool) *plan {
	p := &plan{self: r.cfg.ID, wanted: wanted, voters: map[MemberID]bool{}, others: map[MemberID]bool{},
		target: map[MemberID]bool{}, alive: map[MemberID]bool{r.cfg.ID: true}, unready: map[MemberID]bool{}}
	for _, s := range r.servers() {
		if s.Suffrage == raft.Voter {
			p.voters[peer.IDOf(s.ID)] = true
		} else {
			p.others[peer.IDOf(s.ID)] = true
		}
	}
	r.mu.RLock()
	members, _ := r.store.Members()
	r.mu.RUnlock()
	for _, m := range members {
		if id := MemberID(m.ID); p.voters[id] == m.Observer {
			p.begun = true
		}
	}
	for _, m := range wanted {
		if !m.Observer {
			p.target[MemberID(m.ID)] = true
		}
	}
	if p.same() && !slices.ContainsFunc(wanted, func(m znode.Member) bool {
		return !p.voters[MemberID(m.ID)] && !p.others[MemberID(m.ID)]
	}) {
		p.order()
		return p
	}
	// They are queried now: what was heard a moment ago would be no reason to take somebody's vote.
	query := mergeIDs(p.voters, p.target)
	for _, m := range wanted {
		if id := MemberID(m.ID); !p.voters[id] && !p.others[id] {
			query[id] = true
		}
	}
	delete(query, r.cfg.ID)
	for id, h := range r.helloAll(ctx, sortedIDs(query)) {
		if h.Cluster == 0 || h.Cluster == r.roster.Cluster() {
			p.alive[id], p.unready[id] = true, h.Cluster == 0
		}
	}
	for id := range p.target {
		if late && !p.voters[id] && !r.caughtUp(id, r.raft.CommitIndex()) {
			delete(p.alive, id)
		}
	}
	p.order()
	return p
}

func mergeIDs(sets ...map[MemberID]bool) map[MemberID]bool {
	all := map[MemberID]bool{}
	for _, set := range sets {
		for id := range set {
			all[id] = true
		}
	}
	return all
}

// same reports whether raft counts the wanted voters.
func (p *plan) same() bool {
	for id := range mergeIDs(p.voters, p.target) {
		if p.voters[id] != p.target[id] {
			return false
		}
	}
	return true
}

// order finds an order of steps in which the voters that are alive are a majority after each.
func (p *plan) order() {
	for _, m := range p.wanted {
		if id := MemberID(m.ID); !p.voters[id] && !p.others[id] {
			p.steps = append(p.steps, step{stepAdd, id})
		}
	}
	now := mergeIDs(p.voters)
	for {
		s, margin := p.best(now)
		if s.kind == stepNone {
			break
		}
		if margin < 0 {
			p.problem = p.whoIsMissing()
			return
		}
		p.steps = append(p.steps, s)
		if s.kind == stepVote {
			now[s.id] = true
		} else {
			delete(now, s.id)
		}
	}
	listed := map[MemberID]bool{}
	for _, m := range p.wanted {
		listed[MemberID(m.ID)] = true
	}
	for _, id := range sortedIDs(mergeIDs(p.voters, p.others)) {
		if !listed[id] && !p.voters[id] {
			p.steps = append(p.steps, step{stepRemove, id})
		}
	}
}

// best is the step after which the voters that are alive are furthest above a majority. The
// leader's own vote goes last.
func (p *plan) best(now map[MemberID]bool) (s step, margin int) {
	var own step
	try := func(kind stepKind, id MemberID) {
		next := mergeIDs(now)
		if kind == stepVote {
			next[id] = true
		} else {
			delete(next, id)
		}
		if len(next) == 0 {
			return
		}
		alive := 0
		for v := range next {
			if p.alive[v] {
				alive++
			}
		}
		if m := alive - NewMaj(len(next)).Size(); s.kind == stepNone || m > margin {
			s, margin = step{kind, id}, m
		}
	}
	for _, id := range sortedIDs(p.target) {
		if !now[id] {
			try(stepVote, id)
		}
	}
	for _, id := range sortedIDs(now) {
		switch {
		case p.target[id]:
		case id == p.self:
			own = step{stepDemote, id}
		default:
			try(stepDemote, id)
		}
	}
	if s.kind == stepNone && own.kind != stepNone {
		try(own.kind, own.id)
	}
	return s, margin
}

func sortedIDs(set map[MemberID]bool) []MemberID {
	var ids []MemberID
	for id := range set {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (p *plan) possible() bool { return p.problem == "" }

func (p *plan) missing() string { return p.problem }

// next is the step to take. Removing comes after the end of the change, so it is not among them
// before.
func (p *plan) next() step {
	if len(p.steps) == 0 {
		return step{}
	}
	return p.steps[0]
}

// whoIsMissing says in words why there would be no majority.
func (p *plan) whoIsMissing() string {
	alive := 0
	var missing []string
	for _, m := range p.wanted {
		switch {
		case m.Observer:
		case p.alive[MemberID(m.ID)]:
			alive++
		default:
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Key(), m.PeerAddr()))
		}
	}
	if len(missing) == 0 {
		return "on the way there would be no majority of live voters"
	}
	return fmt.Sprintf("would leave %d of %d live: missing %s", alive, len(p.target), strings.Join(missing, ", "))
}
