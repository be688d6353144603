package quorum

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/loglimit"
	"lockkeeper/znode"
)

// A write to the log and an entry that take long are counted, and logged once a minute.
func TestSlowWritesAndEntriesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		e := &engine{cfg: Config{ID: 1, Seams: Seams{Now: time.Now}, SlowFsync: 100 * time.Millisecond}, log: log, trouble: loglimit.New(log)}
		r := &Replica{engine: e, leadership: newLeadership(e, nil)}
		r.state = &state{engine: e, leadership: r.leadership}
		up := newAbove(&e.cfg)
		up.connect(r)
		write := func(took time.Duration) {
			start := time.Now()
			time.Sleep(took)
			up.Written([]*raft.Log{{Index: 1, Type: raft.LogCommand, AppendedAt: start.Add(-3 * time.Millisecond)}}, start, false)
		}
		apply := func(took time.Duration) {
			start := time.Now()
			time.Sleep(took)
			r.state.observe(&raft.Log{Index: 1}, &znode.Entry{Stamp: znode.Stamp{TimeMs: start.UnixMilli()}}, start)
		}
		write(99 * time.Millisecond)
		apply(slowApply - time.Millisecond)
		if out.Len() > 0 {
			t.Errorf("logged below the limits: %s", out.String())
		}
		for range 3 {
			write(150 * time.Millisecond)
			apply(slowApply)
		}
		text := out.String()
		if strings.Count(text, "\n") != 2 || !strings.Contains(text, "disk of the log is slow") || !strings.Contains(text, "took=150ms") ||
			!strings.Contains(text, "took long to apply") {
			t.Errorf("three slow writes and entries are logged as\n%s", text)
		}
		m := r.Measures()
		if f := m.Fsync.Snapshot(); f.Count != 4 || f.Max != int64(150*time.Millisecond) || m.SlowFsyncs.Load() != 3 {
			t.Errorf("%d writes of up to %d ns, %d of them slow", f.Count, f.Max, m.SlowFsyncs.Load())
		}
		if p := m.Proposal.Snapshot(); p.Count != 4 || p.Max != int64(3*time.Millisecond) {
			t.Errorf("%d proposals, up to %d ns", p.Count, p.Max)
		}
		if a := m.Propagation.Snapshot(); a.Count != 4 || a.Max < int64(slowApply) {
			t.Errorf("%d entries propagated, up to %d ns", a.Count, a.Max)
		}
		m.Reset()
		if m.Fsync.Snapshot().Count != 0 || m.SlowFsyncs.Load() != 0 {
			t.Error("Reset leaves something")
		}
	})
}
