package metrics

import (
	"sync"
	"time"

	"lockkeeper/internal/histogram"
)

// recentFor is the time that quantiles cover at the least, if there are that many readings. They
// cover twice that at the most, or the time since the reading before the last one.
const recentFor = 5 * time.Minute

// Recents limits quantiles to recent values: the 99th percentile of a year says nothing of the last
// hour. A reading remembers the counts, so an observation costs nothing more. The zero value is
// ready.
type Recents struct {
	mu sync.Mutex
	by map[*histogram.Histogram]*recent
}

// recent has a histogram's counts at two earlier readings, the older one first.
type recent struct {
	older, newer *histogram.Snapshot // nil: nothing
	at           time.Time           // of newer
}

// Distribution reads a histogram. unit and bounds are as in Distribution.
func (r *Recents) Distribution(h *histogram.Histogram, unit float64, bounds []int64) Distribution {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[*histogram.Histogram]*recent{}
	}
	now := time.Now()
	w := r.by[h]
	if w == nil {
		w = &recent{at: now}
		r.by[h] = w
	}
	all := h.Snapshot()
	if w.newer != nil && all.Count < w.newer.Count { // it has been emptied
		w.older, w.newer, w.at = nil, nil, now
	}
	if now.Sub(w.at) >= recentFor {
		w.older, w.newer, w.at = w.newer, all, now
	}
	return Distribution{All: all, Recent: all.Since(w.older), Unit: unit, Bounds: bounds}
}
