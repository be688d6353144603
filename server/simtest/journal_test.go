package simtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// journal is what happened in a simulation, with its virtual time: what the
// members log and what the test does to them. It is shown when the test fails.
type journal struct {
	start time.Time
	echo  io.Writer // nil unless asked for

	mu    sync.Mutex
	lines []string // the newest
}

// journalLines is how many lines are kept, and shown.
const journalLines = 400

// newJournal starts a journal; with the environment variable SIM_LOG everything
// goes to that file, too.
func newJournal(t *testing.T) *journal {
	j := &journal{start: time.Now()}
	if name := os.Getenv("SIM_LOG"); name != "" {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatalf("journal: %v", err)
		}
		j.echo = f
	}
	t.Cleanup(func() {
		if t.Failed() {
			j.mu.Lock()
			defer j.mu.Unlock()
			t.Logf("the end of the journal:\n%s", strings.Join(j.lines, "\n"))
		}
	})
	return j
}

func (j *journal) printf(format string, args ...any) {
	line := fmt.Sprintf("%12.6f ", time.Since(j.start).Seconds()) + fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) >= 2*journalLines {
		j.lines = append([]string(nil), j.lines[journalLines:]...)
	}
	j.lines = append(j.lines, line)
	if j.echo != nil {
		fmt.Fprintln(j.echo, line)
	}
}

// logger returns a logger whose lines carry the name of who logs.
func (j *journal) logger(who string) *slog.Logger {
	return slog.New(&journalHandler{journal: j, who: who})
}

type journalHandler struct {
	journal *journal
	who     string
	attrs   string
}

func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.journal.echo != nil
}

func (h *journalHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.journal.printf("%s %s %s%s%s", h.who, r.Level, r.Message, h.attrs, b.String())
	return nil
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	for _, a := range attrs {
		c.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &c
}

func (h *journalHandler) WithGroup(string) slog.Handler { return h }
