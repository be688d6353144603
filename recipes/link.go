package recipes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes/internal/sessionfile"
)

// link is the connection of a Session: the client under it, the lease of the ZooKeeper session in
// force, and the goroutines that need them. All methods may be called from any goroutine.
type link struct {
	conn    Conn
	timeout func() time.Duration // of the session in force, as negotiated
	log     *slog.Logger
	keeper  *sessionfile.Keeper   // of Config.SessionFile; nil: none
	quit    chan struct{}         // closed when the link ends
	endErr  atomic.Pointer[error] // why it has ended; nil while it lives
	wg      sync.WaitGroup

	// mu guards the fields below, and the fields of lease and Grant that say so. Nothing blocks
	// while it is held.
	mu        sync.Mutex
	ended     bool
	lease     *lease        // nil: no session yet, or not yet a new one
	connected bool          // a server answers for the session right now
	changed   chan struct{} // closed and replaced when one of the above changes
	silent    chan struct{} // changed, at the time of a sync that proved nothing; see confirm
}

func newLink(conn Conn, events <-chan zk.Event, timeout func() time.Duration, log *slog.Logger) *link {
	k := &link{
		conn:    conn,
		timeout: timeout,
		log:     log,
		quit:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	k.observe()
	k.wg.Go(func() { k.follow(events) })
	return k
}

// close ends the link, and waits for its goroutines.
func (k *link) close() {
	k.end(ErrClosed)
	k.conn.Close()
	k.wg.Wait()
}

// closed is why the link has ended, an ErrClosed.
func (k *link) closed() error { return *k.endErr.Load() }

// end ends the link because of err, which is an ErrClosed. Only the first call counts.
func (k *link) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	k.ended = true
	k.endErr.Store(&err)
	if k.lease != nil {
		k.lease.endLocked(err)
		k.lease = nil
	}
	close(k.quit)
	k.changedLocked()
}

// sessionTimeout is Session.Timeout.
func (k *link) sessionTimeout() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observeLocked()
	if k.lease != nil {
		return k.lease.timeout
	}
	return k.timeout()
}

// follow keeps up with the connection's events until there are no more.
//
// go-zookeeper drops an event when the channel is full, and stores the new state before it sends
// the event. So an event is only a reason to read the state again, and its content is not used: the
// last one that fits into the channel is followed by a look that sees everything the dropped ones
// were about.
func (k *link) follow(events <-chan zk.Event) {
	for {
		select {
		case _, ok := <-events:
			if !ok { // somebody closed the connection
				k.end(ErrClosed)
				return
			}
			k.observe()
		case <-k.quit:
			return
		}
	}
}

func (k *link) observe() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observeLocked()
}

// observeLocked compares the state of the connection with the one that was seen last.
//
// A session is over for us as soon as the connection has another id than the session's, which is 0
// between two sessions. Ids do not come back.
func (k *link) observeLocked() {
	if k.ended {
		return
	}
	id := k.conn.SessionID()
	connected := k.conn.State() == zk.StateHasSession && id != 0
	moved := connected != k.connected
	k.connected = connected
	if k.lease != nil && k.lease.id != id {
		k.lease.endLocked(ErrExpired)
		k.lease, moved = nil, true
	}
	if k.lease == nil && id != 0 {
		k.lease, moved = newLease(k, id), true
		k.wg.Go(k.lease.keep)
	}
	if k.lease != nil {
		k.lease.shortenLocked(k.timeout())
	}
	if moved {
		k.changedLocked()
	}
}

func (k *link) changedLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// news returns a channel that is closed at the next change.
func (k *link) news() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// answered returns the lease of the session if a server answers for it right now, else nil, and a
// channel that is closed at the next change. The error is closed's.
func (k *link) answered() (l *lease, changed <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observeLocked()
	switch {
	case k.ended:
		return nil, nil, k.closed()
	case k.connected:
		return k.lease, k.changed, nil
	}
	return nil, k.changed, nil
}

