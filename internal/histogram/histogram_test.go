package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// Every value is in the bucket whose smallest value is the largest that does not exceed it.
func TestBuckets(t *testing.T) {
	for i := range numBuckets {
		low := lowest(i)
		if bucket(low) != i {
			t.Errorf("the smallest value of bucket %d, %d, is in bucket %d", i, low, bucket(low))
		}
		if i > 0 && bucket(low-1) != i-1 {
			t.Errorf("%d is in bucket %d, and %d in bucket %d", low-1, bucket(low-1), low, i)
		}
	}
	if b := bucket(math.MaxInt64); b != numBuckets-1 {
		t.Errorf("the largest number is in bucket %d of %d", b, numBuckets)
	}
}

// Quantiles, minimum, maximum and sum agree with those of a sorted list.
func TestSnapshot(t *testing.T) {
	var h Histogram
	if s := h.Snapshot(); s.Count != 0 || s.Min != 0 || s.Max != 0 || s.Quantile(0.5) != 0 || s.Mean() != 0 {
		t.Errorf("an empty histogram has %d values from %d to %d", s.Count, s.Min, s.Max)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var all []int64
	var sum int64
	for range 20_000 {
		v := int64(math.Exp(rng.Float64() * 30))
		all, sum = append(all, v), sum+v
		h.Observe(v)
	}
	slices.Sort(all)
	s := h.Snapshot()
	if s.Count != int64(len(all)) || s.Sum != sum || s.Min != all[0] || s.Max != all[len(all)-1] {
		t.Errorf("%d values, sum %d, %d to %d; want %d, %d, %d to %d", s.Count, s.Sum, s.Min, s.Max,
			len(all), sum, all[0], all[len(all)-1])
	}
	for _, q := range []float64{0, 0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
		if got := s.Quantile(q); got < exact || got > exact+exact/8 {
			t.Errorf("quantile %v is %d, want %d", q, got, exact)
		}
	}
	for _, v := range []int64{0, 1, 7, 8, 16, 9 << 4, 1 << 20, 3 << 30} {
		exact, _ := slices.BinarySearch(all, v)
		if got := s.Below(v); got != int64(exact) {
			t.Errorf("%d values are below %d, want %d", got, v, exact)
		}
	}
	h.Reset()
	if s := h.Snapshot(); s.Count != 0 || s.Sum != 0 || s.Max != 0 || s.Min != 0 {
		t.Errorf("after Reset: %d values, sum %d, %d to %d", s.Count, s.Sum, s.Min, s.Max)
	}
}

func TestSince(t *testing.T) {
	var h Histogram
	for range 100 {
		h.Observe(1000)
	}
	before := h.Snapshot()
	for range 10 {
		h.Observe(3)
	}
	s := h.Snapshot().Since(before)
	if s.Count != 10 || s.Sum != 30 || s.Quantile(0.99) != 3 {
		t.Errorf("since the snapshot: %d values, sum %d, quantile %d", s.Count, s.Sum, s.Quantile(0.99))
	}
	h.Reset()
	h.Observe(5)
	if s := h.Snapshot().Since(before); s.Count != 1 || s.Sum != 5 {
		t.Errorf("after Reset: %d values, sum %d", s.Count, s.Sum)
	}
}

func TestNegativeCountsAsZero(t *testing.T) {
	var h Histogram
	h.Observe(-5)
	if s := h.Snapshot(); s.Count != 1 || s.Sum != 0 || s.Min != 0 || s.Max != 0 {
		t.Errorf("%d values, sum %d, %d to %d", s.Count, s.Sum, s.Min, s.Max)
	}
}

func TestConcurrentObserve(t *testing.T) {
	var h Histogram
	var wg sync.WaitGroup
	for g := range int64(4) {
		wg.Go(func() {
			for i := range int64(1000) {
				h.Observe(g*1000 + i + 1)
				if i%100 == 0 {
					h.Snapshot()
				}
			}
		})
	}
	wg.Wait()
	if s := h.Snapshot(); s.Count != 4000 || s.Sum != 4000*4001/2 || s.Min != 1 || s.Max != 4000 {
		t.Errorf("%d values, sum %d, %d to %d", s.Count, s.Sum, s.Min, s.Max)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Observe(12345) }); n != 0 {
		t.Errorf("Observe allocates %v times", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	for i := int64(0); b.Loop(); i++ {
		h.Observe(i & 1023)
	}
}

func BenchmarkObserveParallel(b *testing.B) {
	var h Histogram
	b.RunParallel(func(pb *testing.PB) {
		for i := int64(0); pb.Next(); i++ {
			h.Observe(i & 1023)
		}
	})
}
