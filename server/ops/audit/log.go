package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/session"
)

// Config describes a Log.
type Config struct {
	// File is where the lines go; empty: to Logger.
	File string
	// FileBytes is the length at which the file is renamed, and Files the number of renamed ones to
	// keep.
	FileBytes, Files int
	// QueueBytes is how much memory lines that are not written yet may take.
	QueueBytes int
	// User is the member's name in lines about its own acts.
	User string
	// Logger is told of trouble with the file.
	Logger *slog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
}

const (
	// retryAfter is how long the writer waits after an error.
	retryAfter = time.Second
	// closeTimeout bounds how long Close waits for the disk.
	closeTimeout = 5 * time.Second
)

// Stats are the counters of a Log.
type Stats struct {
	Lines int64 // that were taken
	Lost  int64 // that did not fit into the queue
}

// A Log is the audit log of one member. Its methods may be called by several goroutines.
type Log struct {
	cfg  Config
	sink sink
	log  *loglimit.Limiter

	wake    chan struct{} // there is something to write
	closing chan struct{}
	done    chan struct{} // the writer has ended

	mu      sync.Mutex
	pending []byte // whole lines
	writing int    // bytes that the writer has taken and not written yet
	closed  bool
	stats   Stats
	untold  int64 // lines that were lost since the log said so last
}

// sink takes lines. It returns the number of bytes that it has written, always whole lines.
type sink interface {
	write(lines []byte) (int, error)
	close() error
}

// Open opens the file, and starts the goroutine that writes it.
func Open(cfg Config) (*Log, error) {
	if cfg.File == "" {
		return start(cfg, logSink{cfg.Logger}), nil
	}
	f, err := openFile(cfg.File, int64(cfg.FileBytes), cfg.Files)
	if err != nil {
		return nil, err
	}
	return start(cfg, f), nil
}

func start(cfg Config, s sink) *Log {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Log{
		cfg: cfg, sink: s, log: loglimit.New(cfg.Logger),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	go l.run()
	return l
}

// Audit takes a record. It never waits for the disk.
func (l *Log) Audit(r *session.AuditRecord) {
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	before := len(l.pending)
	l.sayLostLocked(now)
	l.pending = appendLine(l.pending, now, r, l.cfg.User)
	if len(l.pending)+l.writing > l.cfg.QueueBytes {
		l.pending = l.pending[:before]
		l.stats.Lost++
		l.untold++
		return
	}
	l.untold = 0
	l.stats.Lines++
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// sayLostLocked adds a line about those that were lost, in front of the first that is not.
func (l *Log) sayLostLocked(now time.Time) {
	if l.untold > 0 {
		l.pending = appendField(appendPrefix(l.pending, now, session.AuditFailure), "user", l.cfg.User)
		l.pending = fmt.Appendf(l.pending, "\toperation=auditLinesLost\tlines=%d\tresult=failure\n", l.untold)
	}
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// run writes pending lines until Close.
func (l *Log) run() {
	defer close(l.done)
	var batch []byte
	for {
		if batch = l.take(batch); len(batch) > 0 {
			if !l.write(batch) {
				return
			}
			continue
		}
		select {
		case <-l.wake:
		case <-l.closing:
			if l.empty() {
				return
			}
		}
	}
}

// take returns the pending lines, and reuses a written buffer for new ones, unless it is large.
func (l *Log) take(written []byte) []byte {
	const most = 1 << 20
	if cap(written) > most {
		written = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.pending
	l.pending, l.writing = written[:0], len(batch)
	return batch
}

// write writes lines. It tries again after an error, until Close: then write returns false, and the
// remaining lines are lost.
func (l *Log) write(lines []byte) bool {
	for {
		n, err := l.sink.write(lines)
		lines = lines[n:]
		l.mu.Lock()
		l.writing -= n
		l.mu.Unlock()
		if err == nil {
			return true
		}
		l.log.Error("write", "the audit log cannot be written: lines wait in memory, and are lost beyond "+
			"audit.queueBytes",
			"file", l.cfg.File, "err", err)
		select {
		case <-time.After(retryAfter):
		case <-l.closing:
			return false
		}
	}
}

func (l *Log) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) == 0
}

// Close writes the pending lines, for 5 s at the most, and closes the file. It ignores later
// records.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.closing)
	select {
	case <-l.done:
	case <-time.After(closeTimeout):
		return fmt.Errorf("audit: %s: its disk takes too long, the last lines are missing", l.cfg.File)
	}
	err := l.sink.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if missing := l.writing + len(l.pending); missing > 0 || l.untold > 0 {
		err = errors.Join(err, fmt.Errorf("audit: %s: the last lines are missing: %d bytes, and %d lines before them",
			l.cfg.File, missing, l.untold))
	}
	return err
}

// logSink writes to the member's own log. The fields of a line become attributes.
type logSink struct{ log *slog.Logger }

func (s logSink) write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		_, text, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), prefixEnd)
		var attrs []slog.Attr
		for field := range strings.SplitSeq(text, "\t") {
			key, val, _ := strings.Cut(field, "=")
			attrs = append(attrs, slog.String(key, val))
		}
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "audit", attrs...)
	}
	return len(lines), nil
}

func (s logSink) close() error { return nil }
