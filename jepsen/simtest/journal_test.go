package simtest

import (
	"context"
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

// journal has the events of a simulation, with their virtual time: the members' log and the acts of
// the test. It is shown when the test fails.
type journal struct {
	start time.Time
	see   func(who string, r slog.Record) // gets each record; nil for nobody
	file  *journalFile                    // gets everything; nil for none
	// parent gets all lines, with prefix; nil: this is a journal of its own.
	parent *journal
	prefix string

	mu    sync.Mutex
	lines []string // the newest
	hash  hash.Hash64
}

// journalLines is the number of lines that are kept, and shown.
const journalLines = 400

// newJournal makes a journal; with a name everything goes to a file, too.
func newJournal(t *testing.T, name string) *journal {
	j := &journal{hash: fnv.New64a()}
	if name != "" {
		f, err := createJournal(name)
		if err != nil {
			t.Fatal(err)
		}
		j.file = f
	}
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

// of is a part of the journal: its lines begin with prefix, and others than those of j see them.
func (j *journal) of(prefix string) *journal {
	return &journal{start: j.start, file: j.file, parent: j, prefix: prefix}
}

// begin sets the clock to zero.
func (j *journal) begin() { j.start = time.Now() }

// end closes the file.
func (j *journal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		if err := j.file.close(); err != nil {
			fmt.Fprintln(os.Stderr, "journal:", err)
		}
		j.file = nil
	}
}

// age is the virtual time since it was begun.
func (j *journal) age() time.Duration { return time.Since(j.start) }

// digest is equal for equal journals.
func (j *journal) digest() string { return fmt.Sprintf("%016x", j.hash.Sum64()) }

func (j *journal) printf(format string, args ...any) { j.line(true, format, args...) }

// line adds a line; counts says that it is part of the digest. Only lines that are always there may
// be.
func (j *journal) line(counts bool, format string, args ...any) {
	if j.parent != nil {
		j.parent.line(counts, "%s%s", j.prefix, fmt.Sprintf(format, args...))
		return
	}
	line := fmt.Sprintf("%12.6f ", time.Since(j.start).Seconds()) + fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if counts {
		_, _ = io.WriteString(j.hash, line) // a hash takes everything
	}
	if j.file != nil {
		j.file.line(line)
	}
	if len(j.lines) >= 2*journalLines {
		j.lines = append([]string(nil), j.lines[journalLines:]...)
	}
	j.lines = append(j.lines, line)
}

// logger returns a logger with the name of who logs in its lines. The records of a program that was
// ended by force are written and not seen: runs is false from then on; nil: it never is.
func (j *journal) logger(who string, runs func() bool) *slog.Logger {
	return slog.New(&journalHandler{journal: j, who: who, runs: runs})
}

type journalHandler struct {
	journal *journal
	who     string
	runs    func() bool
	attrs   string
}

func (h *journalHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *journalHandler) Handle(_ context.Context, r slog.Record) error {
	if h.journal.see != nil && (h.runs == nil || h.runs()) {
		h.journal.see(h.who, r)
	}
	if r.Level < slog.LevelInfo && h.journal.file == nil {
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
