package histogram

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// subBits is how finely each power of two is divided: into 8 buckets, so that a quantile is off
	// by less than 1/8 of its value.
	subBits = 3
	sub     = 1 << subBits
	// numBuckets covers every number from 0 up to 2^63-1. Numbers below 8 have a bucket each.
	numBuckets = (63-subBits)*sub + sub
)

// Histogram counts values in buckets of logarithmic width. The zero value is empty. It takes 4 KB,
// may be used by several goroutines, and must not be copied.
type Histogram struct {
	buckets [numBuckets]atomic.Int64
	sum     atomic.Int64
	max     atomic.Int64
	// least is math.MaxInt64 minus the smallest value, so that an empty histogram has the zero
	// value.
	least atomic.Int64
}

// Observe counts a value. A negative one counts as 0.
func (h *Histogram) Observe(v int64) {
	v = max(v, 0)
	h.buckets[bucket(v)].Add(1)
	h.sum.Add(v)
	raise(&h.max, v)
	raise(&h.least, math.MaxInt64-v)
}

// ObserveSince counts the time since start, in nanoseconds.
func (h *Histogram) ObserveSince(start time.Time) { h.Observe(int64(time.Since(start))) }

// raise sets a to v, if v is larger.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old; old = a.Load() {
		if a.CompareAndSwap(old, v) {
			return
		}
	}
}

// Reset empties the histogram. A value that is observed meanwhile may be counted in part.
func (h *Histogram) Reset() {
	for i := range h.buckets {
		h.buckets[i].Store(0)
	}
	h.sum.Store(0)
	h.max.Store(0)
	h.least.Store(0)
}

// bucket is the number of the bucket that has v, which is not negative.
func bucket(v int64) int {
	if v < sub {
		return int(v)
	}
	e := bits.Len64(uint64(v)) - 1 - subBits // v>>e is in [sub, 2*sub)
	return e<<subBits + int(v>>e)
}

// lowest is the smallest value of a bucket.
func lowest(i int) int64 {
	if i < sub {
		return int64(i)
	}
	e := i>>subBits - 1
	return int64(sub+i&(sub-1)) << e
}

// Snapshot is the content of a histogram at some moment. A value that is observed while the
// snapshot is made may be in some of its fields only.
type Snapshot struct {
	Count, Sum int64
	Min, Max   int64 // 0 if Count is 0
	buckets    [numBuckets]int64
}

// Snapshot returns the present content.
func (h *Histogram) Snapshot() *Snapshot {
	s := &Snapshot{Sum: h.sum.Load(), Max: h.max.Load()}
	for i := range h.buckets {
		s.buckets[i] = h.buckets[i].Load()
		s.Count += s.buckets[i]
	}
	if s.Count > 0 {
		s.Min = math.MaxInt64 - h.least.Load()
	}
	return s
}

// Mean is the mean of the values, 0 without any.
func (s *Snapshot) Mean() float64 { return float64(s.Sum) / float64(max(s.Count, 1)) }

// Quantile returns a value that the given share of the values, from 0 to 1, does not exceed; it is
// exact below 8, and elsewhere less than 1/8 too large. It is 0 without any value.
func (s *Snapshot) Quantile(share float64) int64 {
	rank := max(int64(math.Ceil(share*float64(s.Count))), 1)
	seen := int64(0)
	for i, n := range s.buckets {
		if seen += n; seen >= rank {
			top := int64(math.MaxInt64)
			if i+1 < numBuckets {
				top = lowest(i+1) - 1
			}
			if s.Max > 0 {
				top = min(top, s.Max)
			}
			return top
		}
	}
	return 0
}

// Below returns the number of values smaller than v. It is exact if v is a power of two, or one of
// the 7 numbers that divide the numbers up to the next power of two into 8 equal parts.
func (s *Snapshot) Below(v int64) (n int64) {
	for _, k := range s.buckets[:bucket(max(v, 0))] {
		n += k
	}
	return n
}

// Since returns the difference to an earlier snapshot of the same histogram, which may have been
// emptied meanwhile. The smallest and the largest value are taken from s.
func (s *Snapshot) Since(earlier *Snapshot) *Snapshot {
	if earlier == nil || earlier.Count > s.Count {
		return s
	}
	d := &Snapshot{Sum: s.Sum - earlier.Sum, Min: s.Min, Max: s.Max}
	for i := range s.buckets {
		d.buckets[i] = max(s.buckets[i]-earlier.buckets[i], 0)
		d.Count += d.buckets[i]
	}
	return d
}
