package server

import (
	"context"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
)

const (
	// shedTime is for how long a member moves its clients to others, one after the other.
	shedTime = 5 * time.Second
	// drainNote is how often a member that waits to stop says why it waits.
	drainNote = 10 * time.Second
)

// Drain prepares a stop that clients of other members do not notice, and its own as little as can
// be. It waits, at most for that time, until the leader says that the others can do without this
// member. Then the member transfers the leadership if it has it, accepts no more clients, and moves
// its clients to the others, within a few seconds; the streams of locks over HTTP end. Shutdown has
// to follow. The end of ctx ends it.
func (s *Server) Drain(ctx context.Context, wait time.Duration) {
	s.awaitLeave(ctx, wait)
	s.leaving.Store(true)
	if s.replica.Leader() == s.replica.ID() && !s.cfg.Standalone() {
		within, cancel := context.WithTimeout(ctx, door.Timeout)
		defer cancel()
		if err := s.replica.TransferLeadership(within, quorum.NoMember, nil); err != nil {
			s.log.Info("leadership not transferred before stopping", "err", err)
		}
	}
	s.port.stopAccepting()
	s.surfaces.locks.Drain()
	if n := s.sessions.Shed(ctx, 100, shedTime); n > 0 {
		s.log.Info("clients moved to the other members", "sessions", n)
	}
}

// awaitLeave waits until the others can do without this member.
func (s *Server) awaitLeave(ctx context.Context, wait time.Duration) {
	began, noted := time.Now(), time.Time{}
	for {
		asking, cancel := context.WithTimeout(ctx, door.Timeout)
		a, err := s.replica.MayStop(asking, quorum.StopWill)
		cancel()
		if err != nil {
			a.Why = "the leader does not say: " + err.Error()
		}
		waited := time.Since(began)
		switch {
		case a.May:
			s.log.Info("stopping: the other members can do without this one", "waited", waited.Round(time.Millisecond))
			return
		case a.Hopeless:
			s.log.Info("stopping without waiting for other members", "why", a.Why)
			return
		case waited >= wait || ctx.Err() != nil:
			s.log.Warn("stopping although the other members cannot do without this one", "why", a.Why, "waited",
				waited.Round(time.Millisecond))
			return
		case time.Since(noted) >= drainNote:
			noted = time.Now()
			s.log.Warn("told to stop: waiting until the other members can do without this one", "why", a.Why, "atMost",
				wait)
		}
		select {
		case <-time.After(min(ops.StopPause, wait-waited)):
		case <-ctx.Done():
		case <-s.failed:
			return
		}
	}
}
