package loglimit

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// HandlerLines is the number of lines with one message that a Handler lets through in a Period.
	HandlerLines = 60
	// maxMessages bounds the number of distinguished messages. All others count as one.
	maxMessages = 1024
)

// A Handler bounds all lines of a log: of each message HandlerLines in a Period. The message is the
// kind, so it must not have parts that vary; those are attributes. When the Period of a message is
// over, a line gives the number of its suppressed lines. Lines below Info are not bounded: nobody
// sees them who has not asked for them.
type Handler struct {
	next  slog.Handler
	lines *lines // of this Handler and of those derived from it
}

// lines counts the lines of each message.
type lines struct {
	root slog.Handler // for lines about suppressed ones

	mu         sync.Mutex
	messages   map[string]*message
	swept      time.Time
	suppressed int64 // since the start
}

type message struct {
	level      slog.Level
	began      time.Time // the Period
	passed     int
	suppressed int64
}

// A summary is about the lines of one message in a Period that is over.
type summary struct {
	level      slog.Level
	msg        string
	suppressed int64
}

// NewHandler makes a Handler that gives the lines that it lets through to next.
func NewHandler(next slog.Handler) *Handler {
	return &Handler{next: next, lines: &lines{root: next, messages: map[string]*message{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.next.Handle(ctx, r)
	}
	ok, over := h.lines.pass(r.Message, r.Level, time.Now())
	h.lines.summarize(ctx, over)
	if !ok {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), lines: h.lines}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), lines: h.lines}
}

// Suppressed returns the number of suppressed lines since the start.
func (h *Handler) Suppressed() int64 {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	return h.lines.suppressed
}

// Flush logs the number of suppressed lines that no line has reported yet.
func (h *Handler) Flush() {
	h.lines.mu.Lock()
	over := h.lines.sweepLocked(time.Time{})
	h.lines.mu.Unlock()
	h.lines.summarize(context.Background(), over)
}

// pass reports whether a line may be logged now. About once a Period it returns the messages that
// were suppressed in a Period that is over.
func (l *lines) pass(msg string, level slog.Level, now time.Time) (ok bool, over []summary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.messages[msg]; now.Sub(l.swept) >= Period || m != nil && m.suppressed > 0 && now.Sub(m.began) >= Period {
		over = l.sweepLocked(now)
		l.swept = now
	}
	m := l.messages[msg]
	if m == nil && len(l.messages) >= maxMessages {
		msg = others
		m = l.messages[msg]
	}
	if m == nil {
		m = &message{level: level, began: now}
		l.messages[msg] = m
	}
	if m.passed >= HandlerLines {
		m.suppressed++
		l.suppressed++
		return false, over
	}
	m.passed++
	return true, over
}

// sweepLocked forgets the messages with a Period that is over, and returns the suppressed ones. At
// the zero time that is all of them.
func (l *lines) sweepLocked(now time.Time) (over []summary) {
	for msg, m := range l.messages {
		if !now.IsZero() && now.Sub(m.began) < Period {
			continue
		}
		if m.suppressed > 0 {
			over = append(over, summary{m.level, msg, m.suppressed})
		}
		delete(l.messages, msg)
	}
	slices.SortFunc(over, func(a, b summary) int { return strings.Compare(a.msg, b.msg) })
	return over
}

func (l *lines) summarize(ctx context.Context, over []summary) {
	for _, s := range over {
		if !l.root.Enabled(ctx, s.level) {
			continue
		}
		r := slog.NewRecord(time.Now(), s.level, "lines suppressed: there were too many with this message", 0)
		r.AddAttrs(slog.String("message", s.msg), slog.Int64("suppressed", s.suppressed))
		_ = l.root.Handle(ctx, r)
	}
}
