package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

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
// The ids of these sessions have a form of their own (sessionid.go). So a member knows, without a
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
	on     atomic.Bool
	nextID atomic.Uint64

	mu     sync.Mutex
	locals map[wire.SessionID]*local
}

func (r *readOnly) init(member uint8, now time.Time) {
	r.locals = map[wire.SessionID]*local{}
	r.nextID.Store(firstLocalID(member, now))
}

// ReadOnly reports whether this member serves without a leader, clients that accept it.
func (m *Manager) ReadOnly() bool { return m.readOnly.on.Load() }

// LocalSessions is the number of sessions of read-only mode.
func (m *Manager) LocalSessions() int {
	m.readOnly.mu.Lock()
	defer m.readOnly.mu.Unlock()
	n := 0
	for _, l := range m.readOnly.locals {
		if !l.closed.Load() {
			n++
		}
	}
	return n
}

// readOnlyLoop begins and ends read-only mode.
func (m *Manager) readOnlyLoop(ctx context.Context) {
	every(ctx, readOnlyCheck, func() {
		since, known := m.replica.LeaderKnown()
		switch {
		case known && m.ReadOnly():
			m.leaveReadOnly()
		case !known && !m.ReadOnly() && time.Since(since) >= max(readOnlyMin, m.cfg.Tick):
			m.readOnly.on.Store(true)
			m.log.Warn("read-only mode: no leader; serving clients that accept it, from the state as it is here")
		case m.ReadOnly():
			m.forgetLocals()
		}
	})
}

func (m *Manager) leaveReadOnly() {
	m.readOnly.mu.Lock()
	m.readOnly.on.Store(false)
	var ended []*Session
	for id := range m.readOnly.locals {
		if s := m.connected.get(id); s != nil {
			ended = append(ended, s)
		}
	}
	clear(m.readOnly.locals)
	m.readOnly.mu.Unlock()
	for _, s := range ended {
		s.end("there is a leader again: the client is to connect anew")
	}
	m.log.Info("read-only mode has ended: there is a leader", "sessions", len(ended))
}

// forgetLocals ends the sessions whose connection is gone for longer than their timeout. Those with
// a connection are ended with it: see lease.mustClose.
func (m *Manager) forgetLocals() {
	now := m.since()
	m.readOnly.mu.Lock()
	defer m.readOnly.mu.Unlock()
	for id, l := range m.readOnly.locals {
		if s := m.connected.get(id); s != nil && !l.closed.Load() {
			l.heard = s.lease.confirmed.Load()
		} else if l.closed.Load() || now-l.heard > int64(l.timeout) {
			delete(m.readOnly.locals, id)
		}
	}
}

// connectReadOnly is Connect in read-only mode.
func (m *Manager) connectReadOnly(req *wire.ConnectRequest, addr netip.Addr, timeout time.Duration,
) (*Session, *wire.ConnectResponse, error) {
	if !req.ReadOnly {
		return nil, nil, errReadOnly
	}
	var applied wire.Zxid
	m.replica.View(func(s *znode.Store) { applied = s.Zxid() })
	if req.LastZxidSeen > applied {
		return nil, nil, fmt.Errorf("%w: it has seen %v, applied was %v", errAhead, req.LastZxidSeen, applied)
	}
	id := req.SessionID
	if id != 0 && !isLocalID(id) {
		return nil, nil, errGlobal
	}
	m.readOnly.mu.Lock()
	known := m.readOnly.locals[id]
	m.readOnly.mu.Unlock()
	if known != nil && known.closed.Load() {
		known = nil
	}
	if id != 0 && (known == nil || subtle.ConstantTimeCompare(known.password, req.Password) != 1) {
		refused := refusal(req)
		if known != nil {
			var err error
			if _, refused, err = m.wrongPassword(req, addr); err != nil {
				return nil, nil, err
			}
		}
		refused.ReadOnly = true
		return nil, refused, nil
	}
	if old := m.connected.get(id); old != nil {
		old.end("session attached by another connection")
	}
	l := &local{timeout: timeout}
	if known != nil {
		l.password = known.password
	} else {
		id = wire.SessionID(m.readOnly.nextID.Add(1))
		l.password = make([]byte, wire.PasswordLen)
		_, _ = rand.Read(l.password) // never fails
	}
	s := m.openLocal(id, l, addr)
	if s == nil {
		return nil, nil, ErrNotServing // the next try finds a leader
	}
	resp := response(req, s, l.password)
	resp.ReadOnly = true
	return s, resp, nil
}

// openLocal makes the Session of a connection to a local session; nil if read-only mode has ended.
func (m *Manager) openLocal(id wire.SessionID, l *local, addr netip.Addr) *Session {
	l.heard = m.since()
	s := newSession(&m.member, &m.connected, id, 0, addr, l.timeout, l.heard)
	s.local, s.lease.local = l, true
	m.readOnly.mu.Lock()
	defer m.readOnly.mu.Unlock()
	if !m.ReadOnly() {
		return nil
	}
	m.readOnly.locals[id] = l
	m.connected.put(s)
	return s
}
