package recipes

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// dialLive is the tests' way to a server. Without the race detector it is
// net.DialTimeout.
//
// go-zookeeper 1.0.4 has a data race of its own: after a reconnect it reads
// lastZxid to set its watches again, while the goroutine that receives is under
// way already and writes lastZxid with every reply. What comes of it is harmless
// for the recipes (a setWatches with a zxid that is too new may miss a change of
// data, never a deletion), but it fails a test. So replies are held back for a
// moment, until the setWatches is on its way.
func dialLive(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil || !raceEnabled {
		return conn, err
	}
	return &setWatchesFirst{Conn: conn, seen: make(chan struct{})}, nil
}

type setWatchesFirst struct {
	net.Conn
	once sync.Once
	seen chan struct{} // closed when a setWatches was written, or none is to be expected

	hello bool // the handshake was written; only the writer uses it
	read  int  // bytes that were read; as all below, only the reader uses it
	head  []byte
	held  bool
}

func (c *setWatchesFirst) open() { c.once.Do(func() { close(c.seen) }) }

// Write is called with one packet at a time.
func (c *setWatchesFirst) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	const setWatches = 101
	switch {
	case !c.hello:
		c.hello = true
		if binary.BigEndian.Uint64(b[20:]) == 0 { // a new session has no watches
			c.open()
		}
	case len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == setWatches:
		c.open()
	}
	return n, err
}

func (c *setWatchesFirst) Read(b []byte) (int, error) {
	if len(c.head) == 4 && !c.held && c.read == 4+int(binary.BigEndian.Uint32(c.head)) {
		c.held = true
		select {
		case <-c.seen:
		case <-time.After(50 * time.Millisecond): // it has no watches, it seems
		}
	}
	n, err := c.Conn.Read(b)
	if c.read < 4 {
		c.head = append(c.head, b[:min(n, 4-c.read)]...)
	}
	c.read += n
	return n, err
}
