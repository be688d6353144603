package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Read-only mode: a member that has known no leader for a while serves clients that said they
// accept it, from the state that it has. Their sessions are local to this member. They are no
// sessions of the cluster, own no ephemerals, and end when there is a leader again; then the
// clients connect anew.
//
// A client that has a session of the cluster is not served, as with ZooKeeper 3.8: the majority may
// end that session at any moment without this member, and many libraries would still report that
// they are connected (promise C6).
//
// The ids of these sessions have a form of their own (credentials.go). So a member knows, without a
// look at the log, that one of them that it does not have has ended; for a session of the cluster
// only the log says so (promise C7).

// readOnlyMin is for how long at least a member has no leader before it serves without one. It is a
// tick if that is longer, as in ZooKeeper.
const readOnlyMin = 2 * time.Second

// readOnlyCheck is the interval in which a member checks whether it has a leader.
const readOnlyCheck = 50 * time.Millisecond

var (
	errReadOnly = errors.New("session: this member only reads, and the client does not accept that")
	errGlobal   = errors.New("session: this member only reads, and the client's session is one of the cluster")
)

// readOnly is the state of read-only mode.
type readOnly struct {
	m         *member
	connected *connected
	guesses   *guesses

	on     atomic.Bool
	nextID atomic.Uint64

	mu     sync.Mutex
	locals map[wire.SessionID]*local
}

func (r *readOnly) init(m *member, connected *connected, g *guesses) {
	r.m, r.connected, r.guesses = m, connected, g
	r.locals = map[wire.SessionID]*local{}
	r.nextID.Store(firstLocalID(r.m.cfg.Member, r.m.cfg.Now()))
}

// count is the number of sessions of read-only mode.
func (r *readOnly) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, l := range r.locals {
		if !l.closed.Load() {
			n++
		}
	}
	return n
}

// run begins and ends read-only mode.
func (r *readOnly) run(ctx context.Context) {
	every(ctx, readOnlyCheck, func() {
		since, known := r.m.replica.LeaderKnown()
		switch {
		case known && r.on.Load():
			r.leave()
		case !known && !r.on.Load() && time.Since(since) >= max(readOnlyMin, r.m.cfg.Tick):
			r.on.Store(true)
			r.m.log.Warn("read-only mode: no leader; serving clients that accept it, from the state as it is here")
		case r.on.Load():
			r.forget()
		}
	})
}

func (r *readOnly) leave() {
	r.mu.Lock()
	r.on.Store(false)
	var ended []*Session
	for id := range r.locals {
		if s := r.connected.get(id); s != nil {
			ended = append(ended, s)
		}
	}
	clear(r.locals)
	r.mu.Unlock()
	for _, s := range ended {
		s.end("there is a leader again: the client is to connect anew")
	}
	r.m.log.Info("read-only mode has ended: there is a leader", "sessions", len(ended))
}

// forget ends the sessions without a connection for longer than their timeout. A session with a
// connection ends with it: see lease.mustClose.
func (r *readOnly) forget() {
	now := r.m.since()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, l := range r.locals {
		if s := r.connected.get(id); s != nil && !l.closed.Load() {
			l.heard = s.lease.confirmed.Load()
		} else if l.closed.Load() || now-l.heard > int64(l.timeout) {
			delete(r.locals, id)
		}
	}
}

// connect is Manager.Connect in read-only mode.
func (r *readOnly) connect(req *wire.ConnectRequest, addr netip.Addr, timeout time.Duration,
) (*Session, *wire.ConnectResponse, error) {
	if !req.ReadOnly {
		return nil, nil, errReadOnly
	}
	var applied wire.Zxid
	r.m.replica.View(func(s *znode.Store) { applied = s.Zxid() })
	if req.LastZxidSeen > applied {
		return nil, nil, fmt.Errorf("%w: it has seen %v, applied was %v", errAhead, req.LastZxidSeen, applied)
	}
	id := req.SessionID
	if id != 0 && !isLocalID(id) {
		return nil, nil, errGlobal
	}
	r.mu.Lock()
	known := r.locals[id]
	r.mu.Unlock()
	if known != nil && known.closed.Load() {
		known = nil
	}
	if id != 0 && (known == nil || !right(known.password, req.Password)) {
		refused := refusal(req)
		if known != nil {
			var err error
			if refused, err = r.guesses.refuse(req, addr); err != nil {
				return nil, nil, err
			}
		}
		refused.ReadOnly = true
		return nil, refused, nil
	}
	if old := r.connected.get(id); old != nil {
		old.end("session attached by another connection")
	}
	l := &local{timeout: timeout}
	if known != nil {
		l.password = known.password
	} else {
		id = wire.SessionID(r.nextID.Add(1))
		l.password = newPassword()
	}
	s := r.open(id, l, addr)
	if s == nil {
		return nil, nil, ErrNotServing // the next try finds a leader
	}
	resp := response(req, &s.connection, l.password[:])
	resp.ReadOnly = true
	return s, resp, nil
}

// open makes the Session of a connection to a local session; nil if read-only mode has ended.
func (r *readOnly) open(id wire.SessionID, l *local, addr netip.Addr) *Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on.Load() {
		return nil
	}
	l.heard = r.m.since()
	s := newSession(r.m, r.connected, admission.Account{Session: id, Addr: addr}, 0, l.timeout, l.heard,
		&[]znode.Identity{AddrIdentity(addr)})
	s.local, s.lease.local = l, true
	r.locals[id] = l
	r.connected.put(s)
	return s
}
