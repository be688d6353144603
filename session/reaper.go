package session

import (
	"context"
	"math"
	"slices"
	"time"

	"lockkeeper/znode"
)

// reapLoop deletes containers that have become empty and TTL nodes that have expired, while this
// member leads (docs/protocol/semantics.md 5.2). It only proposes: each node is checked again when
// the command is applied.
func (m *Manager) reapLoop(ctx context.Context) {
	every(ctx, m.cfg.ReapInterval, func() {
		if m.tracker.leads() {
			m.reap(ctx)
		}
	})
}

// reapRows is how many nodes are read under one lock.
const reapRows = 20_000

// reap proposes the deletion of what is perishable now, at the pace that the configuration allows.
// Proposals that are lost with the leadership are made again by the next leader. If nothing is
// written, it brings the cluster's clock into the log: after a restart, containers and TTL nodes
// count from there.
func (m *Manager) reap(ctx context.Context) {
	neverUsedMs := int32(min(m.cfg.ReapNeverUsed.Milliseconds(), math.MaxInt32))
	var paths []string
	now, behind := m.replica.ClockMs(), int64(0)
	for row := uint32(0); ; {
		var found []string
		m.replica.View(func(s *znode.Store) {
			found, row = s.Perishable(now, neverUsedMs, row, reapRows)
			if s.HasPerishables() {
				behind = now - s.ClockMs()
			}
		})
		if paths = append(paths, found...); row == 0 {
			break
		}
	}
	slices.Sort(paths)
	if len(paths) == 0 && behind < m.cfg.ReapInterval.Milliseconds()/2 {
		return
	}
	if len(paths) == 0 {
		paths = []string{""} // no node: its entry brings the clock into the log
	}
	m.log.Debug("reaping containers and TTL nodes", "nodes", len(paths))
	pace := time.NewTicker(max(time.Minute/time.Duration(m.cfg.ReapPerMinute), 1))
	defer pace.Stop()
	for _, path := range paths {
		c := &znode.Command{Body: &znode.Reap{Path: path, NeverUsedMs: neverUsedMs}}
		if m.replica.ProposeOnce(ctx, c) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}
