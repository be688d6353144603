package recipes

import (
	"context"
	"errors"
	"fmt"

	"lockkeeper/internal/mutant"
)

// ErrNotHeld: Unlock was called on a handle more often than Lock.
var ErrNotHeld = errors.New("recipes: unlocked more often than locked")

// Handle makes a lock re-entrant: a caller that has the handle and holds the lock may
// lock it again, gets the same Grant again, and has to unlock as often. Go has no
// threads to tell who that is, as Curator's locks do; here it is whom the
// program passes the handle to. Its methods may be called from any goroutine; while
// one waits for the lock, the others that have the handle wait for it to succeed.
//
// Unlock by the handle, not by the Grant: Grant.Unlock ends it for all. When the
// grant is lost, Lock fails with the reason until all that held it have unlocked:
// who got in later must not hold what the ones outside have lost.
type Handle struct {
	acquire func(ctx context.Context, kind Kind, wait bool) (*Grant, error)
	path    string
	turn    chan struct{} // who has put something in may use what follows
	grant   *Grant
	holds   int
}

// RWHandle is a [Handle] of an [RWMutex]. Who holds the lock for writing may lock it
// for reading too, which counts as one hold more of the same grant. Who holds it
// for reading and wants to write gets ErrUpgrade.
type RWHandle struct{ Handle }

// Handle returns a new handle, which holds nothing yet.
func (m *Mutex) Handle() *Handle {
	acquire := func(ctx context.Context, _ Kind, wait bool) (*Grant, error) { return m.acquire(ctx, wait) }
	return &Handle{path: m.path, turn: make(chan struct{}, 1), acquire: acquire}
}

// Handle returns a new handle, which holds nothing yet.
func (m *RWMutex) Handle() *RWHandle {
	acquire := func(ctx context.Context, kind Kind, wait bool) (*Grant, error) {
		base := writeName
		if kind == KindRead {
			base = readName
		}
		return acquireQueued(ctx, m.s, m.path, base, kind, m.opts, wait)
	}
	return &RWHandle{Handle{path: m.path, turn: make(chan struct{}, 1), acquire: acquire}}
}

// Path returns the path of the lock.
func (h *Handle) Path() string { return h.path }

// Lock waits until the lock is held, or returns at once if the handle holds it.
func (h *Handle) Lock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindWrite, true) }

// TryLock is Lock, but returns ErrLocked if it would have to wait for others.
func (h *Handle) TryLock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindWrite, false) }

// RLock waits until the lock is held for reading, or returns at once if the handle
// holds it, be it for writing.
func (h *RWHandle) RLock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindRead, true) }

// TryRLock is RLock, but returns ErrLocked if it would have to wait for others.
func (h *RWHandle) TryRLock(ctx context.Context) (*Grant, error) {
	return h.lock(ctx, KindRead, false)
}

func (h *Handle) lock(ctx context.Context, kind Kind, wait bool) (*Grant, error) {
	if err := h.take(ctx, wait); err != nil {
		return nil, fmt.Errorf("recipes: lock %s: %w", h.path, err)
	}
	defer h.put()
	if h.holds > 0 {
		err := h.grant.Err()
		if err == nil && kind == KindWrite && h.grant.Kind() == KindRead {
			err = ErrUpgrade
		}
		if err != nil {
			return nil, fmt.Errorf("recipes: lock %s again: %w", h.path, err)
		}
		h.holds++
		return h.grant, nil
	}
	g, err := h.acquire(ctx, kind, wait)
	if err == nil {
		h.grant, h.holds = g, 1
	}
	return g, err
}

// Unlock takes one hold back. The last one unlocks; see [Grant.Unlock] for what it
// returns. ErrNotHeld if there is none.
func (h *Handle) Unlock(ctx context.Context) error {
	if err := h.take(ctx, true); err != nil {
		return fmt.Errorf("recipes: unlock %s: %w", h.path, err)
	}
	defer h.put()
	if h.holds == 0 {
		return fmt.Errorf("recipes: unlock %s: %w", h.path, ErrNotHeld)
	}
	if h.holds--; h.holds > 0 {
		if mutant.On(mutant.UnlockedEarly) {
			h.grant.giveUp()
		}
		return nil
	}
	g := h.grant
	h.grant = nil
	return g.Unlock(ctx)
}

func (h *Handle) take(ctx context.Context, wait bool) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	default:
	}
	if !wait {
		return ErrLocked
	}
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Handle) put() { <-h.turn }
