package simtest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/znode"
)

// Scenarios that measure the time from the end of a library's belief to the end of its session,
// when the last news of its member was out of date. They plant the bug of the command line, as the
// random simulations do: go run ./cmd/jepsen sim -mutations.

// The member of a client gets its last confirmation late, by up to the time of an answer.
func TestMarginWhenConfirmationsAreLate(t *testing.T) {
	testMargin(t, func(c *cluster, rng *rand.Rand) *member {
		l := c.awaitLeader()
		return c.members[(int(l.id)+rng.IntN(2))%len(c.members)]
	}, func(c *cluster, m *member, rng *rand.Rand) {
		l := c.awaitLeader()
		defer c.busy(l)()
		late := 300*time.Millisecond + time.Duration(rng.Int64N(int64(600*time.Millisecond)))
		c.confirmedLate(m, l, late, time.Duration(rng.Int64N(int64(late))))
	})
}

// The member of a client leads, and learns late that others follow it.
func TestMarginWhenFollowersAreLate(t *testing.T) {
	testMargin(t, func(c *cluster, _ *rand.Rand) *member { return c.awaitLeader() }, func(c *cluster, m *member, rng *rand.Rand) {
		defer c.busy(m)()
		c.followedLate(m, 500*time.Millisecond+time.Duration(rng.Int64N(int64(time.Second))), 0)
	})
}

const (
	marginHost = "10.0.3.2"
	marginLook = 5 * time.Millisecond // how exactly is measured
)

// testMargin has a client of one member, which at is to choose, read all the time; siege has that
// member learn something late and cuts it off.
func testMargin(t *testing.T, at func(*cluster, *rand.Rand) *member, siege func(*cluster, *member, *rand.Rand)) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	for _, timeout := range []time.Duration{1500 * time.Millisecond, 3750 * time.Millisecond} {
		t.Run(fmt.Sprint(timeout), func(t *testing.T) {
			least, most := time.Hour, -time.Hour
			synctest.Test(t, func(t *testing.T) {
				// The shortest tick: a leader adds half of it to each lease, which hides smaller
				// delays.
				c := newClusterOf(&recorder{T: t}, shape{voters: 3, tick: 500 * time.Millisecond, snapCount: 300, trailing: 10_000, rest: 1}, 1, newJournal(t, ""))
				c.net.Host(marginHost)
				rng := rand.New(rand.NewPCG(1, uint64(timeout)))
				for range 2 * directedRounds {
					margin := c.margin(at(c, rng), timeout, rng, siege)
					least, most = min(least, margin), max(most, margin)
				}
				c.shutdown()
			})
			if least < 0 {
				t.Errorf("a library believed that it was connected for %v longer than its session lasted", -least)
			}
			t.Logf("%d times, the library knew %v to %v before the end of the session", 2*directedRounds, least, most)
		})
	}
}

// margin is how long before its session ended a client's library said that it was not connected any
// more.
func (c *cluster) margin(m *member, timeout time.Duration, rng *rand.Rand, siege func(*cluster, *member, *rand.Rand)) time.Duration {
	c.marginTimeout = timeout
	b := c.believer(marginHost, m, timeout)
	conn := b.conn
	defer b.close()
	defer c.usualLatency()
	defer c.net.HealAll()
	time.Sleep(2*timeout + time.Duration(rng.Int64N(int64(time.Second))))
	session := conn.SessionID()
	other := c.members[int(m.id)%len(c.members)]
	alive := func() (yes bool) {
		other.running().view(func(s *znode.Store) {
			for info := range s.Sessions().All() {
				yes = yes || int64(info.ID) == session
			}
		})
		return yes
	}
	c.witness.forget(conn) // it is for the caller to judge
	if session == 0 || conn.State() != zk.StateHasSession || !alive() {
		c.t.Errorf("after %v: a client of m%d has no session though nothing is wrong", c.journal.age(), m.id)
		return 0
	}
	var besieging sync.WaitGroup
	besieging.Go(func() {
		siege(c, m, rng)
		time.Sleep(timeout * time.Duration(35+rng.IntN(25)) / 100)
		c.net.Partition(m.name, marginHost)
	})
	defer besieging.Wait()
	var knew, ended time.Time
	for deadline := time.Now().Add(4*timeout + 20*time.Second); knew.IsZero() || ended.IsZero(); time.Sleep(marginLook) {
		now := time.Now()
		if now.After(deadline) {
			c.t.Errorf("after %v: its library knew at %v, its session ended at %v", c.journal.age(), knew, ended)
			break
		}
		if knew.IsZero() && (conn.State() != zk.StateHasSession || conn.SessionID() != session) {
			knew = now
		}
		if ended.IsZero() && !alive() {
			ended = now
		}
	}
	return ended.Sub(knew)
}
