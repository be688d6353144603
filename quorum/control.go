package quorum

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// controlLoop follows changes of the leader. It is the only one that starts and stops routes, and
// the only one that tells the listener of leadership.
func (r *Replica) controlLoop(ctx context.Context) {
	defer r.wg.Done()
	var rt *route
	defer func() {
		r.endLeadership()
		if rt != nil {
			rt.stop()
		}
	}()
	// A heartbeat may have named the leader before anybody listened to raft, and then no event
	// follows.
	rt = r.reroute(ctx, rt)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.events:
		case leads := <-r.notify:
			switch {
			case !leads:
				r.endLeadership()
			case !r.growing.Load():
				r.beginLeadership(ctx)
			}
		case <-r.grown:
			if _, leads := r.leadingTerm(); !leads && r.raft.State() == raft.Leader {
				r.beginLeadership(ctx)
			}
		case <-r.doubt:
			r.resolveDoubt(ctx)
		}
		rt = r.reroute(ctx, rt)
	}
}

// reroute sends this member's commands to the present leader.
func (r *Replica) reroute(ctx context.Context, rt *route) *route {
	_, id := r.raft.LeaderWithID()
	changed := r.setLeader(peer.IDOf(id))
	leader := r.Leader()
	if !changed && (rt == nil) == (leader == NoMember) {
		return rt
	}
	if rt != nil {
		rt.stop()
	}
	if leader == NoMember {
		r.log.Info("no leader")
		return nil
	}
	if leader != r.cfg.ID {
		r.log.Info("following", "leader", leader, "term", r.raft.CurrentTerm())
	}
	return r.startRoute(ctx, leader)
}

// beginLeadership opens this member to the others, and once everything from before its term has
// been applied, tells the listener.
func (r *Replica) beginLeadership(ctx context.Context) {
	term := r.raft.CurrentTerm()
	r.stateMu.Lock()
	r.term = term
	r.streams, r.endStreams = context.WithCancel(context.Background())
	r.stateMu.Unlock()
	before := r.raft.LastIndex()
	barrier := r.raft.Barrier(0)
	endWith(barrier, r.batcher.down)
	if err := barrier.Error(); err != nil {
		return // leadership is lost already; notify will say so
	}
	if f, ok := barrier.(raft.IndexFuture); ok {
		r.transport.Settled(f.Index(), term)
	}
	if !r.cfg.alone() && r.stoodAlone() {
		if err := r.grow(); err != nil {
			r.log.Error("this member cannot begin a cluster with its data", "err", err)
			return
		}
	}
	r.log.Info("leading", "term", term, "voters", r.maj().Voters())
	r.mu.Lock()
	r.cfg.Listener.Lead(r.store)
	propose := r.membersToSet()
	unnamed := r.store.Cluster() == 0
	if r.imported {
		// The newest snapshot may be the imported one, which only the founder has written again
		// with the configuration: nobody takes it without.
		r.compaction.retry()
		r.fullLocked()
	}
	r.mu.Unlock()
	r.stateMu.Lock()
	if r.term == term {
		r.settled, r.settledIndex = term, before
	}
	r.stateMu.Unlock()
	if unnamed {
		// The next leader does the same if it is lost with the leadership.
		_ = r.ProposeOnce(ctx, &znode.Command{Body: &znode.NameCluster{ID: r.roster.Cluster()}})
	}
	if propose {
		// Lost with the leadership at worst, and then the next leader does the same.
		_ = r.ProposeOnce(ctx, &znode.Command{Body: &znode.SetMembers{Text: r.cfg.ConfigText}})
	}
	r.membersMayDiffer()
}

// membersToSet reports whether this leader is to propose the members for the state: it has none
// yet, or their version is missing, or they have moved, or /zookeeper/config differs from them.
func (r *Replica) membersToSet() bool {
	if r.cfg.ConfigText == "" {
		// A standalone member has none, and what a super user has written there stays, as in
		// ZooKeeper.
		return false
	}
	members, version := r.store.Members()
	config, _, _ := r.store.Get("/zookeeper/config", []znode.Identity{{Scheme: "super"}})
	reconfig := r.cfg.Flags&znode.Reconfig != 0
	return members == nil || reconfig && version == 0 || string(config) != znode.ConfigText(members, version) ||
		!reconfig && znode.ConfigText(members, 0) != r.cfg.ConfigText
}

func (r *Replica) endLeadership() {
	r.stateMu.Lock()
	led := r.term != 0
	r.term, r.settled = 0, 0
	if r.endStreams != nil {
		r.endStreams()
	}
	r.stateMu.Unlock()
	if !led {
		return
	}
	r.log.Info("no longer leading")
	r.cfg.Listener.Follow()
	// The batcher's queue belongs to a leader. This member's own commands are still in its outbox;
	// those of other members are in their outboxes, and their streams have just been closed.
	r.batcher.drop()
	r.outbox.rewind()
}

// inDoubt is called when an entry was not, or perhaps not, committed. The members whose outboxes
// hold its commands must send them again.
func (r *Replica) inDoubt() { signal(r.doubt) }

// doubtPause is the time before commands are sent again. Raft refuses entries for a moment when the
// leadership ends, while this member still counts as the leader.
const doubtPause = 10 * time.Millisecond

func (r *Replica) resolveDoubt(ctx context.Context) {
	sleep(ctx, doubtPause)
	r.stateMu.Lock()
	if r.term != 0 {
		r.endStreams()
		r.streams, r.endStreams = context.WithCancel(context.Background())
	}
	r.stateMu.Unlock()
	r.outbox.rewind()
}
