package session

import (
	"context"
	"sync"
	"time"
)

// signal wakes the goroutine that receives from it. A signal while that goroutine is busy wakes it
// once more.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// every calls f once in each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// received waits for a signal; false if ctx ends first.
func received(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return true
	}
}

// pause waits for d; false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// waiters are the goroutines that wait until a state has changed that a mutex guards. Unlike a
// sync.Cond, of 56 bytes, it takes one word until the first goroutine waits.
type waiters struct{ cond *sync.Cond }

// wait unlocks mu, waits for wake, and locks mu again.
func (w *waiters) wait(mu *sync.Mutex) {
	if w.cond == nil {
		w.cond = sync.NewCond(mu)
	}
	w.cond.Wait()
}

// wake wakes all. Its caller holds the mutex.
func (w *waiters) wake() {
	if w.cond != nil {
		w.cond.Broadcast()
	}
}
