package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
)

// A leader with a disk that hangs keeps its followers: heartbeats do not wait for the disk. Its
// entries are not committed meanwhile, because the followers' answers are held back until they are
// durable here (type backlog). So the leader hands over: when a write to its log has been under way
// for an election timeout, and that write is the only thing that the cluster waits for, the leader
// has another voter stand for election (docs/decisions/011-parallel-disk-write.md).
//
// "The only thing" means: voters that are a majority without this member have the entries of that
// write on their disks, each stored its newest entries within half an election timeout, and each
// has answered a heartbeat of this term within the last half. Where all disks are slow no voter is
// prompt, and the leadership stays. Where disks are slow in turns, the leader waits for twice as
// long for each change of leader that it saw in the last minute (handOverWait).
//
// Nothing of this needs the main loop of the library, which may be blocked by the same disk, on the
// leader before and after the election: the others elect and commit without it.

// handOverMemory is for how long a change of leader makes the next hand-over wait for longer.
const handOverMemory = time.Minute

// handOverDoublings bounds how often the wait is doubled.
const handOverDoublings = 4

// diskLoop watches the writes to the log of this member.
func (r *Replica) diskLoop(ctx context.Context) {
	defer r.wg.Done()
	step := time.NewTicker(r.cfg.heartbeatTimeout() / 4)
	defer step.Stop()
	last := NoMember // the voter that was tried last
	for {
		select {
		case <-ctx.Done():
			return
		case <-step.C:
		}
		w := r.disk.Writing()
		if w == nil {
			last = NoMember
			continue
		}
		took := time.Since(w.Since)
		if limit := r.cfg.SlowFsync; limit > 0 && took >= max(limit, r.cfg.heartbeatTimeout()) {
			r.trouble.Warn("hang", "the disk of the log hangs: a write to it has not returned, and this member stores nothing "+
				"until it does", "for", took.Round(time.Millisecond), "index", w.Last)
		}
		if took >= r.handOverWait() {
			last = r.handOver(w, last)
		}
	}
}

// handOverWait is how long a write to the log may take before this leader hands over.
func (r *Replica) handOverWait() time.Duration {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	lately := 0
	for _, c := range r.leaders.changes {
		if time.Since(c.seen) < handOverMemory {
			lately++
		}
	}
	return r.cfg.heartbeatTimeout() << min(max(lately-1, 0), handOverDoublings)
}

// handOver has another voter elected, if this member leads and the cluster waits for this write
// alone. It returns the voter that it has tried; if it tries none, last.
func (r *Replica) handOver(w *store.Write, last MemberID) MemberID {
	leader, epoch := r.leaderEpoch()
	if leader != r.cfg.ID || mutant.On(mutant.HangingLeaderStays) {
		return last
	}
	target, ok := r.promptVoter(w.Last, last)
	if !ok || !r.transferring.CompareAndSwap(false, true) {
		return last
	}
	defer r.transferring.Store(false)
	to := peer.IDOf(target.ID)
	r.measures.HandOvers.Add(1)
	r.log.Warn("the disk of this leader hangs, and the other voters wait for it alone: handing the leadership over",
		"to", to, "hangs", time.Since(w.Since).Round(time.Millisecond), "index", w.Last)
	r.leaderMoves(fmt.Sprintf("a write to the log of this member did not return, and it handed the leadership to member %d", to))
	ctx, cancel := context.WithTimeout(epoch, r.peerTimeout())
	defer cancel()
	defer r.batcher.hold()()
	if err := r.electTarget(ctx, target); err != nil && epoch.Err() == nil {
		r.log.Info("leadership not handed over", "to", to, "err", err)
	}
	return to
}

// promptVoter returns the voter that is to lead instead of this member: one that has most of the
// log, and another one than last if there is one. False: the voters that are prompt and have the
// log up to index are no majority without this member.
func (r *Replica) promptVoter(index uint64, last MemberID) (target raft.Server, ok bool) {
	half, now := r.cfg.heartbeatTimeout()/2, r.cfg.Clock.Now()
	voters, prompt := 0, 0
	var most uint64
	for _, s := range r.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		id := peer.IDOf(s.ID)
		matched, heard := r.transport.Progress(s.ID)
		if id == r.cfg.ID || matched < index || r.transport.Took(s.ID) > half || now.Sub(heard) > half {
			continue
		}
		prompt++
		if target.ID == "" || id != last && (matched > most || peer.IDOf(target.ID) == last) {
			target, most = s, matched
		}
	}
	return target, voters > 0 && NewMaj(voters).Quorum(prompt)
}
