package console

import (
	"fmt"
	"strings"
	"time"

	"lockkeeper/server/ops/metrics"
	"lockkeeper/znode"
)

const (
	// contendedLocks is the number of locks with metrics of their own.
	contendedLocks = 10
	// pathLabelBytes is how much of a lock's path its metrics have at the most.
	pathLabelBytes = 200
)

// LockMetrics are the metrics of the locks with the most waiters, and of deadlocks.
func LockMetrics(view func(func(*znode.Store)), now time.Time) (list metrics.List) {
	seen := map[string]bool{}
	waits := Survey(view, contendedLocks)
	if waits.Known {
		list = append(list, metrics.Gauge("lock_deadlocks", "deadlocks: sessions that wait for each other in a "+
			"circle, over any number "+
			"of locks; absent while too many contend to look for them", waits.Deadlocks))
	}
	for _, c := range waits.Contended {
		path := strings.ToValidUTF8(c.Path[:min(len(c.Path), pathLabelBytes)], "\uFFFD")
		if seen[path] { // another lock with the same beginning
			continue
		}
		seen[path] = true
		list = append(list,
			metrics.Gauge("lock_waiters", fmt.Sprintf("clients that wait for a lock; of the %d locks with the most, "+
				"by the first %d bytes of their path", contendedLocks, pathLabelBytes), c.Waiting).With("path", path),
			metrics.Gauge("lock_longest_wait_seconds", "seconds that the first of those who wait for it has waited, "+
				"by the wall clock",
				c.LongestWait(now).Seconds()).With("path", path))
	}
	return list
}
