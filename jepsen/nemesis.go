package jepsen

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// KillLeader kills the leader with SIGKILL, again and again for at least d,
// while the contest goes on: kill, wait until every contender has got its lock
// again, restart, wait until the member serves and every contender has got its
// lock once more. It waits for what it can see and never for time to pass; a
// wait that takes longer than patience is an error.
func KillLeader(ctx context.Context, cluster *Cluster, contest *Contest, d, patience time.Duration) (kills int, err error) {
	end := time.Now().Add(d)
	for kills == 0 || time.Now().Before(end) {
		if err := killLeaderOnce(ctx, cluster, contest, patience); err != nil {
			return kills, fmt.Errorf("jepsen: kill %d: %w", kills+1, err)
		}
		kills++
	}
	return kills, nil
}

func killLeaderOnce(ctx context.Context, cluster *Cluster, contest *Contest, patience time.Duration) error {
	step, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	leader, err := cluster.AwaitLeader(step)
	if err != nil {
		return err
	}
	history := contest.History
	from := history.Len()
	// Recorded first: what the kill causes must not stand before it.
	history.Add(Op{Kind: Info, F: FKill, Member: leader.ClientAddr, Note: leader.String()})
	if err := leader.Kill(); err != nil {
		return err
	}
	if err := contest.AwaitRounds(step, from, 1); err != nil {
		return err
	}

	step, cancel = context.WithTimeout(ctx, patience)
	defer cancel()
	if err := leader.Restart(step); err != nil {
		return err
	}
	from = history.Len()
	history.Add(Op{Kind: Info, F: FRestart, Member: leader.ClientAddr, Note: leader.String()})
	return contest.AwaitRounds(step, from, 1)
}

// KillReport is what CheckKills found in a history.
type KillReport struct {
	Kills int
	// Bystanders is how many clients were connected to another member than the
	// one that was killed, added up over all kills.
	Bystanders int
	// Dropped are disconnections that had no reason: the member that the
	// client was connected to had not been killed.
	Dropped []string
	// Expired are sessions that ended although their client was alive.
	Expired []string
	// Handoffs are, for each kill and each lock that somebody waited for, the
	// times from the kill until the lock was got by somebody.
	Handoffs []Handoff
	// Waits are, for each kill, the times from the kill until each contender
	// that was waiting at that moment got its lock.
	Waits []Handoff
}

// A Handoff is how long it took after a kill until a lock was got.
type Handoff struct {
	Kill int           // from 1
	Lock string        // path
	Who  string        // the contender that got it
	Took time.Duration // from the kill; negative: never
}

// never is Handoff.Took for a lock that nobody got before the history ended.
const never = time.Duration(-1)

// Slowest is the handoff that took longest; one that never came is the slowest
// of all. ok is false if there is none.
func Slowest(handoffs []Handoff) (slowest Handoff, ok bool) {
	for _, h := range handoffs {
		if !ok || h.Took == never || (slowest.Took != never && h.Took > slowest.Took) {
			slowest, ok = h, true
		}
	}
	return slowest, ok
}

// Quantiles are the shortest, the median, the 90th percentile and the longest
// of the handoffs, as text. One that never came counts as the longest.
func Quantiles(handoffs []Handoff) string {
	if len(handoffs) == 0 {
		return "none"
	}
	took := make([]time.Duration, len(handoffs))
	for i, h := range handoffs {
		if took[i] = h.Took; h.Took == never {
			took[i] = math.MaxInt64
		}
	}
	slices.Sort(took)
	at := func(q float64) string {
		d := took[int(q*float64(len(took)-1))]
		if d == math.MaxInt64 {
			return "never"
		}
		return d.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("min %s, median %s, p90 %s, max %s of %d", at(0), at(0.5), at(0.9), at(1), len(took))
}

// CheckKills goes through a history with kills of members.
func CheckKills(ops []Op) *KillReport {
	c := &killChecker{
		connected: make(map[string]Op),
		killed:    make(map[string]time.Duration),
		waiting:   make(map[string]Op),
	}
	for i, op := range ops {
		c.see(op, ops[i+1:])
	}
	return &c.report
}

type killChecker struct {
	report    KillReport
	connected map[string]Op            // by worker: its connection
	killed    map[string]time.Duration // by member: when it was killed last
	waiting   map[string]Op            // by contender: its invoked acquire
}

func (c *killChecker) see(op Op, later []Op) {
	switch op.F {
	case FAcquire:
		if op.Kind == Invoke {
			c.waiting[op.Contender] = op
		} else {
			delete(c.waiting, op.Contender)
		}
	case FConnected:
		c.connected[op.Worker] = op
	case FSuspended:
		at, ok := c.connected[op.Worker]
		killed, wasKilled := c.killed[at.Member]
		// A kill before the client connected is no excuse: the member had been
		// restarted.
		if ok && (!wasKilled || killed < at.Time) {
			c.report.Dropped = append(c.report.Dropped, fmt.Sprintf(
				"%.3fs: %s lost its connection to %s, which was not killed", op.Time.Seconds(), op.Worker, at.Member))
		}
		delete(c.connected, op.Worker)
	case FExpired:
		c.report.Expired = append(c.report.Expired, fmt.Sprintf("%.3fs: %s", op.Time.Seconds(), op.Worker))
	case FKill:
		c.report.Kills++
		for _, at := range c.connected {
			if at.Member != op.Member {
				c.report.Bystanders++
			}
		}
		c.killed[op.Member] = op.Time
		c.handoffs(op, later)
	}
}

// handoffs measures what followed one kill.
func (c *killChecker) handoffs(kill Op, later []Op) {
	locks := make(map[string]bool)
	waiting := make(map[string]Op, len(c.waiting))
	for who, op := range c.waiting {
		waiting[who] = op
		locks[op.Lock] = true
	}
	for _, op := range later {
		if op.F != FAcquire || op.Kind != OK {
			continue
		}
		h := Handoff{Kill: c.report.Kills, Lock: op.Lock, Who: op.Contender, Took: op.Time - kill.Time}
		if locks[op.Lock] {
			c.report.Handoffs = append(c.report.Handoffs, h)
			delete(locks, op.Lock)
		}
		if _, ok := waiting[op.Contender]; ok {
			c.report.Waits = append(c.report.Waits, h)
			delete(waiting, op.Contender)
		}
		if len(waiting) == 0 {
			return
		}
	}
	for who, op := range waiting {
		c.report.Waits = append(c.report.Waits, Handoff{Kill: c.report.Kills, Lock: op.Lock, Who: who, Took: never})
	}
	for lock := range locks {
		c.report.Handoffs = append(c.report.Handoffs, Handoff{Kill: c.report.Kills, Lock: lock, Took: never})
	}
}
