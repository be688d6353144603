package ops

import (
	"testing"
	"time"

	"lockkeeper/internal/histogram"
	"lockkeeper/server/ops/metrics"
)

// TestPausedPart: a member that is stopped for most of the time says so.
func TestPausedPart(t *testing.T) {
	f := &Figures{Pauses: &histogram.Histogram{}, Recents: &metrics.Recents{}}
	if part, longest := f.paused(); part != nil || longest != nil {
		t.Errorf("before the first look: %v, %v", *part, *longest)
	}
	for range 10 {
		f.Pauses.Observe(int64(5250 * time.Millisecond)) // 5.25 s late, each second
	}
	part, longest := f.paused()
	if part == nil || *part < 0.8 || *part > 0.88 || *longest < 5250 || *longest > 6000 {
		t.Errorf("paused for %v of the time, for %v ms at most", *part, *longest)
	}
}

func TestJavaDouble(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 51.25: "51.25", 2.0 / 3: "0.6667", 125: "125.0", 1e6 + 0.00004: "1000000.0"} {
		if got := JavaDouble(f); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
}
