package loglimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A cause has one line in a Period, and the next one says how many there would have been.
func TestOneLineForACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil)))
		for range 1000 {
			l.Warn("a", "refused", "from", "x")
			l.Warn("b", "dropped")
		}
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("%d lines for two causes:\n%s", n, out.String())
		}
		out.Reset()
		time.Sleep(Period)
		l.Warn("a", "refused", "from", "x")
		if !strings.Contains(out.String(), "suppressed=999") {
			t.Errorf("logged %q", out.String())
		}
	})
}

// A client that can choose causes fills neither the memory nor the log.
func TestCausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil)))
		for range 3 {
			for i := range 10 * maxCauses {
				l.Warn(fmt.Sprint(i), "refused")
			}
			if n := strings.Count(out.String(), "\n"); n > maxCauses+1 || len(l.causes) > maxCauses+1 {
				t.Errorf("%d lines and %d causes", n, len(l.causes))
			}
			out.Reset()
			time.Sleep(Period)
		}
	})
}
