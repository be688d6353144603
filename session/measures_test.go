package session

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/histogram"
	"lockkeeper/internal/loglimit"
	"lockkeeper/wire"
)

// The margin of a lease is the rest of its timeout when it was extended, and 0 when the
// session has expired, once.
func TestLeaseMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var margin histogram.Histogram
		tr := newTracker(2*time.Second, nil, &margin)
		tr.leading = true
		tr.renew(1, 1, 8*time.Second)
		for _, after := range []time.Duration{2 * time.Second, 6 * time.Second} {
			time.Sleep(after)
			tr.touch([]wire.SessionID{1, 2})
		}
		s := margin.Snapshot()
		if s.Count != 2 || s.Max != LeaseMarginUnit*3/4 || s.Min != LeaseMarginUnit/4 {
			t.Errorf("%d margins from %d to %d, of %d", s.Count, s.Min, s.Max, LeaseMarginUnit)
		}
		time.Sleep(20 * time.Second)
		for range 2 {
			tr.due()
			time.Sleep(closeRetry)
		}
		if s := margin.Snapshot(); s.Count != 3 || s.Min != 0 {
			t.Errorf("after it expired: %d margins, the smallest %d", s.Count, s.Min)
		}
	})
}

// A client that was heard from, and whose lease is not confirmed within a third of its timeout, is
// warned of; one that is silent is not.
func TestLeaseTroubleIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := &Manager{member: member{instants: instants{base: time.Now()}, refusals: loglimit.New(slog.New(slog.NewTextHandler(&out, nil)))}}
		var heard, silent lease
		time.Sleep(time.Second)
		heard.init(&m.instants, 6*time.Second, m.since())
		silent.init(&m.instants, 6*time.Second, m.since())
		heard.openSince.Store(m.since())
		for _, step := range []struct {
			after time.Duration
			want  bool
		}{{time.Second, false}, {1100 * time.Millisecond, true}} {
			time.Sleep(step.after)
			if got := heard.overdue(m.since()); got != step.want {
				t.Errorf("overdue is %t after %v", got, step.after)
			}
			if silent.overdue(m.since()) {
				t.Error("a silent client is overdue")
			}
		}
		m.leaseTrouble(0, 0)
		for range 5 {
			m.leaseTrouble(1, 3)
		}
		if s := out.String(); strings.Count(s, "\n") != 2 || !strings.Contains(s, "clients=3") || !strings.Contains(s, "connections=1") {
			t.Errorf("logged\n%s", s)
		}
	})
}
