package report

import (
	"fmt"
	"math/rand/v2"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// sample is a run as it might be: clients that write and read, and take locks, while members are
// cut off and killed. It is the same for the same arguments.
func sample(clients int, length time.Duration) *Run {
	r := &Run{
		Title: fmt.Sprintf("register, lock on 5 members under partition, kill, for %v", length), Target: "lockkeeper",
		Began: time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC), Took: length, Seed: 4711,
		Again: "go run ./cmd/jepsen run -members 5 -workload register,lock -nemesis partition,kill -time " +
			length.String() + " -seed 4711",
		Settings: []Setting{{"members", "5"}, {"session timeout", "4s"}, {"tickTime", "2s"}},
	}
	random := rand.New(rand.NewPCG(1, 2))
	acts := map[time.Duration][]jepsen.Op{}
	act := func(at time.Duration, f, note string) {
		acts[at] = append(acts[at], jepsen.Op{Time: at, Kind: jepsen.Info, F: f, Note: note, Member: note})
	}
	for at, i := 6*time.Second, 0; at+8*time.Second < length; at, i = at+12*time.Second, i+1 {
		if member := fmt.Sprintf("m%d", i%5+1); i%2 == 0 {
			act(at, jepsen.FCut, member)
			act(at+5*time.Second, jepsen.FHeal, member)
		} else {
			act(at, jepsen.FKill, member)
			act(at+3*time.Second, jepsen.FRestart, member)
		}
		act(at+7*time.Second, "transfer", "m2 to m3")
	}
	broken := 0
	const step = 10 * time.Millisecond
	for now := time.Duration(0); now < length; now += step {
		for _, op := range acts[now] {
			r.Ops = append(r.Ops, op)
			switch op.F {
			case jepsen.FCut, jepsen.FKill:
				broken++
			case jepsen.FHeal, jepsen.FRestart:
				broken--
			}
		}
		for c := range clients {
			r.Ops = append(r.Ops, sampleOps(random, now, c, broken > 0)...)
		}
	}
	offending := []jepsen.Op{}
	for _, op := range r.Ops {
		if op.Time > 8*time.Second && len(offending) < 6 && op.F != jepsen.FAcquire {
			offending = append(offending, op)
		}
	}
	r.Verdicts = []workload.Verdict{
		{Checker: "register", Promise: "C4", Valid: workload.No,
			Text:       "41,222 operations on 5 registers are not linearizable.",
			Violations: []workload.Violation{{Text: "c2 read 17 after c1 had written 18", Ops: offending}}},
		{Checker: "lock", Promise: "C6", Valid: workload.Yes,
			Text:    "1,204 grants of 4 locks: no two at a time, tokens increase.",
			Figures: map[string]float64{"grants": 1204, "longest wait ms": 3377.25}},
		{Checker: "belief", Promise: "C6", Valid: workload.Unknown, Text: "No client was cut off for long enough."},
	}
	return r
}

// sampleOps are the operations of client c at one moment.
func sampleOps(random *rand.Rand, now time.Duration, c int, broken bool) []jepsen.Op {
	worker := fmt.Sprintf("c%d", c)
	if random.IntN(6) != 0 {
		return nil
	}
	f := []string{"write", "read", "read", jepsen.FAcquire}[random.IntN(4)]
	took := time.Duration(random.ExpFloat64() * float64(2*time.Millisecond))
	kind := jepsen.OK
	if broken && c%3 == 0 {
		took *= 100
		if random.IntN(3) == 0 {
			kind = jepsen.Info
		}
	} else if random.IntN(50) == 0 {
		kind = jepsen.Fail
	}
	id := int64(now)
	ops := []jepsen.Op{
		{Time: now, Worker: worker, Kind: jepsen.Invoke, F: f, ID: id, Path: "/r/1", Value: "17"},
		{Time: now + took, Worker: worker, Kind: kind, F: f, ID: id, Path: "/r/1", Value: "17", Zxid: 4294967297},
	}
	if f == jepsen.FAcquire {
		ops[0].Contender, ops[1].Contender = worker+"/x", worker+"/x"
		ops = append(ops, jepsen.Op{Time: now + took + 5*time.Millisecond, Worker: worker, Contender: worker + "/x",
			Kind: jepsen.Invoke, F: jepsen.FRelease, ID: id + 1},
			jepsen.Op{Time: now + took + 6*time.Millisecond, Worker: worker, Contender: worker + "/x", Kind: jepsen.OK,
				F: jepsen.FRelease, ID: id + 1})
	}
	if broken && c%5 == 0 && random.IntN(20) == 0 {
		ops = append(ops, jepsen.Op{Time: now, Worker: worker, Kind: jepsen.Info, F: jepsen.FSuspended},
			jepsen.Op{Time: now + time.Second, Worker: worker, Kind: jepsen.Info, F: jepsen.FConnected})
	}
	return ops
}
