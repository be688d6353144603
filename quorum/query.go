package quorum

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

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

// setBackCheck is how often a member with a leader asks the others whether its disk was set back.
const setBackCheck = 10 * time.Second

// queryLoop queries the other members as long as this one is in no cluster, or stood alone and may
// not begin one, and when it has known no leader for some time.
func (r *Replica) queryLoop(ctx context.Context) {
	defer r.wg.Done()
	pause := queryPauseMin
	began := time.Now()
	var checked time.Time
	for ctx.Err() == nil {
		if birth := r.state() != peer.Used; birth || r.growing.Load() {
			if birth {
				r.tryBirth(ctx, began)
			} else {
				r.tryGrow(ctx, began)
			}
			sleep(ctx, pause)
			pause = min(2*pause, queryPauseMax)
			continue
		}
		if now := time.Now(); r.leaderlessFor() > 2*r.peerTimeout() || now.Sub(checked) >= setBackCheck {
			checked = now
			r.seekCluster(ctx)
		}
		sleep(ctx, r.peerTimeout())
	}
}

// seekCluster queries the others, now and then and when this member hears from no leader. The
// member ends if its disk was set back. It says if the others have removed it, or replaced its
// disk. Their leader learns from the query of this disk, and takes it in again if the one that
// replaced it is silent.
func (r *Replica) seekCluster(ctx context.Context) {
	var peers []MemberID
	for _, s := range r.servers() {
		if id := peer.IDOf(s.ID); id != r.cfg.ID && !slices.Contains(peers, id) {
			peers = append(peers, id)
		}
	}
	answers := r.helloAll(ctx, peers)
	if r.wasSetBack(answers) {
		return
	}
	r.yieldToLines(answers)
	if r.Leader() != NoMember {
		return
	}
	_, version := r.Members()
	r.warnLostMajority(answers)
	r.warnLeaderless(peers, answers)
	for _, h := range answers {
		switch {
		case h.Cluster != r.roster.Cluster():
		case h.Role == "leader" && h.Counted != 0 && h.Counted != r.cfg.Peers.Disk:
			r.trouble.Warn("replaced", "the disk of this member has been replaced, and it serves nobody: stop it",
				"member", r.cfg.ID, "disk", r.cfg.Peers.Disk, "by", h.Counted)
			return
		case h.Version > uint64(version) && !h.Member:
			r.trouble.Warn("removed", "this member has been removed from the cluster, and serves nobody: stop it, or add it again")
			return
		}
	}
}

// wasSetBack ends the member if it has acknowledged entries that its disk does not have: the disk
// was set back, by a snapshot of a virtual machine for example, or has lied.
func (r *Replica) wasSetBack(answers map[MemberID]peer.Hello) bool {
	last := r.raft.LastIndex()
	for id, h := range answers {
		if h.Cluster == r.roster.Cluster() && (h.SetBack || h.Acked > last) {
			r.disk.Stop(r.cfg.Stores.Retire(fmt.Sprintf("disk %v came back without entries that it had acknowledged, as member %d knows: "+
				"it was set back, or it has lost them", r.cfg.Peers.Disk, id)))
			return true
		}
	}
	return false
}

// warnLostMajority says if so many voters have lost their disks that no majority is left.
func (r *Replica) warnLostMajority(answers map[MemberID]peer.Hello) {
	voters := 0
	var lost []string
	for _, s := range r.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		h, answered := answers[peer.IDOf(s.ID)]
		if answered && h.Disk != peer.DiskOf(s.ID) && h.State != peer.Used {
			lost = append(lost, fmt.Sprint(peer.IDOf(s.ID)))
		}
	}
	if len(lost) > 0 && !NewMaj(voters).Quorum(voters-len(lost)) {
		r.trouble.Warn("majority", "so many voters have lost their disks that the rest is no majority, and nothing can be updated: bring one "+
			"of the disks back, or begin a new cluster with what is left (lockkeeper help recover)", "lost", strings.Join(lost, ","),
			"voters", voters)
	}
}

// leaderlessWarning is for how long a member knows no leader before it says so.
const leaderlessWarning = 5 * time.Second

// warnLeaderless says that this member knows no leader, and which members it reaches.
func (r *Replica) warnLeaderless(peers []MemberID, answers map[MemberID]peer.Hello) {
	since := r.leaderlessFor()
	if since < leaderlessWarning {
		return
	}
	var reached, silent []string
	for _, id := range peers {
		if _, ok := answers[id]; ok {
			reached = append(reached, fmt.Sprint(id))
		} else {
			silent = append(silent, fmt.Sprint(id))
		}
	}
	r.trouble.Warn("leaderless", "this member knows no leader and serves nobody: a majority of the voters has to reach each other",
		"for", since.Round(time.Second), "reached", strings.Join(reached, ","), "notReached", strings.Join(silent, ","), "voters", r.maj().Voters())
}

// leaderlessFor is for how long this member has known no leader; 0 if it knows one.
func (r *Replica) leaderlessFor() time.Duration {
	since, known := r.LeaderKnown()
	if known {
		return 0
	}
	return time.Since(since)
}
