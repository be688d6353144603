package httplock

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/server/ops/door"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// held is a lock that is held. Its goroutine, keep, owns the session's client and gets orders of
// the goroutines that serve HTTP.
//
//	stream    keep pings the session, and each reply becomes a line of the answer
//	renewed   nobody pings; an order of POST does
type held struct {
	l      *Locks
	k      *contender // keep's
	place  *place
	path   string
	mode   mode
	secret secret
	node   string // the name of the contender's node
	token  int64

	beats    chan time.Time // has an element with each proof: until when bytes may be sent
	orders   chan order
	streamed chan struct{} // closed when the stream has had its last line; nil without a stream
	over     chan struct{} // closed when the lock has ended, with end
	end      ending
}

// order is an order for keep: end, or without an ending a proof that the session lives.
type order struct {
	end   *ending
	proof chan<- time.Time // has room for the proof: until when bytes may be sent
}

// ending is how a lock ended.
type ending struct {
	event  string // eventReleased or eventLost
	reason string
	// close says that its user knows, so that the session is closed. Otherwise it is left to its
	// lease, which is longer than the user may rely on the last line.
	close bool
}

const (
	eventWaits    = "waits"
	eventRefused  = "refused"
	eventGranted  = "granted"
	eventHeld     = "held"
	eventReleased = "released"
	eventLost     = "lost"
)

// errWaited says that a request has waited for as long as it wanted to.
var errWaited = errors.New("the lock is held or awaited by another, and the wait is over")

// acquire gets a lock for a caller. It leaves the place if it fails.
func (l *Locks) acquire(ctx context.Context, caller door.Caller, a *ask, p *place,
	tell func(node string, s *situation) error,
) (*held, error) {
	a.from = caller.Addr.String()
	c, err := l.open(ctx, caller, a.timeout, secret{})
	if err != nil {
		p.leave()
		return nil, err
	}
	k, err := l.contend(ctx, c, a, &report{send: tell})
	if err == nil {
		err = k.confirm(ctx)
	}
	if err == nil {
		return l.hold(k, p, a.path, a.mode, a.stream), nil
	}
	leave := func() {
		defer p.leave()
		c.close()
	}
	if errors.Is(err, context.Canceled) {
		go leave() // the client has gone
	} else {
		leave() // before the answer: the client's next request does not find this one in the queue
	}
	return nil, err
}

