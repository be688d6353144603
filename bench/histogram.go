package bench

import (
	"math/bits"
	"time"
)

// subBuckets is the number of buckets for each power of two: a value is off by less than 1/64.
const subBuckets = 64

// Histogram counts durations, from 1 ns to hours, in buckets of equal relative width. The zero
// value is empty.
type Histogram struct {
	counts []uint64
	total  uint64
	sum    time.Duration
	max    time.Duration
}

// bucket is the index of the bucket that v, at least 0, belongs to: below subBuckets one for each
// value, above that subBuckets for each power of two.
func bucket(v uint64) int {
	if v < subBuckets {
		return int(v)
	}
	exponent := bits.Len64(v) - bits.Len64(subBuckets) // at least 0
	return exponent*subBuckets + int(v>>exponent)
}

// value is the middle of a bucket.
func value(bucket int) uint64 {
	if bucket < 2*subBuckets {
		return uint64(bucket)
	}
	exponent := bucket/subBuckets - 1
	return uint64(subBuckets+bucket%subBuckets)<<exponent + 1<<exponent/2
}

// Add counts d; a negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(0, d)
	i := bucket(uint64(d))
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

// Merge adds the counts of other.
func (h *Histogram) Merge(other *Histogram) {
	if n := len(other.counts) - len(h.counts); n > 0 {
		h.counts = append(h.counts, make([]uint64, n)...)
	}
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// Count is the number of counted durations.
func (h *Histogram) Count() uint64 { return h.total }

// Max is the longest, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean is the average, exactly; 0 if there is none.
func (h *Histogram) Mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return h.sum / time.Duration(h.total)
}

// Quantile is the duration that a share q, from 0 to 1, of all does not exceed; 0 if there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(h.total)+0.5))
	if rank >= h.total {
		return h.max
	}
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return min(time.Duration(value(i)), h.max)
		}
	}
	return h.max
}
