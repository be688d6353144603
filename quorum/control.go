package quorum

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/raftnet"
)

// control follows changes of the leader, and starts and stops routes, streams and leases with them.
type control struct {
	*engine
	leadership *leadership
	state      *state
	members    *members
	batcher    *batcher
	outbox     *outbox
	forward    *forwarder
	doubt      <-chan struct{} // an entry was not, or perhaps not, committed
}

// controlLoop follows changes of the leader. It is the only one that starts and stops routes, and
// the only one that tells the listener of leadership.
func (c *control) controlLoop(ctx context.Context) {
	var rt *route
	defer func() {
		c.endLeadership()
		if rt != nil {
			rt.end()
		}
	}()
	// A heartbeat may have named the leader before anybody listened to raft, and then no event
	// follows.
	rt = c.reroute(ctx, rt)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.events:
		case leads := <-c.notify:
			switch {
			case !leads:
				c.endLeadership()
			case !c.members.growing.Load():
				c.beginLeadership(ctx)
			}
		case <-c.members.grown:
			if _, leads := c.leadership.leadingTerm(); !leads && c.raft.State() == raft.Leader {
				c.beginLeadership(ctx)
			}
		case <-c.doubt:
			c.resolveDoubt(ctx)
		}
		rt = c.reroute(ctx, rt)
	}
}

// reroute sends this member's commands to the present leader.
func (c *control) reroute(ctx context.Context, rt *route) *route {
	_, id := c.raft.LeaderWithID()
	changed := c.leadership.setLeader(raftnet.IDOf(id))
	leader := c.leadership.Leader()
	if !changed && (rt == nil) == (leader == NoMember) {
		return rt
	}
	if rt != nil {
		rt.end()
	}
	if leader == NoMember {
		c.log.Info("no leader")
		return nil
	}
	if leader != c.cfg.ID {
		c.log.Info("following", "leader", leader, "term", c.raft.CurrentTerm())
	}
	return c.forward.startRoute(ctx, leader)
}

// beginLeadership opens this member to the others, and once everything from before its term has
// been applied, tells the listener.
func (c *control) beginLeadership(ctx context.Context) {
	term := c.raft.CurrentTerm()
	c.leadership.begin(term)
	before := c.raft.LastIndex()
	barrier := c.raft.Barrier(0)
	endWith(barrier, c.down)
	if err := barrier.Error(); err != nil {
		return // leadership is lost already; notify will say so
	}
	if f, ok := barrier.(raft.IndexFuture); ok {
		c.transport.Settled(f.Index(), term)
	}
	if !c.cfg.alone() && c.stoodAlone() {
		if err := c.members.grow(); err != nil {
			c.log.Error("this member cannot begin a cluster with its data", "err", err)
			return
		}
	}
	c.log.Info("leading", "term", term, "voters", c.maj().Voters())
	c.state.lead()
	c.leadership.settle(term, before)
	c.members.complete(ctx)
}

func (c *control) endLeadership() {
	if !c.leadership.end() {
		return
	}
	c.log.Info("no longer leading")
	c.cfg.Listener.Follow()
	// The batcher's queue belongs to a leader. Each member's commands are still in its outbox, and
	// the other members' streams have just been closed.
	c.batcher.drop()
	c.outbox.rewind()
}

// doubtPause is the time before commands are sent again. Raft refuses entries for a moment when the
// leadership ends, while this member still counts as the leader.
const doubtPause = 10 * time.Millisecond

// resolveDoubt has the members send their commands again, because an entry was not, or perhaps not,
// committed.
func (c *control) resolveDoubt(ctx context.Context) {
	sleep(ctx, doubtPause)
	c.leadership.reopen()
	c.outbox.rewind()
}
