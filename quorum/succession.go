package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

// When the process of a leader ends, its connections end with it, and nobody listens at its address
// any more. The library (UPSTREAM.md, 9) looks at neither: its followers wait for a heartbeat
// timeout. Here a voter whose forward stream to the leader has ended tries to connect until that is
// refused, for a process that dies closes its sockets one by one; and then stands for election, as
// a member does that the leader transfers its leadership to (Raft's thesis, 3.10).
//
// Elections are safe whenever they are held; what this could cost is a needless election, if a
// leader were taken for dead that is not. A refusal comes from the leader's machine, or from a
// firewall that answers for it. In the second case one voter that is cut off takes the leadership,
// once: a stream must have been accepted by the leader of the term before its end counts. Leases
// are not touched: what a leader confirms counts from when a quorum still followed it
// (peer.Transport.ProvenAt), and the next leader begins anew.

// successionStep is how long a voter waits for each voter with a smaller number than its own before
// it stands, so that votes do not split. An election takes a few fsyncs and as many messages. Where
// that takes longer, a voter that has voted for another does not stand, and the library's timeouts
// remain if that election fails; one that has refused its vote, because its own log is newer,
// stands.
const successionStep = 50 * time.Millisecond

// succeed stands for election in place of a leader whose process has ended, and which this member
// followed in term. ctx ends with the replica.
func (r *Replica) succeed(ctx context.Context, dead MemberID, term uint64) {
	rank := r.successor(dead)
	if rank < 0 {
		return
	}
	sleep(ctx, time.Duration(rank)*successionStep)
	voted, pending := r.transport.Votes()
	for ; pending && ctx.Err() == nil; voted, pending = r.transport.Votes() {
		sleep(ctx, successionStep/10)
	}
	if voted > term {
		return
	}
	_, id := r.raft.LeaderWithID()
	if leader := peer.IDOf(id); ctx.Err() != nil || leader != NoMember && leader != dead || r.raft.State() != raft.Follower {
		return
	}
	r.log.Info("the leader's process has ended, standing for election", "leader", dead)
	r.transport.Stand(ctx)
}

// successor returns how many voters come before this member when the leader is to be replaced; less
// than 0 if it is not to stand.
func (r *Replica) successor(dead MemberID) int {
	var voters []MemberID
	for _, s := range r.servers() {
		if id := peer.IDOf(s.ID); s.Suffrage == raft.Voter && id != dead {
			voters = append(voters, id)
		}
	}
	slices.Sort(voters)
	return slices.Index(voters, r.cfg.ID)
}

// processEnded reports whether nothing listens at the addresses of a member any more.
func (r *Replica) processEnded(ctx context.Context, id MemberID) bool {
	ctx, cancel := context.WithTimeout(ctx, successionStep)
	defer cancel()
	return r.port.Refuses(ctx, id)
}
