package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/peer"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A change of the members goes like this. The command that requests it (a client's reconfig, or the
// leader's for the configuration files: filemembers.go), once applied, is the state's Change: the
// members as they are to be. From then on the leader, whichever member that is,
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
	led       time.Time // since when this member has led
	change    *znode.Change
	begun     time.Time
	possible  bool      // a step has been possible
	stuck     time.Time // since when no step is possible; zero while one is
	transfers int       // how often the leadership could not be transferred
	look      time.Time // when to look at the configuration files again (adoptFile)
}

// changeLoop follows who the members are, and while this member leads makes raft count them.
func (r *Replica) changeLoop(ctx context.Context) {
	defer r.wg.Done()
	var ch changer
	told := toldMembers{addr: r.cfg.member(r.cfg.ID).Addr}
	for ctx.Err() == nil {
		wait := r.followMembers(&told)
		pause := r.driveChange(ctx, &ch)
		if pause == changePause || wait {
			sleep(ctx, changePause)
			continue
		}
		r.awaitMembers(ctx, pause)
	}
}

// awaitMembers waits until the members may differ, for pause at the most; 0: for as long as it
// takes.
func (r *Replica) awaitMembers(ctx context.Context, pause time.Duration) {
	var late <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-ctx.Done():
	case <-r.changed:
	case <-late:
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
// wanted. It returns when to look again; 0: when the members may differ.
func (r *Replica) driveChange(ctx context.Context, ch *changer) (pause time.Duration) {
	term, leads := r.settledTerm()
	if !leads {
		*ch = changer{}
		return 0
	}
	r.mu.RLock()
	wanted, _ := r.store.Members()
	change := r.store.Change()
	r.mu.RUnlock()
	if wanted == nil || r.cfg.alone() {
		return 0
	}
	if ch.term != term || ch.change != change {
		led, look := ch.led, ch.look
		if ch.term != term {
			led, look = time.Now(), time.Time{}
		}
		*ch = changer{term: term, led: led, look: look, change: change, begun: time.Now()}
	}
	if change != nil {
		wanted = change.Members
	}
	p := r.plan(ctx, ch, wanted)
	if change != nil && p.queried && p.possible() && !p.wantedMajority() {
		p.problem = p.whoIsMissing()
	}
	if !p.possible() {
		r.cannotChange(ctx, ch, p)
		return changePause
	}
	ch.possible, ch.stuck = true, time.Time{}
	step := p.next()
	ends := change != nil && (step.kind == stepNone || step.kind == stepRemove)
	switch {
	case r.stepWaits(ch, p, step, ends):
		return changePause
	case ends:
		r.endChange(ctx, change, wire.CodeOK, "")
		return changePause
	case step.kind == stepNone:
		return r.adoptFile(ctx, ch)
	case step.kind == stepDemote && step.id == r.self && ch.transfers < 3:
		ch.transfers++
		r.transferToRemaining(p)
		return changePause
	}
	r.take(ctx, step)
	return changePause
}

// stepWaits reports whether it is too early for a step, or for the end of the change.
func (r *Replica) stepWaits(ch *changer, p *plan, s step, ends bool) bool {
	patient := time.Since(ch.begun) < stuckLimit
	switch {
	case ends && len(p.chosen) < len(p.wanted):
		return patient // a new member does not answer, it may be starting
	case s.kind == stepVote && !p.alive[s.id]:
		return patient // it may be restarting
	case s.kind == stepVote:
		return !r.caughtUp(s.id, r.raft.CommitIndex())
	case s.kind == stepRemove && !ends:
		// Its clients are to hear of the change.
		return patient && r.heardOf(s.id) && !r.transport.KnowsAll(s.id)
	case s.kind == stepDemote && p.replacedBy[s.id] != "":
		return !r.caughtUp(p.replacedBy[s.id], r.raft.CommitIndex())
	}
	return false
}

// cannotChange ends a change for which there is no majority, at once if there has been none since
// it was requested.
func (r *Replica) cannotChange(ctx context.Context, ch *changer, p *plan) {
	if ch.stuck.IsZero() {
		ch.stuck = time.Now()
	}
	if ch.change == nil {
		if time.Since(ch.stuck) > stuckLimit {
			r.log.Warn("raft cannot be made to count the members of /zookeeper/config now", "why", p.missing())
			ch.stuck = time.Now()
		}
		return
	}
	if (ch.possible || p.begun) && time.Since(ch.stuck) < stuckLimit {
		return
	}
	ch.look = time.Now().Add(stuckLimit)
	r.endChange(ctx, ch.change, wire.CodeNewConfigNoQuorum, p.missing())
}

// endChange commits the result of a change. It may get lost with the leadership; then the next
// leader finds out.
func (r *Replica) endChange(ctx context.Context, c *znode.Change, code wire.Code, why string) {
	if code == wire.CodeOK {
		r.log.Info("members changed", "members", names(c.Members))
	} else {
		r.log.Warn("members not changed", "code", code, "why", why)
	}
	cmd := &znode.Command{Session: c.Session, Generation: c.Generation, Seq: c.Seq,
		Body: &znode.Reconfigured{Code: code, Why: why}}
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
		if id != r.self && p.target[id] && p.alive[id] && r.caughtUp(id, r.raft.CommitIndex()) {
			r.log.Info("transferring the leadership: this member is to vote no longer", "to", id)
			if err = r.transferTo(peer.IDOf(id)); err == nil {
				return
			}
		}
	}
	r.log.Info("leadership not transferred", "err", err)
}

