package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Period is how long a cause is silent after a line.
	Period = time.Minute
	// maxCauses bounds the number of distinguished causes. All others count as one.
	maxCauses = 256
	others    = "others"
)

// A Limiter logs at most one line for each cause in a Period. It may be used by several goroutines.
type Limiter struct {
	log *slog.Logger

	mu     sync.Mutex
	causes map[string]*cause
}

type cause struct {
	logged     time.Time
	suppressed int64
}

// New makes a Limiter that logs to log.
func New(log *slog.Logger) *Limiter {
	return &Limiter{log: log, causes: map[string]*cause{}}
}

// Warn logs a warning, unless its cause has had a line within the last Period. A line that follows
// others that were left out has their number as suppressed.
func (l *Limiter) Warn(cause, msg string, args ...any) { l.line(slog.LevelWarn, cause, msg, args) }

// Error is Warn for faults that an operator has to look at.
func (l *Limiter) Error(cause, msg string, args ...any) { l.line(slog.LevelError, cause, msg, args) }

func (l *Limiter) line(level slog.Level, cause, msg string, args []any) {
	suppressed, ok := l.pass(cause, time.Now())
	if !ok {
		return
	}
	if suppressed > 0 {
		args = append(args[:len(args):len(args)], "suppressed", suppressed)
	}
	l.log.Log(context.Background(), level, msg, args...)
}

// pass reports whether a line may be logged now, and the number of suppressed lines since the last
// one.
func (l *Limiter) pass(name string, now time.Time) (suppressed int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.causes[name]
	if c == nil {
		if len(l.causes) >= maxCauses {
			l.forget(now)
		}
		if len(l.causes) >= maxCauses {
			name = others
		}
		if c = l.causes[name]; c == nil {
			c = &cause{}
			l.causes[name] = c
		}
	}
	if !c.logged.IsZero() && now.Sub(c.logged) < Period {
		c.suppressed++
		return 0, false
	}
	suppressed, c.suppressed, c.logged = c.suppressed, 0, now
	return suppressed, true
}

// forget drops the causes with an interval that is over and without suppressed lines.
func (l *Limiter) forget(now time.Time) {
	for name, c := range l.causes {
		if c.suppressed == 0 && now.Sub(c.logged) >= Period {
			delete(l.causes, name)
		}
	}
}
