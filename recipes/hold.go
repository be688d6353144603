package recipes

import (
	"context"
	"errors"
	"fmt"
)

// Hold runs f while it holds the lock, and sees to it that it is held again when
// it was lost: it is the one place in this package where a lock is acquired on a
// new session without the program asking for it each time.
//
// f gets the grant, and a ctx that ends when the grant is lost (context.Cause tells
// why) or when the ctx of Hold does. It has to return soon then, with an error.
// Only then Hold acquires the lock again, at the end of the queue, and calls f
// again. So f must be able to start over: what it had done, it finds done, perhaps
// not all of it, and perhaps changed by those who had the lock in between.
//
// Hold returns when
//
//   - f has returned nil: nil if the grant stood until then. Else the reason for its
//     loss: f may have done its work without the lock.
//   - f has returned an error while the grant stood: that error.
//   - ctx has ended: its error, or that of f.
//   - the lock cannot be acquired for another reason than an expired session, or
//     the Session was closed.
//
// The lock is unlocked in all these cases.
func Hold(ctx context.Context, l Locker, f func(ctx context.Context, g *Grant) error) error {
	for {
		g, err := l.Lock(ctx)
		if errors.Is(err, ErrExpired) {
			continue // each costs a session; Lock waits for the next one
		}
		if err != nil {
			return err
		}
		lost, err := holdOnce(ctx, g, f)
		switch {
		case err == nil && lost == nil:
			return nil
		case err == nil:
			return fmt.Errorf("recipes: hold %s: finished, but the lock had been lost: %w", l.Path(), lost)
		case lost == nil, ctx.Err() != nil, errors.Is(lost, ErrClosed):
			return err
		}
	}
}

// holdOnce runs f with one grant, and returns why that was lost, if it was, and
// what f has returned.
func holdOnce(ctx context.Context, g *Grant, f func(ctx context.Context, g *Grant) error) (lost, err error) {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.whenLost(cancel)
	defer func() {
		// Also when f panics. When ctx has ended, this goes on in the background.
		if uerr := g.Unlock(ctx); uerr != nil && ctx.Err() == nil {
			lost = uerr
		} else if lost = g.Err(); lost == ErrReleased {
			lost = nil
		}
	}()
	return nil, f(work, g)
}

// Locker is a lock, whatever recipe: [Mutex], [RWMutex] and its RLocker,
// [SimpleMutex], [Semaphore].
type Locker interface {
	// Lock waits until the lock is held; see [Mutex.Lock].
	Lock(ctx context.Context) (*Grant, error)
	// TryLock acquires the lock or returns ErrLocked; see [Mutex.TryLock].
	TryLock(ctx context.Context) (*Grant, error)
	// Path returns the path of the lock.
	Path() string
}

var (
	_ Locker = (*Mutex)(nil)
	_ Locker = (*RWMutex)(nil)
	_ Locker = (*SimpleMutex)(nil)
	_ Locker = (*Semaphore)(nil)
)