var errNoSuccessor = errors.New("quorum: no other voter has all of the log")

// caughtUp reports whether a follower has the log up to index, as of its newest answer.
func (r *Replica) caughtUp(id raft.ServerID, index uint64) bool {
	matched, _ := r.transport.Progress(id)
	return matched >= index
}

// heardOf reports whether a follower has answered a request of the last peerTimeout.
func (r *Replica) heardOf(id raft.ServerID) bool {
	_, at := r.transport.Progress(id)
	return r.cfg.Clock.Now().Sub(at) < r.peerTimeout()
}

// take makes raft count one member differently, and waits until that is committed.
func (r *Replica) take(ctx context.Context, s step) {
	id, addr := s.id, raft.ServerAddress(s.id) // the roster knows where it is
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
	switch err := r.await(ctx, f); {
	case err == nil && s.replaces != "":
		r.measures.DisksReplaced.Add(1)
		r.log.Warn("a member has come back with another disk, which replaces the one before", "member", peer.IDOf(s.id),
			"disk", peer.DiskOf(s.id), "before", peer.DiskOf(s.replaces))
	case err != nil && ctx.Err() == nil:
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
	self    raft.ServerID
	wanted  []znode.Member
	servers []raft.Server              // that raft counts now
	chosen  map[MemberID]raft.ServerID // the disk of each wanted member; none while it is not known
	voters  serverSet                  // that raft counts now
	others  serverSet                  // non-voters that raft knows now
	target  serverSet                  // voters as wanted
	alive   serverSet
	queried bool // the members were; otherwise alive has this one only
	answers map[MemberID]peer.Hello
	begun   bool // raft does not count the members of /zookeeper/config any more
	// replacedBy has the disk that replaces a server, whose member has come back with that.
	replacedBy map[raft.ServerID]raft.ServerID
	steps      []step
	problem    string
}

type serverSet = map[raft.ServerID]bool

// step changes one server.
type step struct {
	kind stepKind
	id   raft.ServerID
	// replaces is what an added disk replaces; empty: the member had none.
	replaces raft.ServerID
}

type stepKind string

const (
	stepNone   stepKind = ""
	stepAdd    stepKind = "add"    // make it a non-voter
	stepVote   stepKind = "vote"   // give it a vote
	stepDemote stepKind = "demote" // take its vote
	stepRemove stepKind = "remove" // forget it
)

// plan finds out what is to be done to make raft count the wanted members. Members that have not
// caught up when catchUpLimit has passed count as dead.
func (r *Replica) plan(ctx context.Context, ch *changer, wanted []znode.Member) *plan {
	p := &plan{self: r.self, wanted: wanted, servers: r.servers(), alive: serverSet{r.self: true},
		voters: serverSet{}, others: serverSet{}, target: serverSet{},
		chosen: map[MemberID]raft.ServerID{}, replacedBy: map[raft.ServerID]raft.ServerID{}}
	votes := map[MemberID]bool{}
	for _, s := range p.servers {
		if s.Suffrage == raft.Voter {
			p.voters[s.ID], votes[peer.IDOf(s.ID)] = true, true
		} else {
			p.others[s.ID] = true
		}
	}
	r.mu.RLock()
	members, _ := r.store.Members()
	r.mu.RUnlock()
	for _, m := range members {
		p.begun = p.begun || votes[MemberID(m.ID)] == m.Observer
	}
	if p.settled(r.recentNewcomers()) {
		p.choose(r, ch, nil)
		p.order()
		return p
	}
	// They are queried now: what was heard a moment ago would be no reason to take somebody's vote.
	query := map[MemberID]bool{}
	for _, s := range p.servers {
		query[peer.IDOf(s.ID)] = s.Suffrage == raft.Voter || query[peer.IDOf(s.ID)]
	}
	for _, m := range wanted {
		query[MemberID(m.ID)] = true
	}
	delete(query, r.cfg.ID)
	p.queried = true
	p.answers = r.helloAll(ctx, slices.Sorted(maps.Keys(query)))
	p.choose(r, ch, p.answers)
	late := time.Since(ch.begun) > catchUpLimit
	for id := range p.target {
		if late && !p.voters[id] && !r.caughtUp(id, r.raft.CommitIndex()) {
			delete(p.alive, id)
		}
	}
	p.order()
	return p
}

// settled reports whether raft counts just the wanted members, each with one disk, and none has
// come with another one.
func (p *plan) settled(newcomers []peer.Identity) bool {
	for _, m := range p.wanted {
		of := peer.DisksOf(p.servers, MemberID(m.ID))
		if len(of) != 1 || (of[0].Suffrage == raft.Voter) == m.Observer {
			return false
		}
	}
	return len(p.servers) == len(p.wanted) && !slices.ContainsFunc(newcomers, func(n peer.Identity) bool {
		return slices.ContainsFunc(p.wanted, func(m znode.Member) bool { return MemberID(m.ID) == n.Member })
	})
}

// choose finds the disk that each wanted member is to have. A member that answers with a blank disk
// while the one that raft counts is silent has lost that one. answers are nil if nobody was
// queried.
func (p *plan) choose(r *Replica, ch *changer, answers map[MemberID]peer.Hello) {
	for _, m := range p.wanted {
		id := MemberID(m.ID)
		counted := peer.DisksOf(p.servers, id)
		h, answered := answers[id]
		present := peer.ServerID(id, h.Disk)
		switch {
		case id == r.cfg.ID:
			p.chosen[id] = r.self
		case answered && (p.voters[present] || p.others[present] || len(counted) == 0 && p.mayJoin(r, h)):
			p.chosen[id] = present
		case answered && p.mayJoin(r, h) && r.mayReplace(ch, m.Observer, counted, h):
			p.chosen[id] = present
		case len(counted) > 0:
			p.chosen[id] = counted[0].ID
		}
		if answered && p.chosen[id] == present && (h.Cluster == 0 || h.Cluster == r.roster.Cluster()) {
			p.alive[present] = true
		}
		if c, ok := p.chosen[id]; ok && !m.Observer {
			p.target[c] = true
		}
		for _, s := range counted {
			if s.ID != p.chosen[id] {
				p.replacedBy[s.ID] = p.chosen[id]
			}
		}
	}
	for id, h := range answers { // voters that are to go count until then
		if present := peer.ServerID(id, h.Disk); p.voters[present] && h.Cluster == r.roster.Cluster() {
			p.alive[present] = true
		}
	}
}

// mayJoin reports whether a disk that raft does not count can become one of this cluster: it
// belongs to the cluster, because it was replaced and has come back, for example; or it is blank.
func (p *plan) mayJoin(r *Replica, h peer.Hello) bool {
	if h.Cluster != 0 {
		return h.Cluster == r.roster.Cluster()
	}
	return h.State != peer.Used && (h.Imported == (peer.Imported{}) || mutant.On(mutant.ImportJoins))
}

// mayReplace reports whether a member has lost the disk that raft counts: it answers with another
// one, and the old one has been silent for a while. A disk without the vote that the member is to
// have is one of a member that was removed, and has come back.
func (r *Replica) mayReplace(ch *changer, observer bool, counted []raft.Server, h peer.Hello) bool {
	if r.cfg.KeepDisks && (observer || counted[0].Suffrage == raft.Voter) {
		r.trouble.Warn("keep "+string(counted[0].ID), "a member has come back with another disk, and replaceDisks=false "+
			"leaves it to the operator: remove it from the cluster and add it again",
			"member", peer.IDOf(counted[0].ID), "disk", h.Disk)
		return false
	}
	if time.Since(ch.led) < r.peerTimeout() {
		return false // a new leader has not heard of anybody yet
	}
	for _, s := range counted {
		if !r.heardOf(s.ID) {
			continue
		}
		if r.persists(peer.IDOf(s.ID)) {
			r.trouble.Warn("number in use "+string(s.ID), "a second process has the number of a member that answers: it is not taken in",
				"member", peer.IDOf(s.ID), "disk", peer.DiskOf(s.ID), "other", h.Disk)
		}
		return false
	}
	return true
}

// order finds an order of steps in which the voters that are alive are a majority after each.
func (p *plan) order() {
	listed := serverSet{}
	for _, m := range p.wanted {
		if id, ok := p.chosen[MemberID(m.ID)]; ok {
			listed[id] = true
			if !p.voters[id] && !p.others[id] {
				add := step{kind: stepAdd, id: id}
				for old, by := range p.replacedBy {
					if by == id {
						add.replaces = old
					}
				}
				p.steps = append(p.steps, add)
			}
		}
	}
	now := maps.Clone(p.voters)
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
	for _, s := range p.servers {
		if !listed[s.ID] && !p.voters[s.ID] {
			p.steps = append(p.steps, step{kind: stepRemove, id: s.ID})
		}
	}
}

// best is the step after which the voters that are alive are furthest above a majority. Of equal
// ones a disk that was replaced goes first, and the leader's own vote last. No member has two
// votes.
func (p *plan) best(now serverSet) (s step, margin int) {
	try := func(kind stepKind, id raft.ServerID) {
		next := maps.Clone(now)
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
			s, margin = step{kind: kind, id: id}, m
		}
	}
	var replaced, vote, demote, own []raft.ServerID
	for _, id := range sortedIDs(now) {
		switch {
		case p.target[id]:
		case id == p.self:
			own = append(own, id)
		case p.replacedBy[id] != "":
			replaced = append(replaced, id)
		default:
			demote = append(demote, id)
		}
	}
	for _, id := range sortedIDs(p.target) {
		if !now[id] && !slices.ContainsFunc(sortedIDs(now), func(v raft.ServerID) bool { return peer.IDOf(v) == peer.IDOf(id) }) {
			vote = append(vote, id)
		}
	}
	for _, id := range replaced {
		try(stepDemote, id)
	}
	for _, id := range vote {
		try(stepVote, id)
	}
	for _, id := range demote {
		try(stepDemote, id)
	}
	if s.kind == stepNone {
		for _, id := range own {
			try(stepDemote, id)
		}
	}
	return s, margin
}

