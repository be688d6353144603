package workload

import (
	"fmt"
	"math"
	"slices"
	"time"

	"lockkeeper/jepsen"
)

// Whether a majority of the members can act: enough of them run and can talk to each other. Nemeses
// record it in the history. (jepsen.Op.F)
const (
	FMajorityLost = "majority-lost"
	FMajorityBack = "majority-back"
)

// Progress checks that clients make progress whenever a majority of the members can act: however
// many members are down, paused or cut off beside that majority, each client completes an operation
// within Bound, counted from the moment at which the majority is back, from the client's last
// completed operation, or from the moment at which its own process goes on (FResume), whichever is
// the latest.
type Progress struct {
	// Workers are the clients, as Op.Worker has them; without any, only for how long a majority
	// could act is looked at.
	Workers []string
	// From and To are the part of the history that counts. At From a majority can act.
	From, To time.Duration
	// Bound is how long a client may be without a completed operation.
	Bound time.Duration
	// Able is the share of the time, 0 to 1, in which a majority must have been able to act for the
	// history to say enough.
	Able float64
}

// enoughProgress is the share of the time in which a majority could act that the clients must have
// made progress in, on average, for a history to say enough about the other promises.
const enoughProgress = 0.5

// progressSlice is the unit in which progress is counted: a slice counts as one with progress if
// the client completed an operation in it.
const progressSlice = time.Second

// Check judges a history.
func (p Progress) Check(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: "progress", Promise: "C5", Valid: Yes, Figures: make(map[string]float64)}
	able := p.spans(ops, FMajorityLost, FMajorityBack, func(jepsen.Op) bool { return true })
	ableShare := share(length(able), p.To-p.From)
	var shares []float64
	longest, seconds := time.Duration(0), 0
	for _, worker := range p.Workers {
		mine := func(op jepsen.Op) bool { return op.Worker == worker }
		spans := intersect(able, p.spans(ops, jepsen.FPause, jepsen.FResume, mine))
		done := completed(ops, worker)
		for _, s := range spans {
			gap, at := s.longestGap(done)
			if longest = max(longest, gap); gap > p.Bound {
				v.violate(nearby(ops, worker, at, at+gap),
					"%s completed nothing for %.1f s from %.1f s on, although a majority could act; the bound is %v",
					worker, gap.Seconds(), at.Seconds(), p.Bound)
			}
		}
		if n, of := progressSlices(spans, done); of > 0 {
			seconds += of
			shares = append(shares, float64(n)/float64(of))
			v.Figures["progress of "+worker+" %"] = math.Round(100 * float64(n) / float64(of))
		}
	}
	v.judged(seconds, "seconds of clients with a majority")
	v.Figures["majority able %"] = math.Round(100 * ableShare)
	v.Figures["longest gap ms"] = float64(longest.Milliseconds())
	v.Text = fmt.Sprintf("a majority could act for %.0f of %.0f s", length(able).Seconds(), (p.To - p.From).Seconds())
	mean := 1.0
	if len(shares) > 0 {
		mean = 0
		for _, s := range shares {
			mean += s / float64(len(shares))
		}
		v.Text += fmt.Sprintf("; of that, clients made progress in %.0f %% of the seconds on average, the slowest "+
			"in %.0f %%; the longest gap was %.1f s of at most %v",
			100*mean, 100*slices.Min(shares), longest.Seconds(), p.Bound)
	}
	switch {
	case ableShare < p.Able || len(p.Workers) > 0 && len(shares) == 0:
		v.doubt(tooLittle + ": no majority could act for too long")
	case mean < enoughProgress:
		v.doubt(tooLittle + ": the clients did nothing for most of the time")
	}
	return v.concluded()
}

// interval is a time in the history.
type interval struct{ from, to time.Duration }

// spans are the times between From and To outside of those that an entry with the field F off
// begins and one with on ends.
func (p Progress) spans(ops []jepsen.Op, off, on string, counts func(jepsen.Op) bool) []interval {
	var spans []interval
	from, is := p.From, true
	for _, op := range ops {
		at := min(max(op.Time, p.From), p.To)
		switch {
		case !counts(op):
		case op.F == off && is:
			spans, is = append(spans, interval{from, at}), false
		case op.F == on && !is:
			from, is = at, true
		}
	}
	if is {
		spans = append(spans, interval{from, p.To})
	}
	return slices.DeleteFunc(spans, func(s interval) bool { return s.to <= s.from })
}

// intersect is when both are; each is in order and without overlaps.
func intersect(a, b []interval) []interval {
	var both []interval
	for _, x := range a {
		for _, y := range b {
			if s := (interval{max(x.from, y.from), min(x.to, y.to)}); s.from < s.to {
				both = append(both, s)
			}
		}
	}
	return both
}

func length(spans []interval) (sum time.Duration) {
	for _, s := range spans {
		sum += s.to - s.from
	}
	return sum
}

func share(part, of time.Duration) float64 {
	if of <= 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// completed is when a client completed operations, in order.
func completed(ops []jepsen.Op, worker string) []time.Duration {
	var done []time.Duration
	for _, op := range ops {
		if op.Worker == worker && op.Kind == jepsen.OK {
			done = append(done, op.Time)
		}
	}
	return done
}

// longestGap is the longest time within s without a completed operation, and when it began.
func (s interval) longestGap(done []time.Duration) (gap, at time.Duration) {
	last := s.from
	for _, t := range append(slices.Clone(done), s.to) {
		if t = min(t, s.to); t > last {
			if t-last > gap {
				gap, at = t-last, last
			}
			last = t
		}
	}
	return gap, at
}

// progressSlices counts the slices that are wholly in the spans, and those of them in which an
// operation was completed.
func progressSlices(spans []interval, done []time.Duration) (with, all int) {
	for _, s := range spans {
		for at := s.from; at+progressSlice <= s.to; at += progressSlice {
			all++
			if i, _ := slices.BinarySearch(done, at); i < len(done) && done[i] < at+progressSlice {
				with++
			}
		}
	}
	return with, all
}

// nearby are the client's entries and those about the majority and faults around a time, the last
// ones before it and the first ones in it.
func nearby(ops []jepsen.Op, worker string, from, to time.Duration) []jepsen.Op {
	const few = 12
	var before, within []jepsen.Op
	for _, op := range ops {
		if op.Worker != worker && (op.Worker != "" || op.Kind != jepsen.Info) {
			continue
		}
		switch {
		case op.Time <= from:
			if before = append(before, op); len(before) > few {
				before = before[1:]
			}
		case op.Time <= to && len(within) < few:
			within = append(within, op)
		}
	}
	return append(before, within...)
}
