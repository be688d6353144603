package quorum

import (
	"context"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatAfter is how long a message of the raft library, once logged, is only logged as debug: it
// reports an unreachable peer with each of ten heartbeats a second (UPSTREAM.md, 14).
const repeatAfter = 30 * time.Second

// hlog makes the raft library log through slog, one level lower: what it calls information is detail
// to an operator, and what it calls an error is most often a peer that is down.
type hlog struct {
	to   *slog.Logger
	name string
	seen *seenMessages
}

type seenMessages struct {
	mu sync.Mutex
	at map[string]time.Time
}

var _ hclog.Logger = hlog{}

func newHclog(to *slog.Logger) hclog.Logger {
	return hlog{to: to.With("part", "raft"), seen: &seenMessages{at: map[string]time.Time{}}}
}

// Log implements hclog.Logger.
func (h hlog) Log(level hclog.Level, msg string, args ...any) {
	l := slog.LevelDebug
	switch level {
	case hclog.Warn, hclog.Error:
		l = slog.LevelInfo
		if h.seen.recently(msg) {
			l = slog.LevelDebug
		}
	}
	h.to.Log(context.Background(), l, msg, args...)
}

func (s *seenMessages) recently(msg string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if last, ok := s.at[msg]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	if len(s.at) < 1000 {
		s.at[msg] = now
	}
	return false
}

// The rest of hclog.Logger.

func (h hlog) Trace(msg string, args ...any) { h.Log(hclog.Trace, msg, args...) }
func (h hlog) Debug(msg string, args ...any) { h.Log(hclog.Debug, msg, args...) }
func (h hlog) Info(msg string, args ...any)  { h.Log(hclog.Info, msg, args...) }
func (h hlog) Warn(msg string, args ...any)  { h.Log(hclog.Warn, msg, args...) }
func (h hlog) Error(msg string, args ...any) { h.Log(hclog.Error, msg, args...) }

func (h hlog) IsTrace() bool { return false }
func (h hlog) IsDebug() bool { return h.to.Enabled(context.Background(), slog.LevelDebug) }
func (h hlog) IsInfo() bool  { return h.IsDebug() }
func (h hlog) IsWarn() bool  { return true }
func (h hlog) IsError() bool { return true }

func (h hlog) ImpliedArgs() []any { return nil }
func (h hlog) With(args ...any) hclog.Logger {
	return hlog{to: h.to.With(args...), name: h.name, seen: h.seen}
}
func (h hlog) Name() string { return h.name }
func (h hlog) Named(name string) hclog.Logger {
	return hlog{to: h.to, name: name, seen: h.seen}
}
func (h hlog) ResetNamed(name string) hclog.Logger { return h.Named(name) }
func (h hlog) SetLevel(hclog.Level)                {}
func (h hlog) GetLevel() hclog.Level               { return hclog.Info }

// StandardLogger implements hclog.Logger.
func (h hlog) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(h.to.Handler(), slog.LevelDebug)
}

// StandardWriter implements hclog.Logger.
func (h hlog) StandardWriter(opts *hclog.StandardLoggerOptions) io.Writer {
	return h.StandardLogger(opts).Writer()
}
