package quorum

import (
	"math"
	"runtime/metrics"
	"testing"
)

// wakeUps is about how often goroutines of the process were made runnable and then ran. The runtime
// times one of eight such moments of each goroutine.
func wakeUps() uint64 {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	n := uint64(0)
	for _, c := range sample[0].Value.Float64Histogram().Counts {
		n += c
	}
	return 8 * n
}

// A write of a client alone wakes about 50 goroutines on three members and on the simulated network
// between them; up to 70 in some runs, so it is tried again. A change that adds hand-overs to a
// write fails here, so it is a decision.
func TestWakeUpsOfAWrite(t *testing.T) {
	const attempts, writes, limit = 20, 2000, 60
	for name, away := range map[string]int{"at the leader": 0, "at a follower": 1} {
		t.Run(name, func(t *testing.T) {
			least := math.Inf(1)
			for n := 0; n < attempts && least > limit; n++ {
				inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
					l := c.leader()
					c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
					at := (l + away) % 3
					c.recs[at].result(t, c.propose(at, createSession(1)))
					before := wakeUps()
					for n := range uint64(writes) {
						c.recs[at].result(t, c.propose(at, sequential(1, n+1, "/n-")))
					}
					least = min(least, float64(wakeUps()-before)/writes)
				})
			}
			t.Logf("%.1f wake-ups for a write", least)
			if least > limit {
				t.Errorf("%.1f wake-ups for a write, want %d at most", least, limit)
			}
			if least < limit/2 {
				t.Errorf("%.1f wake-ups for a write: the runtime does not count them, or the limit is too high", least)
			}
		})
	}
}