// votes reports whether a member has answered with a disk that has a vote now.
func (p *plan) votes(id MemberID) bool {
	h, answered := p.answers[id]
	return answered && p.voters[peer.ServerID(id, h.Disk)]
}

func sortedIDs(set serverSet) []raft.ServerID { return slices.Sorted(maps.Keys(set)) }

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

// wantedMajority reports whether a majority of the wanted voters is alive. One that has never
// answered is not alive: raft cannot count it before its disk is known.
func (p *plan) wantedMajority() bool {
	alive, voters := p.liveVoters()
	return NewMaj(voters).Quorum(alive)
}

// liveVoters counts the wanted voters, and those of them that are alive.
func (p *plan) liveVoters() (alive, voters int) {
	for _, m := range p.wanted {
		if m.Observer {
			continue
		}
		voters++
		if c, ok := p.chosen[MemberID(m.ID)]; ok && p.alive[c] {
			alive++
		}
	}
	return alive, voters
}

// whoIsMissing says in words why there would be no majority.
func (p *plan) whoIsMissing() string {
	alive, voters := p.liveVoters()
	var missing []string
	for _, m := range p.wanted {
		if c, ok := p.chosen[MemberID(m.ID)]; !m.Observer && !(ok && p.alive[c]) {
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Key(), m.PeerAddr()))
		}
	}
	if len(missing) == 0 {
		return "on the way there would be no majority of live voters"
	}
	return fmt.Sprintf("would leave %d of %d live: missing %s", alive, voters, strings.Join(missing, ", "))
}
