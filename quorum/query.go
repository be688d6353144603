package quorum

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
)

// setBackCheck is how often a member with a leader asks the others whether its disk was set back.
const setBackCheck = 10 * time.Second

// queryLoop queries the other members as long as this one is in no cluster, or stood alone and may
// not begin one, and when it has known no leader for some time.
func (ms *members) queryLoop(ctx context.Context) {
	pause := queryPauseMin
	began := time.Now()
	var checked time.Time
	for ctx.Err() == nil {
		if birth := ms.birthState() != peer.Used; birth || ms.growing.Load() {
			if birth {
				ms.tryBirth(ctx, began)
			} else {
				ms.tryGrow(ctx, began)
			}
			sleep(ctx, pause)
			pause = min(2*pause, queryPauseMax)
			continue
		}
		if now := time.Now(); ms.leadership.leaderlessFor() > 2*ms.peerTimeout() || now.Sub(checked) >= setBackCheck {
			checked = now
			ms.seekCluster(ctx)
		}
		sleep(ctx, ms.peerTimeout())
	}
}

// seekCluster queries the others, now and then and when this member hears from no leader. The
// member ends if its disk was set back. It says if the others have removed it, or replaced its
// disk. Their leader learns from the query of this disk, and takes it in again if the one that
// replaced it is silent. A leader that this disk does not know learns of it from the answer to its
// own query.
func (ms *members) seekCluster(ctx context.Context) {
	var peers []MemberID
	for _, s := range ms.Servers() {
		if id := raftnet.IDOf(s.ID); id != ms.cfg.ID && !slices.Contains(peers, id) {
			peers = append(peers, id)
		}
	}
	answers := ms.helloAll(ctx, peers)
	if ms.wasSetBack(answers) {
		return
	}
	ms.yieldToLines(answers)
	for id, h := range answers {
		ms.noteNewcomer(peer.Identity{Member: id, Disk: h.Disk, Cluster: h.Cluster})
	}
	if ms.leadership.Leader() != NoMember {
		return
	}
	_, version := ms.state.Members()
	ms.warnLostMajority(answers)
	ms.warnLeaderless(peers, answers)
	for _, h := range answers {
		newer := h.Version > uint64(version)
		switch {
		case h.Cluster != ms.roster.Cluster():
		case (h.Role == "leader" || newer) && h.Counted != 0 && h.Counted != ms.cfg.Peers.Disk:
			ms.trouble.Warn("replaced", "another disk has replaced the one of this member, and it serves nobody: stop "+
				"it, unless the other disk is lost",
				"member", ms.cfg.ID, "disk", ms.cfg.Peers.Disk, "by", h.Counted)
			return
		case newer && !h.Member:
			ms.trouble.Warn("removed", "this member has been removed from the cluster, and serves nobody: stop it, "+
				"or add it again")
			return
		}
	}
}

// wasSetBack ends the member if it has acknowledged entries that its disk does not have: the disk
// was set back, by a snapshot of a virtual machine for example, or has lied.
func (ms *members) wasSetBack(answers map[MemberID]peer.Hello) bool {
	last := ms.raft.LastIndex()
	for id, h := range answers {
		if h.Cluster == ms.roster.Cluster() && (h.SetBack || h.Acked > last) {
			ms.disk.Stop(ms.cfg.Stores.Retire(fmt.Sprintf("disk %v came back without entries that it had "+
				"acknowledged, as member %d knows: "+
				"it was set back, or it has lost them", ms.cfg.Peers.Disk, id)))
			return true
		}
	}
	return false
}

// warnLostMajority says if no majority of the voters still has its disks.
func (ms *members) warnLostMajority(answers map[MemberID]peer.Hello) {
	voters := 0
	var lost []string
	for _, s := range ms.Servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		h, answered := answers[raftnet.IDOf(s.ID)]
		if answered && h.Disk != raftnet.DiskOf(s.ID) && h.State != peer.Used {
			lost = append(lost, fmt.Sprint(raftnet.IDOf(s.ID)))
		}
	}
	if len(lost) > 0 && !NewMaj(voters).Quorum(voters-len(lost)) {
		ms.trouble.Warn("majority", "so many voters have lost their disks that the rest is no majority, and nothing "+
			"can be updated: bring one "+
			"of the disks back, or begin a new cluster with what is left (lockkeeper help recover)", "lost",
			strings.Join(lost, ","),
			"voters", voters)
	}
}

// leaderlessWarning is for how long a member knows no leader before it says so.
const leaderlessWarning = 5 * time.Second

// warnLeaderless says that this member knows no leader, and which members it reaches.
func (ms *members) warnLeaderless(peers []MemberID, answers map[MemberID]peer.Hello) {
	since := ms.leadership.leaderlessFor()
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
	ms.trouble.Warn("leaderless", "this member knows no leader and serves nobody: a majority of the voters has to "+
		"reach each other",
		"for", since.Round(time.Second), "reached", strings.Join(reached, ","), "notReached", strings.Join(silent, ","),
		"voters", ms.maj().Voters())
}
