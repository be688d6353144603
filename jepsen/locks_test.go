package jepsen

import (
	"fmt"
	"testing"
	"time"
)

// A fight is several contenders for one lock, by the recipes of one library.
type fight struct {
	name string
	// recipes are given to the workers in turn.
	recipes []recipe
	// crowd is how many must have held the lock at one time.
	crowd int
}

type recipe struct {
	name    string
	mode    Mode
	leases  int
	options []string
	timeout time.Duration
}

var (
	// readTimeout makes a reader of kazoo try again. ReadLock of kazoo 2.8
	// cannot find its own place in the queue (its own nodes are not among those
	// it looks for), so it waits for *every* writer, also for those behind it,
	// which wait for it: a deadlock, also with ZooKeeper, which the library got
	// rid of in 2.9. The timeout ends it.
	readTimeout = 500 * time.Millisecond

	kazooFights = []fight{
		{"lock", []recipe{{name: "lock"}}, 1},
		{"read-write", []recipe{
			{name: "read", mode: Shared, timeout: readTimeout},
			{name: "write"},
			{name: "read", mode: Shared, timeout: readTimeout},
		}, 1},
		{"semaphore", []recipe{{name: "semaphore", mode: Lease, leases: 2}}, 2},
		{"election", []recipe{{name: "election"}}, 1},
	}
	curatorFights = []fight{
		{"mutex", []recipe{{name: "mutex"}}, 1},
		{"read-write", []recipe{{name: "read", mode: Shared}, {name: "write"}, {name: "read", mode: Shared}}, 2},
		{"semaphore", []recipe{{name: "semaphore", mode: Lease, leases: 2}}, 2},
		{"latch", []recipe{{name: "latch"}}, 1},
	}
	gozkFights = []fight{
		{"zklock", []recipe{{name: "zklock"}}, 1},
		{"mutex", []recipe{{name: "mutex"}}, 1},
	}
)

// contenders gives every worker one contender for the fight's lock.
func (f fight) contenders(lock string, workers []*Worker) []*Contender {
	var all []*Contender
	for i, w := range workers {
		r := f.recipes[i%len(f.recipes)]
		all = append(all, &Contender{
			Worker: w, Handle: f.name, Recipe: r.name, Lock: lock,
			Mode: r.mode, Leases: r.leases, Options: r.options, Timeout: r.timeout,
		})
	}
	return all
}

// TestLocks lets three processes fight for a lock, for every recipe of every
// library, on one member and on three.
func TestLocks(t *testing.T) {
	for _, members := range []int{1, 3} {
		for _, library := range []struct {
			name   string
			fights []fight
		}{{"kazoo", kazooFights}, {"curator", curatorFights}, {"gozk", gozkFights}} {
			t.Run(fmt.Sprintf("%s/%d", library.name, members), func(t *testing.T) {
				client(t, library.name) // before the cluster, which costs more
				l := newLab(t, members, 2*time.Minute)
				workers := l.start(library.name, 3)
				for _, f := range library.fights {
					t.Run(f.name, func(t *testing.T) {
						l.fight(t, f.contenders("/locks/"+library.name+"/"+f.name, workers), f.crowd)
					})
				}
				l.stopWorkers()
				l.checkNothingLeft()
			})
		}
	}
}

// TestMixedLocks lets the libraries that understand each other's nodes fight
// for one lock.
func TestMixedLocks(t *testing.T) {
	type side struct {
		library string
		recipe  recipe
	}
	// kazoo takes only nodes that are called __lock__ for contenders, unless it
	// is told. Curator can be told nothing.
	kazooLock := recipe{name: "lock", options: []string{"also=-lock-"}}
	for name, sides := range map[string][]side{
		"curator-gozk": {{"curator", recipe{name: "mutex"}}, {"gozk", recipe{name: "zklock"}}, {"gozk", recipe{name: "mutex"}}},
		"kazoo-gozk":   {{"kazoo", kazooLock}, {"gozk", recipe{name: "zklock"}}, {"gozk", recipe{name: "mutex"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range sides {
				client(t, s.library)
			}
			l := newLab(t, 3, 2*time.Minute)
			var contenders []*Contender
			for _, s := range sides {
				f := fight{name: s.recipe.name, recipes: []recipe{s.recipe}}
				contenders = append(contenders, f.contenders("/locks/mixed", l.start(s.library, 2))...)
			}
			l.fight(t, contenders, 1)
			l.stopWorkers()
			l.checkNothingLeft()
		})
	}
}

// fight lets the contenders fight until each has won 20 times, and the lock had
// as many holders at one time as it allows.
func (l *lab) fight(t *testing.T, contenders []*Contender, crowd int) {
	const rounds = 20
	hold := 5 * time.Millisecond
	if crowd > 1 {
		hold = 25 * time.Millisecond // else the holders rarely meet
	}
	contest := &Contest{Contenders: contenders, History: l.history, Hold: hold}
	from := l.history.Len()
	if err := contest.Start(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := contest.AwaitRounds(l.ctx, from, rounds); err != nil {
		t.Error(err)
	}
	lock := contenders[0].Lock
	crowded := func() bool { return CheckLocks(l.history.Ops()[from:]).Crowd[lock] >= crowd }
	for !t.Failed() && !crowded() {
		// On a busy machine a semaphore's holders may miss each other for long.
		if err := contest.AwaitRounds(l.ctx, l.history.Len(), 1); err != nil {
			t.Errorf("%d never held %s at one time: %v", crowd, lock, err)
		}
	}
	if err := contest.Stop(l.ctx); err != nil {
		t.Error(err)
	}
	ops := l.history.Ops()
	report := CheckLocks(ops[from:])
	for _, v := range report.Violations {
		t.Error(v)
	}
	first, last := ops[from].Time, ops[len(ops)-1].Time
	t.Logf("acquired %v in %v", report.Acquired, (last - first).Round(time.Millisecond))
}
