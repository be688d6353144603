package ways

import (
	"context"
	"time"

	"lockkeeper/jepsen/locklab/lock"
)

// impatient is a twin of a way, with a planted bug: who has waited for a quarter of the lease goes
// on as if it had the lock.
func impatient(w lock.Way) lock.Way {
	return lock.Way{
		Name: w.Name + "-impatient", System: w.System, Broken: true, Only: "pause-writing",
		Open: func(ctx context.Context, c lock.Config) (lock.Client, error) {
			inner, err := w.Open(ctx, c)
			return hasty{inner, c.Lease / 4}, err
		},
	}
}

// hasty is a client that does not wait for long.
type hasty struct {
	lock.Client
	patience time.Duration
}

// Lock implements lock.Client.
func (h hasty) Lock(ctx context.Context, resource string) (lock.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	held, err := h.Client.Lock(ctx, resource)
	if err != nil {
		return notHeld{}, nil
	}
	return held, nil
}

// notHeld is a lock that nobody has got.
type notHeld struct{}

// Token implements lock.Held.
func (notHeld) Token() uint64 { return 0 }

// Lost implements lock.Held.
func (notHeld) Lost() <-chan struct{} { return nil }

// Unlock implements lock.Held.
func (notHeld) Unlock(context.Context) error { return nil }
