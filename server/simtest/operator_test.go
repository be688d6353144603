package simtest

import (
	"context"
	"time"

	"lockkeeper/quorum"
)

// The faults of this file are what operators do, while things break.

// operatorPatience is how long an operator waits for an answer.
const operatorPatience = 20 * time.Second

// transfer has the leadership transferred to somebody who may not be reached: then the leader takes
// nothing for a while and goes on leading.
func (n *nemesis) transfer() func() {
	asked, to := n.any(), n.voter()
	undo := func() {}
	if n.rng.IntN(2) == 0 {
		undo = n.cut(n.leader(), to)
	}
	for range 2 + n.rng.IntN(7) {
		n.note("m%d is asked to have m%d lead", asked.id, to.id)
		if p := asked.running(); p != nil {
			ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
			err := p.Replica().TransferLeadership(ctx, quorum.MemberID(to.id), nil)
			cancel()
			n.note("transferred: %v", err)
		}
		time.Sleep(time.Duration(n.rng.IntN(700)) * time.Millisecond)
		asked, to = n.any(), n.voter()
	}
	return undo
}

// voter is any member that votes.
func (n *nemesis) voter() *member { return n.c.members[n.rng.IntN(n.c.shape.voters)] }
