package loglimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A Handler bounds the lines of each message, whichever logger made from it they come through, and
// says of all lines that it has suppressed how many they were.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := NewHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log := slog.New(h)
		flood := func() {
			for i := range 1000 {
				log.With("client", i).Info("refused")
				log.WithGroup("g").Warn("closed", "client", i)
				log.Debug("detail")
			}
		}
		count := func(what string) int { return strings.Count(out.String(), what) }
		flood()
		log.Error("other")
		for what, want := range map[string]int{"msg=refused": HandlerLines, "msg=closed": HandlerLines, "msg=other": 1, "msg=detail": 1000} {
			if n := count(what); n != want {
				t.Errorf("%d lines with %s, want %d", n, what, want)
			}
		}
		out.Reset()
		time.Sleep(Period)
		log.Info("anything")
		for _, want := range []string{"message=refused suppressed=940", "message=closed suppressed=940", "msg=anything"} {
			if count(want) != 1 {
				t.Errorf("no line with %s:\n%s", want, out.String())
			}
		}
		out.Reset()
		flood()
		h.Flush()
		if count("msg=refused") != HandlerLines || count("message=refused suppressed=940") != 1 {
			t.Errorf("in the next period:\n%s", out.String())
		}
		if n := h.Suppressed(); n != 4*940 {
			t.Errorf("%d lines were suppressed, want %d", n, 4*940)
		}
		out.Reset()
		h.Flush()
		if out.Len() > 0 {
			t.Errorf("said twice: %s", out.String())
		}
	})
}

// Messages that vary fill neither the memory nor the log.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := NewHandler(slog.NewTextHandler(&out, nil))
		for range 3 {
			for i := range 10 * maxMessages {
				slog.New(h).LogAttrs(context.Background(), slog.LevelInfo, fmt.Sprint(i))
			}
			if n := strings.Count(out.String(), "\n"); n > maxMessages+HandlerLines+1 || len(h.lines.messages) > maxMessages+1 {
				t.Errorf("%d lines and %d messages", n, len(h.lines.messages))
			}
			out.Reset()
			time.Sleep(Period)
		}
	})
}
