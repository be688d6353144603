package admission

import (
	"errors"
	"sync/atomic"
)

// Memory counts the bytes that the connections of a member hold for their clients: output that has
// not been sent, requests that have not been answered, and frames that are arriving. The sum
// decides:
//
//   - From a half of the limit on, a connection that holds anything is not read any more until it
//     has been sent and answered.
//   - From three quarters on, connections are ended, the worst ones first (shed): those with
//     clients that have received nothing for stalledAfter, and among them those that hold the
//     most. A goroutine does that (memoryLoop), because output is added while locks are held.
//   - At the limit, a connection that would hold more than its fair part (fair) ends at once.
//
// So all connections together never hold more than twice the limit, however many they are and
// however fast they are filled.
type Memory struct {
	limit   int64
	held    atomic.Int64
	shared  atomic.Int64 // the part of held that is in bursts, which several connections hold
	conns   atomic.Int64 // connections with a session
	refused *refusals
	high    chan struct{} // three quarters of the limit have been passed
}

const (
	// fairBytes is the most that a connection may hold in any case.
	fairBytes = 1 << 20
)

func (m *Memory) init(limit int64, r *refusals) {
	m.limit, m.refused = limit, r
	m.high = make(chan struct{}, 1)
}

// Add counts n bytes more, or fewer, that a connection holds.
func (m *Memory) Add(n int) {
	if after := m.held.Add(int64(n)); n > 0 && after > m.Mark() {
		select {
		case m.high <- struct{}{}:
		default:
		}
	}
}

// AddShared is Add for a burst.
func (m *Memory) AddShared(n int) {
	m.shared.Add(int64(n))
	m.Add(n)
}

// Mark returns the number of bytes above which connections are ended.
func (m *Memory) Mark() int64 { return m.limit / 4 * 3 }

// Crowded reports whether connections that hold something must not be read.
func (m *Memory) Crowded() bool { return m.held.Load() > m.limit/2 }

// Allows reports whether a connection that would hold own bytes, n of them new, may hold them.
func (m *Memory) Allows(own, n int) bool {
	return own <= m.Fair(m.limit) || m.held.Load()+int64(n) <= m.limit
}

// Fair returns the share that each connection may have in any case, out of all bytes.
func (m *Memory) Fair(all int64) int {
	return int(min(fairBytes, all/max(1, m.conns.Load())))
}

// ErrArriving says that there is no memory for a frame that is arriving.
var ErrArriving = errors.New("session: no memory for a frame (maxClientMemory)")

// Arrive counts n bytes more for an arriving frame, of a connection that holds own bytes for it
// already. The error is ErrArriving: the connection must be closed.
func (m *Memory) Arrive(own, n int) error {
	if !m.Allows(own+n, n) {
		m.Ended()
		return ErrArriving
	}
	m.Add(n)
	return nil
}

// Hold counts n bytes that a member holds for a caller that is no client, in the account of the
// connections; false if there is no room. Add(-n) gives them back.
func (m *Memory) Hold(n int) bool {
	if m.held.Load()+int64(n) > m.limit/2 {
		return false
	}
	m.Add(n)
	return true
}

// Ended counts a connection that ends because it holds too much, or all together do.
func (m *Memory) Ended() { m.refused.inc(&m.refused.EndedForMemory) }

// Held is the number of bytes that all connections hold.
func (m *Memory) Held() int64 { return m.held.Load() }

// Shared is the part of Held that several connections hold together.
func (m *Memory) Shared() int64 { return m.shared.Load() }

// High receives when Mark has been passed.
func (m *Memory) High() <-chan struct{} { return m.high }
