package server

import (
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/znode"
)

// A member with a Recorder (Machine.Recorder) has these in place of its listener and its
// connections; without one there is nothing of it on the way of a command or an answer, and one
// comparison on the way of a request.

// recordedListener records what the state executes.
type recordedListener struct {
	quorum.Listener
	recorder zoocfg.Recorder
}

// Applied implements quorum.Listener.
func (l recordedListener) Applied(store *znode.Store, c *znode.Command, res *znode.Result) {
	l.recorder.Executed(c, res)
	l.Listener.Applied(store, c, res)
}

// Restored implements quorum.Listener.
func (l recordedListener) Restored(store *znode.Store) {
	l.recorder.Restored(store.Zxid())
	l.Listener.Restored(store)
}

// recordedConn records the bytes that leave for the client.
type recordedConn struct {
	session.Conn
	offer func(b []byte)
	sent  func(n int)
}

// WriteUntil implements session.Conn.
func (c recordedConn) WriteUntil(b []byte, until time.Time) (int, error) {
	if time.Now().Before(until) {
		c.offer(b)
	}
	n, err := c.Conn.WriteUntil(b, until)
	c.sent(n)
	return n, err
}

// recorded is the connection of a session to be given to the session.
func recorded(m *zoocfg.Machine, c session.Conn, s *session.Session, tick time.Duration) session.Conn {
	if m.Recorder == nil {
		return c
	}
	offer, sent := m.Recorder.Connected(s.ID(), s.Generation(), s.Stats().Timeout, tick)
	return recordedConn{c, offer, sent}
}

// requested records a frame from the client of a session.
func requested(m *zoocfg.Machine, s *session.Session, frame []byte) {
	if m.Recorder != nil {
		m.Recorder.Requested(s.ID(), s.Generation(), frame)
	}
}
