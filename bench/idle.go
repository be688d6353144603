package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Idle is a number of sessions that do nothing but ping.
type Idle struct {
	open  []*conn
	stop  context.CancelFunc
	alive sync.WaitGroup
	lost  error // the first failed ping; read after alive
	once  sync.Once
}

// idlePart is the number of sessions that are opened before their pings begin: the first ones must
// not wait for the last.
const idlePart = 1000

// OpenIdle opens cfg.Clients sessions, spread over cfg.Servers, and keeps them alive.
func OpenIdle(ctx context.Context, cfg Config) (*Idle, error) {
	cfg.setDefaults(workload{})
	s := &Idle{}
	var idle context.Context
	idle, s.stop = context.WithCancel(ctx)
	for left := cfg.Clients; left > 0; left -= idlePart {
		part := cfg
		part.Clients = min(left, idlePart)
		r := newRun(part)
		open, leave, err := r.dialAll(ctx, func(time.Duration) {})
		if err != nil {
			leave()
			return nil, errors.Join(fmt.Errorf("bench: open %d sessions: %w", cfg.Clients, err), s.Close())
		}
		s.open = append(s.open, open...)
		s.alive.Go(func() {
			if err := r.keepAlive(idle, open); err != nil {
				s.once.Do(func() { s.lost = err })
			}
		})
	}
	return s, nil
}

// Close closes all sessions, without waiting for the replies.
func (s *Idle) Close() error {
	err := s.end()
	for _, c := range s.open {
		c.leave()
	}
	return err
}

// Abandon closes all connections, so that the sessions expire.
func (s *Idle) Abandon() error {
	err := s.end()
	for _, c := range s.open {
		_ = c.Conn.Close()
	}
	return err
}

// end ends the pings. Errors: a session was lost before.
func (s *Idle) end() error {
	s.stop()
	s.alive.Wait()
	return s.lost
}
