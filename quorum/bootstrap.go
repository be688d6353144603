package quorum

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

// state is how far this member has come.
func (r *Replica) state() peer.State {
	switch {
	case len(r.servers()) == 0:
		return peer.Blank
	case r.raft.LastIndex() <= 1:
		return peer.Fresh
	}
	return peer.Used
}

// hello answers a query of another member.
func (r *Replica) hello() peer.Hello {
	_, version := r.Members()
	return peer.Hello{State: r.state(), Version: uint64(version),
		Report: Report{Role: r.Status().Role, ClientAddr: r.cfg.ClientAddr(), PeerAuth: r.cfg.PeerAuth, Details: r.cfg.Details()}}
}

// helloAll queries several members at once; those that do not answer are not in the result.
func (r *Replica) helloAll(ctx context.Context, ids []MemberID) map[MemberID]peer.Hello {
	ctx, cancel := context.WithTimeout(ctx, r.peerTimeout())
	defer cancel()
	return r.port.Hello(ctx, ids)
}

// RoleApart is the Role of a member that has no version of the protocol in common with this one.
const RoleApart = "incompatible"

// Reports queries how other members are. Those that do not answer are not in the result, unless
// their Role is RoleApart.
func (r *Replica) Reports(ctx context.Context, others []MemberID) map[MemberID]Report {
	reports := map[MemberID]Report{}
	answers := r.helloAll(ctx, others)
	for _, id := range others {
		h, ok := answers[id]
		newest, apart := r.port.VersionOf(id)
		h.Protocol = newest
		if !ok && apart {
			h.Role, ok = RoleApart, true
		}
		if ok {
			reports[id] = h.Report
		}
	}
	return reports
}

const (
	queryPauseMin = 10 * time.Millisecond
	queryPauseMax = 500 * time.Millisecond
)

// queryLoop queries the other members as long as this one is in no cluster, and when it has known
// no leader for some time.
func (r *Replica) queryLoop(ctx context.Context) {
	defer r.wg.Done()
	pause := queryPauseMin
	removed := false
	for ctx.Err() == nil {
		if r.state() == peer.Blank {
			r.tryBootstrap(ctx)
			sleep(ctx, pause)
			pause = min(2*pause, queryPauseMax)
			continue
		}
		if !removed && r.leaderlessFor() > 2*r.peerTimeout() {
			removed = r.wasRemoved(ctx)
		}
		sleep(ctx, r.peerTimeout())
	}
}

// tryBootstrap finds out whether this is the first start of the cluster, and if so writes its first
// configuration.
//
// Every member has the same list then, and none has a log. When a majority of the voters, this one
// among them, is in that state and answers, and no member that answers has come further, there is
// no cluster yet: two majorities have a member in common. Otherwise this member waits for the
// leader of the cluster that there is: it may be new in it, or have lost its disk.
func (r *Replica) tryBootstrap(ctx context.Context) {
	listed := peer.Sum(r.cfg.Members)
	var peers []MemberID
	for _, m := range r.cfg.Members {
		if m.ID != r.cfg.ID {
			peers = append(peers, m.ID)
		}
	}
	ready := 1
	answers := r.helloAll(ctx, peers)
	for id, h := range answers {
		switch {
		case h.State == peer.Used || h.Cluster != 0 && h.Cluster != listed:
			r.join(h.Cluster)
			return
		case h.Listed == listed && !r.cfg.member(id).Observer:
			ready++
		}
	}
	if c := r.roster.Cluster(); r.cfg.member(r.cfg.ID).Observer || !r.cfg.maj().Quorum(ready) || c != 0 && c != listed {
		return
	}
	if r.join(listed) != nil {
		return
	}
	r.transport.AllowVotes() // nothing has been committed that it could have lost
	if err := r.raft.BootstrapCluster(r.cfg.initialConfiguration()).Error(); err != nil && r.state() == peer.Blank {
		r.log.Error("first configuration not written", "err", err)
		return
	}
}

// join makes a cluster this member's.
func (r *Replica) join(cluster uint32) error {
	r.joining <- struct{}{}
	defer func() { <-r.joining }()
	if cluster == 0 || r.roster.Cluster() == cluster {
		return nil
	}
	if known := r.roster.Cluster(); known != 0 {
		r.log.Error("the other members belong to another cluster than this one's data", "theirs", cluster, "ours", known)
		return errOtherCluster
	}
	if err := r.cfg.Stores.setCluster(cluster); err != nil {
		r.log.Error("cannot record the cluster", "err", err)
		return err
	}
	r.roster.SetCluster(cluster)
	if cluster != peer.Sum(r.cfg.Members) {
		r.log.Info("the others are a cluster already: waiting to be made a member of it")
	}
	return nil
}

// wasRemoved reports whether the others have removed this member.
func (r *Replica) wasRemoved(ctx context.Context) bool {
	ms, version := r.Members()
	var peers []MemberID
	for _, m := range ms {
		if id := MemberID(m.ID); id != r.cfg.ID {
			peers = append(peers, id)
		}
	}
	for _, h := range r.helloAll(ctx, peers) {
		if h.Version > uint64(version) && !h.Member && h.Cluster == r.roster.Cluster() {
			r.log.Warn("this member has been removed from the cluster, and serves nobody: stop it, or add it again")
			return true
		}
	}
	return false
}

// leaderlessFor is for how long this member has known no leader; 0 if it knows one.
func (r *Replica) leaderlessFor() time.Duration {
	since, known := r.LeaderKnown()
	if known {
		return 0
	}
	return time.Since(since)
}

// notVotingKey is where the stable store keeps that the member may not vote yet.
var notVotingKey = []byte("lockkeeper/newcomer")

// withholdVotes keeps this member from voting if it has no log, or had none and has not caught up
// yet.
func (r *Replica) withholdVotes(known bool) error {
	stable := r.cfg.Stores.Stable
	mark, err := storedNumber(stable, notVotingKey)
	if err != nil {
		return err
	}
	if r.cfg.alone() || known && mark == 0 {
		return nil
	}
	if err := stable.SetUint64(notVotingKey, 1); err != nil {
		return err
	}
	r.transport.WithholdVotes(r.hasAll, func() error { return r.guard.SetUint64(notVotingKey, 0) })
	return nil
}

// hasAll reports whether this member has everything up to commit, which a leader of term knew to be
// committed. The last entry of that must be of the leader's own term, or it may not know yet what
// others have committed.
func (r *Replica) hasAll(commit, term uint64) bool {
	if r.raft.CommitIndex() < commit {
		return false
	}
	var entry raft.Log
	if err := r.cfg.Stores.Log.GetLog(commit, &entry); err == nil {
		return entry.Term == term
	}
	// It is no longer in the log, or never was: a snapshot has it.
	list, err := r.cfg.Stores.Snapshots.List()
	return err == nil && len(list) > 0 && list[0].Index >= commit && list[0].Term == term
}
