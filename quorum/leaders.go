package quorum

import (
	"fmt"
	"slices"
	"time"
)

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

// leaderChanges is how many changes are kept.
const leaderChanges = 20

// leaderLog keeps the last changes of the leader. stateMu guards it.
type leaderLog struct {
	changes []LeaderChange
	last    MemberID
	lostAt  time.Time
	cause   string
	detail  string
	ended   MemberID // whose process is known to have ended
	moving  string   // why this member transfers its leadership; empty if it does not
}

// setLocked is called when the leader is another one, or unknown.
func (l *leaderLog) setLocked(r *Replica, before, id MemberID) {
	if r.raft == nil { // it is being opened
		l.last, l.ended = NoMember, NoMember
		return
	}
	now := time.Now()
	if id == NoMember {
		if before != NoMember {
			l.last, l.lostAt = before, now
			l.cause, l.detail = r.causeLocked(before)
		}
		return
	}
	c := LeaderChange{At: r.cfg.Now(), Leader: id, seen: now, Before: l.last, Cause: l.cause, Detail: l.detail, Term: r.raft.CurrentTerm()}
	switch {
	case before != NoMember: // without a time in between
		c.Before = before
		c.Cause, c.Detail = CauseTransfer, "another member leads, and the leader was heard of until then"
	case l.last == NoMember:
		c.Cause = CauseStart
	case l.ended == l.last:
		c.Cause, c.Detail = CauseEnded, "nothing listens at the addresses of the leader any more"
	}
	if before == NoMember && l.last != NoMember {
		c.Gap = now.Sub(l.lostAt)
	}
	l.last, l.cause, l.detail, l.ended, l.moving = id, "", "", NoMember, ""
	if c.Before == c.Leader && c.Cause == CauseTransfer {
		c.Cause, c.Detail = CauseLost, "it leads again, in a new term"
	}
	l.changes = append(l.changes, c)
	if len(l.changes) > leaderChanges {
		l.changes = slices.Clone(l.changes[1:])
	}
}

// causeLocked finds out why there is no leader any more.
func (r *Replica) causeLocked(before MemberID) (cause, detail string) {
	silent := time.Since(r.raft.LastContact())
	switch {
	case before == r.cfg.ID && r.leaders.moving != "":
		return CauseTransfer, r.leaders.moving
	case before == r.cfg.ID:
		return CauseLost, "this member did not hear of a majority, or could not write its log"
	case r.leaders.ended == before:
		return CauseEnded, "nothing listens at the addresses of the leader any more"
	case silent >= r.cfg.heartbeatTimeout()*9/10:
		return CauseTimeout, fmt.Sprintf("nothing was heard of the leader for %v", silent.Round(time.Millisecond))
	}
	return CauseTransfer, "another member stood for election, and the leader was heard of until then"
}

// leaderEnded records that the process of a leader has ended.
func (r *Replica) leaderEnded(id MemberID) {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	r.leaders.ended = id
}

// leaderMoves records why this member transfers its leadership.
func (r *Replica) leaderMoves(why string) {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	r.leaders.moving = why
}

// LeaderChanges returns the last changes of the leader that this member saw, the newest first.
func (r *Replica) LeaderChanges() []LeaderChange {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	list := slices.Clone(r.leaders.changes)
	slices.Reverse(list)
	return list
}
