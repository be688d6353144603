package session

import (
	"cmp"
	"context"
	"crypto/sha1"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"lockkeeper/internal/loglimit"
	"lockkeeper/session/admission"
	"lockkeeper/wire"
)

// member is the part of a Manager that every connection uses: settings, replica, clock, admission,
// counters, and the watch table. It knows no session.
type member struct {
	cfg      Config
	log      *slog.Logger
	refusals *loglimit.Limiter // for refusals of clients
	replica  Replica           // from Start on
	ctx      context.Context   // ends with Close
	instants
	moments
	numbers

	stats     stats
	gate      *admission.Gate
	outputs   outputs
	answering longAnswers // 1: see executeLong
	watches   WatchTable
	reports   leaseReports
	audit     auditTrail
}

func (m *member) init(cfg Config) {
	cfg.setDefaults()
	m.cfg, m.log, m.refusals = cfg, cfg.Logger, loglimit.New(cfg.Logger)
	m.instants, m.moments = instants{cfg.Clock, cfg.Clock.Now()}, moments{time.Now()}
	m.gate = admission.New(admission.Config{Limits: cfg.Limits, RateQuotas: cfg.RateQuotas, MaxTimeout: cfg.MaxTimeout,
		KeepQuotas: cfg.KeepQuotas, Refusals: m.refusals})
	m.cfg.Limits = *m.gate.Limits()
	m.answering.Weighted = semaphore.NewWeighted(1)
	m.outputs = outputs{moments: m.moments, log: m.log, memory: &m.gate.Memory, stats: &m.stats, long: &m.answering,
		max: 2 * m.gate.Limits().Response}
	m.watches.init(m.gate, &m.stats)
	m.reports.init(&m.instants, m.log)
	m.audit.init(cfg.Audit, &m.cfg.Auth)
	m.numbers.init(cfg.Member, cfg.Now())
}

func (c *Config) setDefaults() {
	c.Tick = cmp.Or(c.Tick, 3*time.Second)
	c.MinTimeout = cmp.Or(c.MinTimeout, 2*c.Tick)
	c.MaxTimeout = cmp.Or(c.MaxTimeout, 20*c.Tick)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Reap.Interval = cmp.Or(c.Reap.Interval, time.Minute)
	c.Reap.PerMinute = cmp.Or(c.Reap.PerMinute, 10_000)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Auth.DigestHash == nil {
		c.Auth.DigestHash = sha1.New
	}
	c.QuotaError = cmp.Or(c.QuotaError, wire.CodeBadArguments)
}

// ErrNotServing says that this member has no leader, or has not caught up with it since it started;
// the client should try another one.
var ErrNotServing = errors.New("session: no leader, or not caught up with it")

// errAhead says that the client has seen later state than this member has.
var errAhead = errors.New("session: client is ahead of this member")

// joined reports whether this member has caught up with a leader since it started.
func (m *member) joined() bool {
	select {
	case <-m.replica.CaughtUp():
		return true
	default:
		return false
	}
}