// ready waits until a server answers for the session, and returns its lease. Its errors are ctx's
// and closed's.
func (k *link) ready(ctx context.Context) (*lease, error) {
	for {
		l, changed, err := k.answered()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// spawn runs f in a goroutine that close waits for. It reports false, and runs nothing, when the
// link has ended.
func (k *link) spawn(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return false
	}
	k.wg.Go(f)
	return true
}

// Bounds of the pause before a request is repeated, because its outcome is unknown or its error is
// one that this package does not know.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// pause waits before the attempt'th repetition of a request, counted from 1, and then for the
// connection. It returns early when ctx or the link ends.
func (k *link) pause(ctx context.Context, attempt int) error {
	d := min(minPause<<min(attempt-1, 10), maxPause)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.quit:
		return k.closed()
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := k.ready(ctx)
	return err
}

// over reports why the session of l has ended, or nil. l may be nil for any session.
func (k *link) over(l *lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observeLocked()
	switch {
	case k.ended:
		return k.closed()
	case l != nil:
		return l.endErr
	}
	return nil
}

// call runs f in a goroutine of the link and returns its results, or the error of ctx as soon as
// ctx ends: the calls of a ZooKeeper client cannot be interrupted, and a caller shall not have to
// wait for them. f goes on then; drop, if it is not nil, gets a result that nobody has received.
func call[T any](ctx context.Context, k *link, f func(context.Context) (T, error), drop func(T)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	type result struct {
		value T
		err   error
	}
	// Unbuffered: either the caller has got the result, or the goroutine knows that nobody will.
	done := make(chan result)
	ok := k.spawn(func() {
		v, err := f(ctx)
		select {
		case done <- result{v, err}:
		case <-ctx.Done():
			if err == nil && drop != nil {
				drop(v)
			}
		}
	})
	if !ok {
		return none, k.closed()
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// do is call for a function without a result.
func (k *link) do(ctx context.Context, f func(context.Context) error) error {
	_, err := call(ctx, k, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) }, nil)
	return err
}

// ask is call for requests that change nothing, or nothing more when they are repeated: it repeats
// them until they are answered.
func ask[T any](ctx context.Context, k *link, f func() (T, error)) (T, error) {
	return call(ctx, k, func(ctx context.Context) (v T, err error) {
		err = k.again(ctx, nil, func() error {
			v, err = f()
			return err
		})
		return v, err
	}, nil)
}

// again makes a request that may be made any number of times until it is answered, in the session
// of l; l may be nil for any session.
func (k *link) again(ctx context.Context, l *lease, request func() error) error {
	for attempt := 1; ; attempt++ {
		if err := k.over(l); err != nil {
			return err
		}
		err := request()
		if fateOf(err) != fateUnknown {
			return err
		}
		if err := k.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// change runs a request that changes something, for a caller with a ctx. When ctx ends while the
// request is under way, its outcome is unknown: ErrUnknown.
func (k *link) change(ctx context.Context, request func(ctx context.Context, l *lease) error) error {
	var sent atomic.Bool
	err := k.do(ctx, func(ctx context.Context) error {
		l, err := k.ready(ctx)
		if err != nil {
			return err
		}
		sent.Store(true)
		return request(ctx, l)
	})
	if err != nil && sent.Load() && undecided(err) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// undecided reports whether err says why the waiting for an answer ended, and nothing about the
// request.
func undecided(err error) bool {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded, ErrExpired, ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// catchUp has the server that answers catch up with everything that was acknowledged to anybody
// before the call, and proves l.
func (k *link) catchUp(ctx context.Context, l *lease) error {
	return k.again(ctx, l, func() error {
		sent := time.Now()
		err := k.confirm()
		if err == nil {
			l.prove(sent)
		}
		return err
	})
}

// upToDate waits for a server that has caught up, and returns the lease of the session.
func (k *link) upToDate(ctx context.Context) (*lease, error) {
	return call(ctx, k, func(ctx context.Context) (*lease, error) {
		l, err := k.ready(ctx)
		if err != nil {
			return nil, err
		}
		return l, k.catchUp(ctx, l)
	}, nil)
}

// makeDir makes a path and its parents, as containers: the cluster removes them some time after
// they have become empty. Curator does the same. It is no error that the path exists.
func (k *link) makeDir(ctx context.Context, dir string, acl []zk.ACL) error {
	if dir == "" {
		return nil
	}
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := k.conn.CreateContainer(dir, []byte{}, zk.FlagContainer, acl)
		parent, _ := split(dir)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode) && parent != "":
			if err := k.makeDir(ctx, parent, acl); err != nil {
				return err
			}
		case fateOf(err) == fateUnknown:
			if err := k.pause(ctx, attempt); err != nil {
				return err
			}
		default:
			return fmt.Errorf("create %s: %w", dir, err)
		}
	}
}

// makeNode makes a persistent node, and its parents as containers. It is no error that the node
// exists.
func (k *link) makeNode(ctx context.Context, l *lease, path string, data []byte, acl []zk.ACL) error {
	for {
		err := k.again(ctx, l, func() error {
			_, err := k.conn.Create(path, data, zk.FlagPersistent, acl)
			return err
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode):
			dir, _ := split(path)
			if err := k.makeDir(ctx, dir, acl); err != nil {
				return err
			}
		default:
			return err
		}
	}
}
