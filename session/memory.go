package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// memory counts the bytes that the connections of a member hold for their clients: output that has
// not been sent, requests that have not been answered, and frames that are arriving. The sum
// decides what happens:
//
//   - From a half of the limit on, a connection that holds anything is not read any more until it
//     has been sent and answered.
//   - From three quarters on, connections are ended, the worst ones first (shed): those whose
//     clients have received nothing for stalledAfter, and among them those that hold the most. A
//     goroutine does that (memoryLoop), because output is added while locks are held.
//   - At the limit, a connection that would hold more than its fair part (fair) ends at once.
//
// So all connections together never hold more than twice the limit, however many they are and
// however fast they are filled.
type memory struct {
	limit  int64
	held   atomic.Int64
	shared atomic.Int64 // the part of held that is in bursts, which several connections hold
	conns  atomic.Int64 // connections with a session
	stats  *stats
	high   signal // three quarters of the limit have been passed
}

const (
	// fairBytes is the most that a connection may hold in any case.
	fairBytes = 1 << 20
	// stalledAfter is after which time a client that receives nothing of its output counts as one
	// that does not read.
	stalledAfter = time.Second
	// shedPause is the time between two calls of shed: the memory of the connections that the first
	// has ended is free when their writes have failed.
	shedPause = 500 * time.Millisecond
)

func (m *memory) init(limit int64, s *stats) {
	m.limit, m.stats = limit, s
	m.high = newSignal()
}

// add counts n bytes more, or fewer, that a connection holds.
func (m *memory) add(n int) {
	if after := m.held.Add(int64(n)); n > 0 && after > m.mark() {
		m.high.set()
	}
}

// addShared is add for a burst.
func (m *memory) addShared(n int) {
	m.shared.Add(int64(n))
	m.add(n)
}

// mark returns the number of bytes above which connections are ended.
func (m *memory) mark() int64 { return m.limit / 4 * 3 }

// crowded reports whether connections that hold something must not be read.
func (m *memory) crowded() bool { return m.held.Load() > m.limit/2 }

// allows reports whether a connection that would hold own bytes, n of them new, may hold them.
func (m *memory) allows(own, n int) bool {
	return own <= m.fair(m.limit) || m.held.Load()+int64(n) <= m.limit
}

// fair returns what each connection may have in any case, of which all together may have so many
// bytes.
func (m *memory) fair(all int64) int {
	return int(min(fairBytes, all/max(1, m.conns.Load())))
}

// errArriving says that there is no memory for a frame that is arriving.
var errArriving = errors.New("session: no memory for a frame (maxClientMemory)")

// errNotLoggedIn says that a client that has yet to authenticate sends a frame that needs no such
// length.
var errNotLoggedIn = errors.New("session: a long frame from a client that has not logged in")

// Expect counts n bytes of memory that the frame takes that is arriving. An error means that there
// is no room for it, and that the connection must be closed. Only Submit's goroutine may call it.
func (s *Session) Expect(n int) error {
	if !s.provedEnough() {
		return errNotLoggedIn
	}
	m := &s.m.memory
	if !m.allows(s.arriving+n, n) {
		m.stats.inc(&m.stats.EndedForMemory)
		return errArriving
	}
	s.arriving += n
	m.add(n)
	return nil
}

// Arrived ends what Expect began: the frame has been submitted, or will never be. Only Submit's
// goroutine may call it.
func (s *Session) Arrived() {
	s.m.memory.add(-s.arriving)
	s.arriving = 0
}

// Hold counts n bytes that a member holds for somebody who is no client of it, in the account of
// the connections; false if these hold so much that there is no room. Release ends it.
func (m *Manager) Hold(n int) bool {
	if m.memory.held.Load()+int64(n) > m.memory.limit/2 {
		return false
	}
	m.memory.add(n)
	return true
}

// Release ends what Hold began.
func (m *Manager) Release(n int) { m.memory.add(-n) }

// memoryLoop ends connections when all together hold too much.
func (m *Manager) memoryLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.memory.high:
		}
		m.shed()
		select {
		case <-ctx.Done():
			return
		case <-time.After(shedPause):
		}
	}
}

// holding is what the output of a connection holds.
type holding struct {
	s       *Session
	bytes   int
	stalled bool
}

// shed ends connections until the others hold less than the mark. It ignores connections that have
// ended before, even if their last write has not failed yet.
func (m *Manager) shed() {
	now := time.Now()
	var list []holding
	excess := m.memory.shared.Load() - m.memory.mark()
	for _, s := range m.all() {
		bytes, shared, since := s.out.holds()
		excess += int64(bytes - shared)
		if bytes > 0 {
			list = append(list, holding{s, bytes, now.Sub(since) >= stalledAfter})
		}
	}
	slices.SortFunc(list, func(a, b holding) int {
		if a.stalled != b.stalled {
			if a.stalled {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.bytes, a.bytes)
	})
	for _, h := range list {
		if excess <= 0 {
			return
		}
		excess -= int64(h.bytes)
		m.stats.inc(&m.stats.EndedForMemory)
		m.log.Warn("connection ended: the connections of this member hold too much that is not sent (maxClientMemory)",
			"session", h.s.id, "client", h.s.addr, "bytes", h.bytes, "reads", !h.stalled)
		h.s.end("the connections of this member hold too much that is not sent")
	}
}
