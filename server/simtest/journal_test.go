package simtest

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
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
	see   func(who string, r slog.Record) // of what is logged; nil for nobody
	name  string                          // of the file that gets everything; "" for none

	mu    sync.Mutex
	lines []string // the newest; all of them if there is a file
	hash  hash.Hash64
}

// journalLines is how many lines are kept, and shown.
const journalLines = 400

// newJournal makes a journal; everything goes to the file of that name too, when it ends.
func newJournal(t *testing.T, name string) *journal {
	j := &journal{name: name, hash: fnv.New64a()}
	t.Cleanup(func() {
		if t.Failed() {
			j.mu.Lock()
			defer j.mu.Unlock()
			t.Logf("the end of the journal:\n%s", strings.Join(j.lines[max(0, len(j.lines)-journalLines):], "\n"))
		}
	})
	j.begin()
	return j
}

// begin sets the clock to zero.
func (j *journal) begin() { j.start = time.Now() }

// end writes the file. It does so only now because a program that waits for a file is not the same program: Go lets
// others run meanwhile.
func (j *journal) end() {
	if j.name == "" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	f, err := os.OpenFile(j.name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err == nil {
		_, err = f.WriteString(strings.Join(j.lines, "\n") + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "journal:", err)
	}
}

// age is the virtual time since it was begun.
func (j *journal) age() time.Duration { return time.Since(j.start) }

// digest is equal for equal journals.
func (j *journal) digest() string { return fmt.Sprintf("%016x", j.hash.Sum64()) }

func (j *journal) printf(format string, args ...any) { j.line(true, format, args...) }

// line adds a line; counts says that it is part of the digest. Only what is always there may be.
func (j *journal) line(counts bool, format string, args ...any) {
	line := fmt.Sprintf("%12.6f ", time.Since(j.start).Seconds()) + fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if counts {
		_, _ = io.WriteString(j.hash, line) // a hash takes everything
	}
	if len(j.lines) >= 2*journalLines && j.name == "" {
		j.lines = append([]string(nil), j.lines[journalLines:]...)
	}
	j.lines = append(j.lines, line)
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

func (h *journalHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *journalHandler) Handle(_ context.Context, r slog.Record) error {
	if h.journal.see != nil {
		h.journal.see(h.who, r)
	}
	if r.Level < slog.LevelInfo && h.journal.name == "" {
		return nil
	}
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.journal.line(r.Level >= slog.LevelInfo, "%s %s %s%s%s", h.who, r.Level, r.Message, h.attrs, b.String())
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
