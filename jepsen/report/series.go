package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"lockkeeper/jepsen"
)

// maxSlices bounds the length of every series: a picture has no more room, and a page no more
// bytes, for longer ones.
const maxSlices = 600

// Figures are the measures of a run. The pictures show them.
type Figures struct {
	// SliceMs is the length of one slice of time: 1 s, or more in runs of more than ten minutes.
	SliceMs int64 `json:"sliceMs"`
	// Ops are the operations by name, the most frequent first.
	Ops []OpFigures `json:"ops"`
}

// OpFigures are the measures of the operations of one name.
type OpFigures struct {
	F string `json:"f"`
	// OK, Fail and Info count the operations that ended so. Info are the ones with an unknown
	// outcome.
	OK   int `json:"ok"`
	Fail int `json:"fail"`
	Info int `json:"info"`
	// Latency is the latency of the operations that took effect.
	Latency Latency `json:"latency"`
	// Slices are the same, by the slice of time in which the operations ended.
	Slices []Slice `json:"slices"`
}

// count is the number of operations.
func (o OpFigures) count() int { return o.OK + o.Fail + o.Info }

// A Slice has the operations that ended in one slice of time.
type Slice struct {
	OK      int     `json:"ok"`
	Fail    int     `json:"fail"`
	Info    int     `json:"info"`
	Latency Latency `json:"latency"`
}

// Latency is how long operations took, in ms. It is all zero if there were none.
type Latency struct {
	P50Ms float64 `json:"p50Ms"`
	P99Ms float64 `json:"p99Ms"`
	MaxMs float64 `json:"maxMs"`
}

// sliceLength is the shortest whole number of seconds that gives at most maxSlices slices.
func sliceLength(run time.Duration) time.Duration {
	return max(time.Second, (run/maxSlices + time.Second - 1).Truncate(time.Second))
}

// measure makes the figures of all calls.
func measure(calls []call, run time.Duration) Figures {
	length := sliceLength(run)
	count := max(1, int((run+length-1)/length))
	byName := make(map[string][]call)
	for _, c := range calls {
		byName[c.f] = append(byName[c.f], c)
	}
	figures := Figures{SliceMs: length.Milliseconds()}
	for f, calls := range byName {
		o := OpFigures{F: f, Slices: make([]Slice, count), Latency: latency(calls)}
		parts := make([][]call, count)
		for _, c := range calls {
			i := min(int(c.end/length), count-1)
			parts[i] = append(parts[i], c)
		}
		for i, part := range parts {
			s := &o.Slices[i]
			s.Latency = latency(part)
			for _, c := range part {
				switch c.kind {
				case jepsen.OK:
					s.OK++
				case jepsen.Fail:
					s.Fail++
				default:
					s.Info++
				}
			}
			o.OK, o.Fail, o.Info = o.OK+s.OK, o.Fail+s.Fail, o.Info+s.Info
		}
		figures.Ops = append(figures.Ops, o)
	}
	slices.SortFunc(figures.Ops, func(a, b OpFigures) int {
		return cmp.Or(cmp.Compare(b.count(), a.count()), cmp.Compare(a.F, b.F))
	})
	return figures
}

// latency is the latency of the calls that took effect.
func latency(calls []call) Latency {
	var ms []float64
	for _, c := range calls {
		if c.kind == jepsen.OK {
			ms = append(ms, float64(c.took().Microseconds())/1000)
		}
	}
	if len(ms) == 0 {
		return Latency{}
	}
	slices.Sort(ms)
	return Latency{P50Ms: quantile(ms, 0.5), P99Ms: quantile(ms, 0.99), MaxMs: ms[len(ms)-1]}
}

// quantile is the smallest of the sorted values that at least the share q of them does not exceed.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
