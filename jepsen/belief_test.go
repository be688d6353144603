package jepsen

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestBelief measures promise C6: a member is cut off from the others, but not from its clients,
// who hold locks. Their libraries must say that they are not connected before the majority gives
// the locks to those who wait for them. No client is stopped, and no byte between a client and its
// member is lost.
func TestBelief(t *testing.T) {
	rounds, targets := 1, []string{*targetFlag}
	if *longFlag {
		rounds, targets = 5, []string{"lockkeeper", "zookeeper"}
	}
	for _, target := range targets {
		for _, victim := range []string{"follower", "leader"} {
			for round := range rounds {
				t.Run(fmt.Sprintf("%s/%s/%d", target, victim, round+1), func(t *testing.T) {
					testBelief(t, target, victim)
				})
			}
		}
	}
}

func testBelief(t *testing.T, target, victimMode string) {
	libraries := []struct{ name, recipe string }{{"kazoo", "lock"}, {"curator", "mutex"}, {"gozk", "zklock"}}
	for _, library := range libraries {
		client(t, library.name)
	}
	cfg := ClusterConfig{Target: findTarget(t, target), Members: 3, TickTime: 2 * time.Second}
	if target == "zookeeper" {
		cfg.Extra = []string{"syncLimit=5"} // as in its zoo_sample.cfg; the last line counts
	}
	Need(t, FindNetwork())
	network, err := NewNetwork(testTimeout(t, time.Minute), cfg.Members, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Places = network.Places()
	l := newLabWith(t, 2*time.Minute, cfg)
	l.sessionTimeout = 4 * time.Second // the shortest that this tickTime allows
	victim, others := l.split(victimMode)

	var holders, waiters []*Worker
	contend := func(servers string, library, recipe string) *Worker {
		worker := l.startAt(servers, library, 1)[0]
		l.mustDo(worker, "x", "open", "x", recipe, "/belief-"+library)
		return worker
	}
	var waiting sync.WaitGroup
	for _, library := range libraries {
		holder := contend(victim.ClientAddr, library.name, library.recipe)
		l.mustDo(holder, "x", "acquire", "x", "-1")
		waiter := contend(others, library.name, library.recipe)
		waiting.Go(func() {
			reply, err := waiter.DoSeen(l.ctx, func(r Reply) {
				l.history.Add(Op{Worker: waiter.name, Kind: r.Kind, F: FAcquire})
			}, "x", "acquire", "x", "-1")
			if err != nil || reply.Kind != OK {
				t.Errorf("%s does not get its lock: %v %v", waiter.name, reply, err)
			}
		})
		holders, waiters = append(holders, holder), append(waiters, waiter)
	}
	for _, library := range libraries {
		l.awaitQueue("/belief-"+library.name, 2)
	}

	from := l.history.Len()
	l.history.Add(Op{Kind: Info, F: FCut, Member: victim.ClientAddr, Note: victim.String()})
	rest := slices.DeleteFunc([]int{1, 2, 3}, func(id int) bool { return id == victim.ID })
	if err := Partition(network, [][]int{{victim.ID}, rest}); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	for i := range holders {
		l.compareBelief(from, holders[i], waiters[i])
	}

	l.history.Add(Op{Kind: Info, F: FHeal, Member: victim.ClientAddr, Note: victim.String()})
	if err := HealAll(network); err != nil {
		t.Fatal(err)
	}
	l.endBelief(from, holders, waiters)
}

// split finds a member in that mode, and the addresses of all others.
func (l *lab) split(mode string) (victim *Member, others string) {
	l.t.Helper()
	leader, err := l.cluster.AwaitLeader(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	var addrs []string
	for _, m := range l.cluster.Members() {
		if victim == nil && (m == leader) == (mode == "leader") {
			victim = m
		} else {
			addrs = append(addrs, m.ClientAddr)
		}
	}
	return victim, strings.Join(addrs, ",")
}

// compareBelief fails the test if the waiter got the lock before the holder's library had said that
// it is not connected. It waits until it has said so.
func (l *lab) compareBelief(from int, holder, waiter *Worker) {
	l.t.Helper()
	var cut, told, taken time.Duration
	err := l.history.Follow(l.ctx, from, func(op Op) bool {
		switch {
		case op.F == FCut:
			cut = op.Time
		case op.F == FSuspended && op.Worker == holder.name && told == 0:
			told = op.Time
		case op.F == FAcquire && op.Kind == OK && op.Worker == waiter.name:
			taken = op.Time
		}
		return told != 0 && taken != 0
	})
	if err != nil {
		l.t.Errorf("%s is not told that it is cut off: %v", holder.name, err)
		return
	}
	// Both instants are those at which this process learned of it.
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	l.t.Logf("figures: %s was told %v after the cut, %s had its lock %v after the cut: %v in between",
		holder.name, round(told-cut), waiter.name, round(taken-cut), round(taken-told))
	if taken <= told && l.cluster.members[0].target.Name == "lockkeeper" {
		l.t.Errorf("for %v both %s and %s held one lock", round(told-taken), holder.name, waiter.name)
	}
}

// endBelief waits until the healed cluster has told the holders that their sessions are over, and
// ends everything in good order.
func (l *lab) endBelief(from int, holders, waiters []*Worker) {
	l.t.Helper()
	for _, c := range holders {
		err := l.history.Follow(l.ctx, from, func(op Op) bool { return op.Worker == c.name && op.F == FExpired })
		if err != nil {
			l.t.Errorf("%s is not told that its session has expired: %v", c.name, err)
		}
	}
	for _, c := range waiters {
		l.mustDo(c, "x", "release", "x")
	}
	l.stopWorkers()
	l.checkNothingLeft()
}
