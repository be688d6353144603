package server

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/server/ops"
)

// A wall clock that is set gives one warning, and more only after a minute; one that runs gives
// none.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var wrong atomic.Int64
		w := &clockWatch{log: loglimit.New(slog.New(slog.NewTextHandler(&out, nil))),
			now: func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.loop(ctx)
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if out.Len() > 0 {
			t.Errorf("clocks that agree: %s", out.String())
		}
		for _, by := range []time.Duration{-time.Hour, 2 * time.Second, time.Second} {
			wrong.Add(int64(by))
			time.Sleep(2 * ops.ClockLook)
			synctest.Wait()
		}
		if n := strings.Count(out.String(), "wall clock was set"); n != 1 || !strings.Contains(out.String(), "by=-1h0m0s") {
			t.Errorf("%d lines for three jumps within a minute:\n%s", n, out.String())
		}
		time.Sleep(loglimit.Period)
		wrong.Add(int64(time.Minute))
		time.Sleep(2 * ops.ClockLook)
		synctest.Wait()
		if !strings.Contains(out.String(), "by=1m0s suppressed=2") {
			t.Errorf("a minute later:\n%s", out.String())
		}
		cancel()
		<-ended
	})
}

// A process that does not run is late, and its wall clock has not been set.
func TestPausesAreNoJumps(t *testing.T) {
	var out bytes.Buffer
	w := &clockWatch{log: loglimit.New(slog.New(slog.NewTextHandler(&out, nil)))}
	w.compare(ops.ClockLook+3*time.Second, ops.ClockLook+3*time.Second)
	if s := out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "did not run") || !strings.Contains(s, "late=3s") {
		t.Errorf("logged %q", s)
	}
	if s := w.pauses.Snapshot(); s.Count != 1 || s.Max != int64(3*time.Second) {
		t.Errorf("%d pauses of up to %d ns", s.Count, s.Max)
	}
}
