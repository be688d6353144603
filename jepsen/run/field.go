package run

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
)

// A field is the cluster that nemeses act on. Its methods may be called by several of them at the
// same time.
type field struct {
	target   jepsen.Target
	scratch  string
	tools    atomic.Int64 // calls of the operator's program
	cluster  *jepsen.Cluster
	links    jepsen.Links  // nil: there is one member only
	disks    *jepsen.Disks // nil: nobody asked for them, or they cannot be had
	clients  []*client
	history  *jepsen.History
	planner  planner
	majority int // the fault that no majority can act; the planner guards it
	out      io.Writer

	mu      sync.Mutex
	claimed map[any]string // members and clients, with the nemesis that has them
	faults  []report.Fault
	effects map[*act]time.Duration // acts that have begun and are not being mended, and since when
}

// begin records that an act begins, and tells the terminal. It returns the number of the fault.
func (f *field) begin(lane, nemesis string, a *act) int {
	for _, op := range a.begin {
		op.Kind = jepsen.Info
		f.history.Add(op)
	}
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, report.Fault{Kind: lane, On: a.on, From: now, To: now, Open: a.mend != nil})
	f.sayLocked(now, nemesis, a.on)
	return len(f.faults) - 1
}

// end records that it is over.
func (f *field) end(fault int, a *act) {
	for _, op := range a.end {
		op.Kind = jepsen.Info
		f.history.Add(op)
	}
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[fault].To, f.faults[fault].Open = now, false
	f.sayLocked(now, f.faults[fault].Kind+" over", a.on)
}

// lostMajority is that no majority of the members can act.
var lostMajority = &act{
	begin: []jepsen.Op{{F: workload.FMajorityLost}}, end: []jepsen.Op{{F: workload.FMajorityBack}},
	mend: func(context.Context) error { return nil },
}

// majorityChanged records that a majority of the members can act no more, or can again.
func (f *field) majorityChanged(able bool) {
	if able {
		f.end(f.majority, lostMajority)
	} else {
		f.majority = f.begin(report.NoMajority, report.NoMajority, lostMajority)
	}
}

// inEffect notes that an act has begun, or is about to be mended.
func (f *field) inEffect(a *act, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.effects == nil {
		f.effects = make(map[*act]time.Duration)
	}
	if is {
		f.effects[a] = f.now()
	} else {
		delete(f.effects, a)
	}
}

// now is the time in the history.
func (f *field) now() time.Duration { return f.history.Now() }

// say tells the terminal.
func (f *field) say(what, on string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sayLocked(f.now(), what, on)
}

func (f *field) sayLocked(now time.Duration, what, on string) {
	fmt.Fprintf(f.out, "%7.2f s  %-24s %s\n", now.Seconds(), what, on)
}

// claim takes things for one nemesis, except those that another nemesis has.
func (f *field) claim(nemesis string, things []any) (taken []any, release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, thing := range things {
		if _, has := f.claimed[thing]; !has {
			f.claimed[thing] = nemesis
			taken = append(taken, thing)
		}
	}
	return taken, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, thing := range taken {
			delete(f.claimed, thing)
		}
	}
}

// claimMembers takes members for a nemesis that stops them, at most as many as atMost, chosen at
// random.
func (f *field) claimMembers(nemesis string, rng *rand.Rand, from []*jepsen.Member,
	atMost int) (taken []*jepsen.Member, release func()) {
	things := make([]any, 0, len(from))
	for _, i := range rng.Perm(len(from)) {
		things = append(things, from[i])
	}
	got, release := f.claim(nemesis, things[:min(atMost, len(things))])
	for _, m := range got {
		taken = append(taken, m.(*jepsen.Member))
	}
	slices.SortFunc(taken, func(a, b *jepsen.Member) int { return a.ID - b.ID })
	return taken, release
}

// leaderPatience is how long a nemesis looks for the leader.
const leaderPatience = 5 * time.Second

// leader is the member that leads, or nil if none does, or more than one say so.
func (f *field) leader(ctx context.Context) *jepsen.Member {
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	leader, err := f.cluster.AwaitLeader(ctx)
	if err != nil {
		return nil
	}
	return leader
}

// names are members for people.
func names(members []*jepsen.Member) string {
	words := make([]string, len(members))
	for i, m := range members {
		words[i] = m.String()
	}
	return strings.Join(words, " ")
}

// memberOps is one entry for each member.
func memberOps(f string, members []*jepsen.Member) []jepsen.Op {
	var ops []jepsen.Op
	for _, m := range members {
		ops = append(ops, jepsen.Op{F: f, Member: m.ClientAddr, Note: m.String()})
	}
	return ops
}
