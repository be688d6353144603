package metrics

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/histogram"
)

func lines(l List) (out []string) {
	for name, value := range l.Lines() {
		out = append(out, fmt.Sprintf("%s %T %v", name, value, value))
	}
	return out
}

func TestLines(t *testing.T) {
	var h histogram.Histogram
	for range 10 {
		h.Observe(1_600_000)
	}
	ms := Distribution{All: h.Snapshot(), Unit: 1e-6}
	got := lines(List{
		Gauge("znode_count", "", 7),
		Gauge("avg_latency", "", 0.0),
		Counter("terms", "", uint64(3)),
		Summary("fsynctime", "", ms),
		Histogram("fsync_seconds", "", Distribution{All: h.Snapshot(), Unit: 1e-9}),
	})
	want := []string{
		"znode_count int64 7", "avg_latency float64 0", "terms int64 3",
		"avg_fsynctime float64 1.6", "min_fsynctime int64 2", "max_fsynctime int64 2", "cnt_fsynctime int64 10",
		"sum_fsynctime int64 16",
		"avg_fsync_seconds float64 0.0016", "min_fsync_seconds float64 0.0016", "max_fsync_seconds float64 0.0016",
		"cnt_fsync_seconds int64 10", "sum_fsync_seconds float64 0.016", "p50_fsync_seconds float64 0.0016",
		"p95_fsync_seconds float64 0.0016", "p99_fsync_seconds float64 0.0016", "p999_fsync_seconds float64 0.0016",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines\n%q\nwant\n%q", got, want)
	}
}

// Quantiles forget values that are older than ten minutes, if they are read now and then; counts do
// not.
func TestQuantilesAreRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h histogram.Histogram
		var r Recents
		read := func() *Distribution {
			d := r.Distribution(&h, 1, nil)
			return &d
		}
		for range 1000 {
			h.Observe(1000)
		}
		if q := read().quantile(0.5); q < 1000 {
			t.Errorf("median %v, want 1000", q)
		}
		for range 3 {
			time.Sleep(recentFor)
			h.Observe(1)
			read()
		}
		d := read()
		if q := d.quantile(0.99); q != 1 {
			t.Errorf("quantile 0.99 is %v, and nothing but 1 was observed for ten minutes", q)
		}
		if d.All.Count != 1003 {
			t.Errorf("%d values, want 1003", d.All.Count)
		}
		h.Reset()
		h.Observe(7)
		if q := read().quantile(0.99); q != 7 {
			t.Errorf("quantile 0.99 after a reset is %v", q)
		}
	})
}
