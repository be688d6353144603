package quorum

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/raftnet"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A change of the members goes like this. The command that requests it (a client's reconfig, or the
// leader's for the configuration files: filemembers.go), once applied, is the state's Change: the
// members as they are to be. From then on the leader makes raft count those members, one step at a
// time:
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
// There is no state but the log: each step compares raft's servers with the wanted ones, so a new
// leader continues where the old one ended. A change that cannot be made without losing the
// majority of the live voters ends with NewConfigNoQuorum, and raft goes back to the members of
// /zookeeper/config in the same way.
const (
	// changePause is between two looks at a change that is under way.
	changePause = 20 * time.Millisecond
	// stuckLimit is how long a change waits for a majority that was there when it began, and for a
	// new member that does not answer yet.
	stuckLimit = 10 * time.Second
)

// changeLoop follows who the members are, and while this member leads makes raft count them.
func (ms *members) changeLoop(ctx context.Context) {
	var ch changer
	told := toldMembers{addr: ms.cfg.member(ms.cfg.ID).Addr}
	for ctx.Err() == nil {
		wait := ms.followMembers(&told)
		pause := ms.driveChange(ctx, &ch)
		if pause == changePause || wait {
			sleep(ctx, changePause)
			continue
		}
		ms.awaitMembers(ctx, pause)
	}
}

// awaitMembers waits until the members may differ, for pause at the most; 0: for as long as it
// takes.
func (ms *members) awaitMembers(ctx context.Context, pause time.Duration) {
	var late <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-ctx.Done():
	case <-ms.state.changed:
	case <-late:
	}
}

// driveChange takes at most one step, if this member leads and raft does not count the wanted
// members. It returns the pause before the next look; 0: until the members may differ.
func (ms *members) driveChange(ctx context.Context, ch *changer) (pause time.Duration) {
	term, leads := ms.leadership.settledTerm()
	if !leads {
		*ch = changer{}
		return 0
	}
	wanted, _, change := ms.state.change()
	if wanted == nil || ms.cfg.alone() {
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
	p := ms.plan(ctx, ch, wanted)
	if change != nil && p.queried && p.possible() && !p.wantedMajority() {
		p.problem = p.whoIsMissing()
	}
	if !p.possible() {
		ms.cannotChange(ctx, ch, p)
		return changePause
	}
	ch.possible, ch.stuck = true, time.Time{}
	step := p.nextStep()
	ends := change != nil && (step.kind == stepNone || step.kind == stepRemove)
	switch {
	case ms.stepWaits(ch, p, step, ends):
		return changePause
	case ends:
		ms.endChange(ctx, change, wire.CodeOK, "")
		return changePause
	case step.kind == stepNone:
		return ms.adoptFile(ctx, ch)
	case step.kind == stepDemote && step.id == ms.self && ch.transfers < 3:
		ch.transfers++
		ms.transferToRemaining(p)
		return changePause
	}
	ms.take(ctx, step)
	return changePause
}

// stepWaits reports whether it is too early for a step, or for the end of the change.
func (ms *members) stepWaits(ch *changer, p *plan, s step, ends bool) bool {
	patient := time.Since(ch.begun) < stuckLimit
	switch {
	case ends && len(p.chosen) < len(p.wanted):
		return patient // a new member does not answer, it may be starting
	case s.kind == stepVote && !p.alive[s.id]:
		return patient // it may be restarting
	case s.kind == stepVote:
		return !ms.caughtUp(s.id, ms.raft.CommitIndex())
	case s.kind == stepRemove && !ends:
		// Its clients are to hear of the change.
		return patient && ms.heardOf(s.id) && !ms.transport.KnowsAll(s.id)
	case s.kind == stepDemote && p.replacedBy[s.id] != "":
		return !ms.caughtUp(p.replacedBy[s.id], ms.raft.CommitIndex())
	}
	return false
}

// cannotChange ends a change for which there is no majority, at once if there has been none since
// it was requested.
func (ms *members) cannotChange(ctx context.Context, ch *changer, p *plan) {
	if ch.stuck.IsZero() {
		ch.stuck = time.Now()
	}
	if ch.change == nil {
		if time.Since(ch.stuck) > stuckLimit {
			ms.log.Warn("raft cannot be made to count the members of /zookeeper/config now", "why", p.missing())
			ch.stuck = time.Now()
		}
		return
	}
	if (ch.possible || p.begun) && time.Since(ch.stuck) < stuckLimit {
		return
	}
	ch.look = time.Now().Add(stuckLimit)
	ms.endChange(ctx, ch.change, wire.CodeNewConfigNoQuorum, p.missing())
}

// endChange commits the result of a change. It may get lost with the leadership; then the next
// leader finds out.
func (ms *members) endChange(ctx context.Context, c *znode.Change, code wire.Code, why string) {
	if code == wire.CodeOK {
		ms.log.Info("members changed", "members", names(c.Members))
	} else {
		ms.log.Warn("members not changed", "code", code, "why", why)
	}
	cmd := &znode.Command{Session: c.Session, Generation: c.Generation, Seq: c.Seq,
		Body: &znode.Reconfigured{Code: code, Why: why}}
	if ms.leadership.propose(ctx, cmd) != nil {
		return
	}
	// Until it has been applied, another one would only be one too many.
	for range 100 {
		_, _, now := ms.state.change()
		if _, leads := ms.leadership.settledTerm(); now != c || !leads || ctx.Err() != nil {
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
func (ms *members) transferToRemaining(p *plan) {
	var err error = errNoSuccessor
	for _, id := range sortedIDs(p.voters) {
		if id != ms.self && p.target[id] && p.alive[id] && ms.caughtUp(id, ms.raft.CommitIndex()) {
			ms.log.Info("transferring the leadership: this member is to vote no longer", "to", id)
			if err = ms.leadership.transferTo(raftnet.IDOf(id)); err == nil {
				return
			}
		}
	}
	ms.log.Info("leadership not transferred", "err", err)
}

var errNoSuccessor = errors.New("quorum: no other voter has all of the log")

// take makes raft count one member differently, and waits until that is committed. It does nothing
// while the leadership is being transferred.
func (ms *members) take(ctx context.Context, s step) {
	if !ms.leadership.beginStep() {
		return
	}
	defer ms.leadership.endStep()
	id, addr := s.id, raft.ServerAddress(s.id) // the roster knows where it is
	var f raft.IndexFuture
	switch s.kind {
	case stepAdd:
		ms.transport.Forget(s.id)
		f = ms.raft.AddNonvoter(id, addr, 0, ms.peerTimeout())
	case stepVote:
		f = ms.raft.AddVoter(id, addr, 0, ms.peerTimeout())
	case stepDemote:
		f = ms.raft.DemoteVoter(id, 0, ms.peerTimeout())
	case stepRemove:
		f = ms.raft.RemoveServer(id, 0, ms.peerTimeout())
	}
	ms.log.Info("changing what raft counts", "step", s.kind, "of", s.id)
	switch err := ms.await(ctx, f); {
	case err == nil && s.replaces != "":
		ms.measures.DisksReplaced.Add(1)
		ms.log.Warn("a member has come back with another disk, which replaces the one before", "member",
			raftnet.IDOf(s.id),
			"disk", raftnet.DiskOf(s.id), "before", raftnet.DiskOf(s.replaces))
	case err != nil && ctx.Err() == nil:
		ms.log.Info("raft did not take the step, looking again", "step", s.kind, "of", s.id, "err", err)
	}
	ms.state.membersMayDiffer()
}
