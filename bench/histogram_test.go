package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	last := -1
	for _, v := range []uint64{0, 1, 63, 64, 65, 127, 128, 129, 130, 255, 256, 1000, 1e6, 1e9, 1e13} {
		b := bucket(v)
		if b < last {
			t.Errorf("bucket(%d) = %d after %d", v, b, last)
		}
		last = b
		if m := value(b); v < 128 && m != v || v >= 128 && (m > v+v/64 || m < v-v/64) {
			t.Errorf("%d is told as %d", v, m)
		}
		if value(b+1) <= value(b) {
			t.Errorf("bucket %d tells %d, the next %d", b, value(b), value(b+1))
		}
	}
}

func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var all []time.Duration
	var parts [3]Histogram
	for i := range 30_000 {
		d := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		parts[i%3].Add(d)
	}
	slices.Sort(all)
	var h Histogram
	for i := range parts {
		h.Merge(&parts[i])
	}
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(q*float64(len(all)))-1)]
		if got := h.Quantile(q); got > want+want/32 || got < want-want/32 {
			t.Errorf("quantile %v: %v, want about %v", q, got, want)
		}
	}
	if h.Count() != 30_000 || h.Max() != all[len(all)-1] || h.Quantile(1) != h.Max() {
		t.Errorf("%d, max %v, want %v", h.Count(), h.Max(), all[len(all)-1])
	}
	var none Histogram
	if none.Quantile(0.5) != 0 || none.Mean() != 0 || none.Max() != 0 {
		t.Error("an empty histogram tells something")
	}
}
