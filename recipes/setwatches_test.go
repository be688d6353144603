package recipes

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// dialLive is the tests' way to a server. Without the race detector it is
// net.DialTimeout.
//
// go-zookeeper 1.0.4 has a data race of its own: after a reconnect one goroutine
// reads lastZxid, to set the watches again, while the goroutine that receives is
// under way already and writes lastZxid with every reply. What comes of it is
// harmless for the recipes (a setWatches with a zxid that is too new may miss a
// change of data, never a deletion), but it fails a test. So, under the race
// detector, replies are made to say that they have no zxid until that is over.
func dialLive(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil || !raceEnabled {
		return conn, err
	}
	return &noEarlyZxid{Conn: conn}, nil
}

type noEarlyZxid struct {
	net.Conn
	until atomic.Pointer[time.Time] // nil: the handshake was not written

	// Only the reader uses these.
	frames int     // complete ones that were read
	pos    int     // in the current frame, its length included
	head   [8]byte // its length and its xid
}

// Write is called with one packet at a time; the first is the handshake, unless the server is asked
// with a word which protocol it speaks, because it has not answered.
func (c *noEarlyZxid) Write(b []byte) (int, error) {
	if len(b) >= 28 && c.until.Load() == nil {
		until := time.Now()
		if binary.BigEndian.Uint64(b[20:]) != 0 { // a new session has no watches
			// Longer than the machine holds up a goroutine that wants to run.
			until = until.Add(10 * time.Second)
		}
		c.until.Store(&until)
	}
	return c.Conn.Write(b)
}

// Read follows the frames: length(4) xid(4) zxid(8) ...
func (c *noEarlyZxid) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	until := c.until.Load()
	early := until != nil && time.Now().Before(*until)
	for i := range b[:n] {
		switch {
		case c.pos < 8:
			c.head[c.pos] = b[i]
		case c.pos < 16 && early && c.frames > 0 && int32(binary.BigEndian.Uint32(c.head[4:])) >= 0:
			b[i] = 0
		}
		if c.pos++; c.pos >= 4 && c.pos == 4+int(binary.BigEndian.Uint32(c.head[:4])) {
			c.frames, c.pos = c.frames+1, 0
		}
	}
	return n, err
}