// contend joins the queue of a lock and waits until it is the contender's turn.
func (l *Locks) contend(ctx context.Context, c *client, a *ask, r *report) (*contender, error) {
	data, err := json.Marshal(locknode.Info{By: locknode.InfoBy, Program: cmp.Or(a.name, "http"), Host: a.from,
		Note: a.note, Since: time.Now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return nil, err
	}
	k := &contender{client: c, lock: a.path, dir: a.path, reads: a.mode == modeRead, data: data, turn: l.turn,
		rank: locknode.Rank{Priority: a.priority}, yields: a.yields, report: r}
	if a.mode != modeSemaphore {
		if err = k.join(ctx, layouts[a.mode]); err == nil {
			err = k.await(ctx, a.wait > 0)
		}
		return k, err
	}
	gate := k
	gate.dir = a.path + "/" + locknode.CuratorLocks
	if err = gate.join(ctx, locknode.LayoutLock); err != nil {
		return k, err
	}
	for {
		k, err = gate.lease(ctx, a.leases, a.wait > 0)
		if !errors.Is(err, errYields) {
			break
		}
		// The gate is to yield, and there may be nothing of this contender behind it then.
		if err = k.remove(ctx); err != nil {
			return k, err
		}
	}
	if err == nil {
		err = gate.remove(ctx)
	}
	return k, err
}

// lease waits until it is the turn of the gate of a semaphore, and then for one of the leases.
func (k *contender) lease(ctx context.Context, leases int, wait bool) (*contender, error) {
	if err := k.await(ctx, wait); err != nil {
		return k, err
	}
	// A lease has no priority: its place in the queue does not matter.
	l := &contender{client: k.client, lock: k.lock, dir: locknode.LeasesPath(k.lock), data: k.data, turn: k.turn,
		report: k.report}
	err := l.join(ctx, locknode.LayoutLease)
	if err == nil {
		err = l.awaitLease(ctx, k, leases, wait)
	}
	return l, err
}

// confirm returns when the session has been proved to live, and the node is there.
func (k *contender) confirm(ctx context.Context) error {
	if err := k.prove(ctx); err != nil {
		return err
	}
	return k.checkOwn(ctx)
}

// hold begins to keep a lock.
func (l *Locks) hold(k *contender, p *place, path string, m mode, stream bool) *held {
	h := &held{l: l, k: k, place: p, path: path, mode: m, node: k.name(), token: k.token,
		secret: secret{k.id, [wire.PasswordLen]byte(k.password)},
		beats:  make(chan time.Time, 1), orders: make(chan order), over: make(chan struct{})}
	if stream {
		h.streamed = make(chan struct{})
	} else {
		k.beat.Stop()
		p.hangUp()
	}
	h.beats <- k.sendable
	l.granted.Add(1)
	l.mu.Lock()
	l.held[k.id] = h
	l.mu.Unlock()
	go h.keep()
	return h
}

// streamPatience is how long keep waits for the last line of a stream.
const streamPatience = time.Second

// keep keeps the lock until it ends.
func (h *held) keep() {
	defer h.place.leave()
	h.end = h.follow()
	h.l.mu.Lock()
	if h.l.held[h.k.id] == h {
		delete(h.l.held, h.k.id)
	}
	h.l.mu.Unlock()
	if h.end.event == eventLost {
		h.l.lost.Add(1)
		h.l.cfg.Log.Info("lock over HTTP lost", "path", h.path, "session", h.k.id, "why", h.end.reason)
	}
	// Order: the stream ends before the session does, so that its user knows before anybody else
	// gets the lock.
	if !h.end.close {
		h.k.abandon()
		close(h.over)
		return
	}
	if h.streamed != nil {
		close(h.over)
		select {
		case <-h.streamed:
		case <-time.After(streamPatience):
		}
		h.k.close()
		return
	}
	h.k.close()
	close(h.over)
}

// follow keeps the session until the lock ends.
func (h *held) follow() ending {
	var proofs []chan<- time.Time
	for pongs := h.k.pongs; ; {
		select {
		case <-h.k.wake:
			h.k.flush()
		case <-h.k.beat.C:
			_ = h.k.ping() // an error closes gone
		case <-h.k.gone:
			return h.whyGone()
		case <-h.l.stopping.Done():
			return ending{event: eventLost, reason: "this member stops; until the session expires, a POST with the " +
				"secret to another member keeps the lock"}
		case o := <-h.orders:
			if o.end != nil {
				return *o.end
			}
			proofs = append(proofs, o.proof)
			_ = h.k.ping()
		}
		if err := h.k.checkOwn(context.Background()); errors.Is(err, errDeleted) {
			return ending{event: eventLost, reason: err.Error(), close: true}
		}
		if h.k.pongs == pongs {
			continue
		}
		pongs = h.k.pongs
		for _, p := range proofs {
			p <- h.k.sendable
		}
		proofs = nil
		select {
		case <-h.beats: // the stream has not taken it
		default:
		}
		h.beats <- h.k.sendable
	}
}

// whyGone is the ending of a lock that has lost its session's connection.
func (h *held) whyGone() ending {
	exists := false
	h.l.cfg.View(func(store *znode.Store) { _, exists = store.Sessions().Get(h.k.id) })
	if !exists {
		return ending{event: eventLost, reason: "the session has expired, or an operator has ended it"}
	}
	return ending{event: eventLost, reason: "this member cannot prove that the session lives, or the session has " +
		"moved to another member"}
}

// errNotInTime says that keep has not answered in time: the cluster has not.
var errNotInTime = &refusal{status: unavailable, text: "the cluster has not confirmed the session in time; try " +
	"again, or another member"}

// send gives keep an order.
func (h *held) send(ctx context.Context, o order) error {
	select {
	case h.orders <- o:
		return nil
	case <-h.over:
		return errNoLock
	case <-ctx.Done():
		return errNotInTime
	}
}

// finish has the lock end, and waits for that.
func (h *held) finish(ctx context.Context, e ending) error {
	if err := h.send(ctx, order{end: &e}); err != nil {
		return err
	}
	<-h.over
	return nil
}

// leave has the lock end, and does not wait.
func (h *held) leave(e ending) { go func() { _ = h.finish(context.Background(), e) }() }

// isOver reports whether the lock has ended.
func (h *held) isOver() bool {
	select {
	case <-h.over:
		return true
	default:
		return false
	}
}

// renew extends the session, and returns until when that may be told to the user.
func (h *held) renew(ctx context.Context) (sendable time.Time, err error) {
	proof := make(chan time.Time, 1)
	if err := h.send(ctx, order{proof: proof}); err != nil {
		return sendable, err
	}
	select {
	case sendable = <-proof:
		return sendable, nil
	case <-h.over:
		return sendable, errNoLock
	case <-ctx.Done():
		return sendable, errNotInTime
	}
}

// valid is for how long the user may rely on the lock after a proof that it was sent. As for the
// client libraries it is two thirds of the timeout: bytes are sent within a third of it.
func (h *held) valid() time.Duration { return h.k.timeout * 2 / 3 }

// find returns the lock that a secret is for, if this member keeps it. Otherwise another member
// may: then moving is closed when a request that adopts the lock has ended. If it is nil, the
// caller is to adopt the lock.
func (l *Locks) find(a *ask) (h *held, moving <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h = l.held[a.secret.session]; h != nil &&
		subtle.ConstantTimeCompare(h.secret.password[:], a.secret.password[:]) == 1 {
		if h.path != a.path {
			return nil, nil, errNoLock
		}
		return h, nil, nil
	}
	if there := l.moving[a.secret]; there != nil {
		return nil, there, nil
	}
	l.moving[a.secret] = make(chan struct{})
	return nil, nil, nil // attaching counts a wrong password
}

// adopt attaches to the session of a lock that another member has kept, after find. Without a lock
// the session is left as it is.
func (l *Locks) adopt(ctx context.Context, caller door.Caller, a *ask) (*held, error) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.moving[a.secret])
		delete(l.moving, a.secret)
	}()
	p, err := l.enter(caller, false)
	if err != nil {
		return nil, err
	}
	c, err := l.open(ctx, caller, l.timeoutOf(a.secret.session), a.secret)
	if err != nil {
		p.leave()
		return nil, err
	}
	k, m, err := l.holding(ctx, c, a.path)
	if err == nil {
		err = k.confirm(ctx)
	}
	if err != nil {
		c.abandon()
		p.leave()
		return nil, err
	}
	return l.hold(k, p, a.path, m, false), nil
}

