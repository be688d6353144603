package quorum

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatAfter is how long a message of the raft library, once logged, is only logged as debug: it
// reports an unreachable peer with each of ten heartbeats a second (UPSTREAM.md, 14).
const repeatAfter = 30 * time.Second

// hlog makes the raft library log through slog, one level lower: what it calls information is
// detail to an operator, and what it calls an error is most often a peer that is down. It has the
// methods that the library calls; the others are those of a logger that logs nothing.
type hlog struct {
	hclog.Logger
	to   *slog.Logger
	seen *seenMessages
}

type seenMessages struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newHclog(to *slog.Logger) hclog.Logger {
	return hlog{Logger: hclog.NewNullLogger(), to: to.With("part", "raft"), seen: &seenMessages{at: map[string]time.Time{}}}
}

// Debug implements hclog.Logger.
func (h hlog) Debug(msg string, args ...any) { h.to.Debug(msg, args...) }

// Info implements hclog.Logger.
func (h hlog) Info(msg string, args ...any) { h.to.Debug(msg, args...) }

// Warn implements hclog.Logger.
func (h hlog) Warn(msg string, args ...any) { h.Error(msg, args...) }

// Error implements hclog.Logger.
func (h hlog) Error(msg string, args ...any) {
	if h.seen.recently(msg) {
		h.to.Debug(msg, args...)
	} else {
		h.to.Info(msg, args...)
	}
}

// With implements hclog.Logger.
func (h hlog) With(args ...any) hclog.Logger {
	return hlog{Logger: h.Logger, to: h.to.With(args...), seen: h.seen}
}

// recently reports whether a message was logged within repeatAfter. If not, it counts as logged
// now.
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
