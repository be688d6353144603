package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

// A member that has just started, or was cut off, is behind: it has to get and apply the entries
// that were committed meanwhile. It counts as caught up when it has applied everything up to a
// commit index that a leader has sent it since it started. Each AppendEntries request but
// heartbeats carries the leader's commit index, also one that the follower refuses because it lacks
// the entries before it.
//
// A new leader may know of less than is committed until an entry of its own term is (Raft, section
// 5.4.2). So its commit indexes count from the first one on that belongs to such an entry.
const (
	// catchUpStep is how often a member that has not caught up since its start looks.
	catchUpStep = 10 * time.Millisecond
	// behindLimit is for how long a member that has caught up may be behind before it is not ready:
	// an entry may take a moment to apply.
	behindLimit = 5 * time.Second
)

// catchUp is the progress of this member with the entries that leaders have sent it.
type catchUp struct {
	*engine
	leadership *leadership
	state      *state

	// joined is closed when this member has caught up for the first time since its start.
	joined chan struct{}

	mu     sync.Mutex
	newest heardCommit // that a leader has sent
	target heardCommit // to be reached next
	proved uint64      // the newest term known to have a committed entry
	// syncedAt is a moment, by Config.Clock, such that everything is applied that a leader had said
	// by then to be committed; zero: there is none.
	syncedAt time.Time
	refusal  snapshotRefusal
}

func newCatchUp(e *engine, l *leadership, s *state) *catchUp {
	return &catchUp{engine: e, leadership: l, state: s, joined: make(chan struct{})}
}

// heardCommit is the commit index in a request of a leader.
type heardCommit struct {
	term, index uint64
	at          time.Time // when it came, by Config.Clock
	// The entry before the request's first one: most often the one at index.
	prevIndex, prevTerm uint64
}

// snapshotRefusal is why this member could not take the newest snapshot; zero: there was none, or
// it could.
type snapshotRefusal struct {
	err   error
	since time.Time // the first of its kind, by time.Now
}

// noteCommit is told of each AppendEntries request that arrives (raftnet.Local.Heard).
func (c *catchUp) noteCommit(q *raft.AppendEntriesRequest) {
	if q.LeaderCommitIndex == 0 {
		return
	}
	now := c.cfg.Clock.Recent()
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.Term >= c.newest.term {
		c.newest = heardCommit{term: q.Term, index: q.LeaderCommitIndex, at: now, prevIndex: q.PrevLogEntry,
			prevTerm: q.PrevLogTerm}
	}
}

// snapshotTaken is told whether a snapshot of a leader could be installed.
func (c *catchUp) snapshotTaken(err error) {
	c.mu.Lock()
	switch {
	case err == nil:
		c.refusal = snapshotRefusal{}
	case c.refusal.err == nil:
		c.refusal = snapshotRefusal{err, time.Now()}
	default:
		c.refusal.err = err
	}
	since := c.refusal.since
	c.mu.Unlock()
	if err != nil {
		c.measures.SnapshotsNotTaken.Add(1)
		c.trouble.Warn("snapshot refused", "this member is behind and cannot take the snapshot that the leader sends: "+
			"it does not serve clients, and does not count for the quorum of updates, until it can",
			"err", err, "for", time.Since(since).Round(time.Second), "leader", c.leadership.Leader())
	}
}

// snapshotSent is told whether another member has taken this leader's snapshot.
func (c *catchUp) snapshotSent(to MemberID, err error) {
	if err != nil {
		c.measures.SnapshotsNotDelivered.Add(1)
		c.trouble.Warn(fmt.Sprintf("snapshot to %d", to), "a member that is behind does not take the snapshot that "+
			"this leader sends: "+
			"no other voter may fail before it has caught up", "other", to, "err", err)
	}
}

// catchUpLoop follows whether this member is caught up.
func (c *catchUp) catchUpLoop(ctx context.Context) {
	joined := false
	for ctx.Err() == nil {
		if c.lookCaughtUp(); c.Joined() && !joined {
			joined = true
			c.log.Info("serving: this member has caught up with the leader", "leader", c.leadership.Leader(), "index",
				c.state.reached())
		}
		step := c.cfg.heartbeatTimeout() / 4
		if !c.Joined() {
			step = catchUpStep
		}
		sleep(ctx, step)
	}
}

// lookCaughtUp brings catchUp.syncedAt up to date and returns it, with the newest commit index that
// a leader has sent.
func (c *catchUp) lookCaughtUp() (syncedAt time.Time, newest heardCommit) {
	c.mu.Lock()
	newest = c.newest
	target, proved := c.target, c.proved >= newest.term
	c.mu.Unlock()
	var at time.Time
	leads := c.leadership.Leader() == c.cfg.ID // it has applied everything from before its term
	proved = !leads && newest.term != 0 && (proved || c.isOfTerm(newest))
	switch {
	case leads:
		at = c.cfg.Clock.Now()
	case proved && c.state.hasApplied(newest.index):
		at = newest.at
	case target.index != 0 && c.state.hasApplied(target.index):
		at = target.at
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if proved {
		c.proved = max(c.proved, newest.term)
		if !at.IsZero() || target.index == 0 {
			c.target = newest
		}
	}
	if at.After(c.syncedAt) {
		c.syncedAt = at
	}
	if !c.syncedAt.IsZero() && !c.Joined() {
		close(c.joined)
	}
	return c.syncedAt, newest
}

// isOfTerm reports whether the entry at a commit index is of the term of the leader that sent it.
func (c *catchUp) isOfTerm(h heardCommit) bool {
	if h.prevIndex == h.index {
		return h.prevTerm == h.term
	}
	term, ok := c.entryTerm(h.index)
	return ok && term == h.term
}

// Joined is Replica.Joined.
func (c *catchUp) Joined() bool {
	select {
	case <-c.joined:
		return true
	default:
		return false
	}
}

// Ready is Replica.Ready.
func (c *catchUp) Ready() (ok bool, why string) {
	if c.leadership.Leader() == NoMember {
		return false, "it knows no leader"
	}
	syncedAt, newest := c.lookCaughtUp()
	if !syncedAt.IsZero() && c.Joined() && c.cfg.Clock.Now().Sub(syncedAt) < behindLimit {
		return true, ""
	}
	c.mu.Lock()
	refusal := c.refusal
	c.mu.Unlock()
	applied := c.state.reached()
	switch {
	case refusal.err != nil:
		why = fmt.Sprintf("it is behind, and cannot take the leader's snapshot: %v", refusal.err)
	case newest.index == 0:
		why = "it has not got from the leader yet what it missed"
	case applied < newest.index:
		why = fmt.Sprintf("it is behind: it has applied entry %d of %d", applied, newest.index)
	default:
		why = fmt.Sprintf("it has got nothing but heartbeats from the leader for %v",
			c.cfg.Clock.Now().Sub(newest.at).Round(time.Second))
	}
	return false, why[:min(len(why), maxWhy)]
}

// maxWhy bounds the bytes of Ready's reason.
const maxWhy = 160

// readiness is Ready as it is reported.
func (c *catchUp) readiness() (peer.Readiness, string) {
	ok, why := c.Ready()
	if ok {
		return peer.IsReady, ""
	}
	return peer.IsNotReady, why
}
