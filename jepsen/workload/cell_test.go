package workload

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

// TestRegisterAgainstAModel makes histories with a register that is one, and has
// the checker agree; then one read of each is made to show the version before, and
// the checker has to find it, with a short piece.
func TestRegisterAgainstAModel(t *testing.T) {
	for seed := range uint64(5) {
		calls := modelHistory(rand.New(rand.NewPCG(seed, 1)), 6, 100)
		if v := newRegister().Check(conversation(calls)); v.Valid != Yes {
			t.Fatalf("seed %d: a register that is one: %s", seed, verdictText(v))
		}
		stale := makeStale(rand.New(rand.NewPCG(seed, 2)), calls)
		if stale == nil {
			t.Fatalf("seed %d: no read can be made stale", seed)
		}
		v := newRegister().Check(conversation(calls))
		if v.Valid != No || len(v.Violations) != 1 {
			t.Fatalf("seed %d: the stale read %v: %s", seed, stale.end, verdictText(v))
		}
		piece := v.Violations[0].Ops
		if !slices.Contains(piece, stale.end) || len(piece) > 60 {
			t.Errorf("seed %d: the stale read %v in %d entries: %s", seed, stale.end, len(piece), verdictText(v))
		}
	}
}

// modelHistory is a history of a correct register: every operation takes effect at a moment between
// its invoke and its end, or, where nobody is told, later or never.
func modelHistory(rng *rand.Rand, clients, each int) []*call {
	type effect struct {
		at   time.Duration
		call *call
	}
	var effects []effect
	var calls []*call
	for n := range clients {
		now := time.Duration(rng.IntN(1000))
		for i := range each {
			op := jepsen.Op{Worker: Worker(registerName, n), ID: int64(i + 1), Kind: jepsen.Invoke,
				Path: "/register/0-0", Time: now}
			op.F = []string{fRead, fRead, fWrite, fCAS, fCreate}[rng.IntN(5)]
			if op.F != fRead {
				op.Value = fmt.Sprintf("%d.%d", n, i)
			}
			c := &call{invoke: op, end: op, ended: true}
			at := now + time.Duration(1+rng.IntN(1000))
			now = at + time.Duration(1+rng.IntN(1000))
			c.end.Time, c.end.Kind = now, jepsen.OK
			if rng.IntN(20) == 0 {
				c.end.Kind, c.end.Note = jepsen.Info, "EOF"
				at += time.Duration(rng.IntN(5000))
			}
			now += time.Duration(1 + rng.IntN(1000))
			calls = append(calls, c)
			if c.end.Kind == jepsen.OK || rng.IntN(2) == 0 {
				effects = append(effects, effect{at, c})
			}
		}
	}
	slices.SortFunc(effects, func(a, b effect) int { return cmp.Compare(a.at, b.at) })
	state := absent
	for _, e := range effects {
		state = takeEffect(state, e.call, rng)
	}
	return calls
}

// takeEffect has a call take effect, and its end tell of it if that is told.
func takeEffect(s cell, c *call, rng *rand.Rand) cell {
	if c.invoke.F == fCAS { // sometimes with the version that is there
		c.invoke.Version = max(s.version-int32(rng.IntN(2)), 0)
		c.end.Version = c.invoke.Version
	}
	note := ""
	switch {
	case c.invoke.F == fCreate && s.version >= 0:
		note = noteNodeExists
	case c.invoke.F != fCreate && s.version < 0:
		note = noteNoNode
	case c.invoke.F == fCAS && c.invoke.Version != s.version:
		note = noteBadVersion
	case c.invoke.F != fRead:
		s = cell{version: s.version + 1, value: c.invoke.Value}
	}
	switch {
	case c.end.Kind != jepsen.OK:
	case note != "":
		c.end.Kind, c.end.Note = jepsen.Fail, note
	default:
		c.end.Version, c.end.Value = s.version, s.value
	}
	return s
}

// makeStale has one read show the version before, though the next one had been
// answered when it began. It returns that read, nil if there is none.
func makeStale(rng *rand.Rand, calls []*call) *call {
	values := map[int32]string{}
	made := map[int32]time.Duration{} // when that was answered
	var reads []*call
	for _, c := range calls {
		if c.end.Kind != jepsen.OK {
			continue
		}
		values[c.end.Version] = c.end.Value
		if c.invoke.F != fRead {
			made[c.end.Version] = c.end.Time
		}
	}
	for _, c := range calls {
		answered, ok := made[c.end.Version]
		_, before := values[c.end.Version-1]
		if c.invoke.F == fRead && c.end.Kind == jepsen.OK && ok && answered < c.invoke.Time && before {
			reads = append(reads, c)
		}
	}
	if len(reads) == 0 {
		return nil
	}
	c := reads[rng.IntN(len(reads))]
	c.end.Version--
	c.end.Value = values[c.end.Version]
	return c
}