// holding returns the contender of a session that holds the lock on a path.
func (l *Locks) holding(ctx context.Context, c *client, path string) (*contender, mode, error) {
	got, err := c.call(ctx, wire.OpGetEphemerals, &wire.GetEphemeralsRequest{PrefixPath: path + "/"})
	if err != nil {
		return nil, "", err
	}
	var own wire.GetEphemeralsResponse
	if got.code != wire.CodeOK || wire.Decode(got.body, &own) != nil {
		return nil, "", errNoLock
	}
	for _, node := range own.Ephemerals {
		dir, name := locknode.Split(node)
		k := &contender{client: c, lock: path, dir: dir, path: node, reads: locknode.KindOf(name) == locknode.KindRead,
			turn: l.turn}
		m := modeOf(path, dir, name)
		if m == "" {
			continue
		}
		st, ok, err := k.stat(ctx, node, true)
		if err != nil || !ok {
			return nil, "", errNoLock
		}
		if k.token = int64(st.Czxid); m != modeSemaphore {
			err = k.await(ctx, false)
		}
		if r := (*refusal)(nil); errors.As(err, &r) {
			err = errNoLock // it waits for the lock
		}
		return k, m, err
	}
	return nil, "", errNoLock
}

// modeOf is the mode of a lock on a path by its node, "" if the node is another lock's.
func modeOf(path, dir, name string) mode {
	switch layout := locknode.Layout(name); {
	case dir == locknode.LeasesPath(path) && layout == locknode.LayoutLease:
		return modeSemaphore
	case dir != path:
	case layout == locknode.LayoutLock:
		return modeMutex
	case layout == locknode.LayoutRead:
		return modeRead
	case layout == locknode.LayoutWrite:
		return modeWrite
	}
	return ""
}
