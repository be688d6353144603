package fenceproxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"lockkeeper/recipes/fence"
)

// errWaits: older requests are in flight for longer than the caller waits.
var errWaits = errors.New("requests with an older token are still in flight")

// turn lets the requests of one token at a time be in flight, in the order of the tokens.
type turn struct {
	lock string

	mu       sync.Mutex
	newest   int64 // the largest token that asked to begin
	current  int64 // the token of the requests in flight
	inFlight int
	changed  chan struct{} // closed and replaced when newest grows or inFlight becomes 0
}

// newTurn returns a turn in which a request with the remembered token may be in flight for settle.
func newTurn(lock string, remembered int64, settle time.Duration) *turn {
	t := &turn{lock: lock, newest: remembered, current: remembered, changed: make(chan struct{})}
	if remembered > 0 && settle > 0 {
		t.inFlight = 1
		time.AfterFunc(settle, t.end)
	}
	return t
}

// begin waits until no request with another token is in flight. The caller has to call end if the
// error is nil. Otherwise it is a *fence.StaleError, or errWaits when ctx ends.
func (t *turn) begin(ctx context.Context, token int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token > t.newest {
		t.newest = token
		t.wake()
	}
	for token == t.newest && t.inFlight > 0 && t.current != token {
		changed := t.changed
		t.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = errWaits
		}
		t.mu.Lock()
		if err != nil {
			return err
		}
	}
	if token < t.newest {
		return &fence.StaleError{Resource: t.lock, Token: token, Newest: t.newest}
	}
	t.current = token
	t.inFlight++
	return nil
}

// end says that a request has ended.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight--; t.inFlight == 0 {
		t.wake()
	}
}

func (t *turn) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}
