package recipes

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// DefaultSessionTimeout is what Connect asks for if it is not told.
const DefaultSessionTimeout = 10 * time.Second

// Config says how to connect. Only Servers is needed.
type Config struct {
	// Servers are the members of the cluster, as host:port; the port is 2181 if
	// it is left out. Any one that answers will do.
	Servers []string

	// SessionTimeout is how long the cluster keeps the locks of a program that
	// it hears nothing from; 0 stands for DefaultSessionTimeout. The servers
	// shorten or lengthen it to their limits, which the Session takes note of.
	// Grants are given up after two thirds of it.
	SessionTimeout time.Duration

	// Dial opens connections; nil stands for net.DialTimeout. It is the place
	// for TLS.
	Dial zk.Dialer

	// HostProvider picks the servers; nil stands for go-zookeeper's, which
	// resolves the names once.
	HostProvider zk.HostProvider

	// Logger gets what goes wrong and is not returned to anybody; at level
	// debug, what go-zookeeper has to say. Nil discards.
	Logger *slog.Logger
}

// Connect starts a session. It does not wait for it: recipes do, as long as
// their ctx lets them. Close ends it.
func Connect(c Config) (*Session, error) {
	if len(c.Servers) == 0 {
		return nil, errors.New("recipes: connect: no servers given")
	}
	if c.SessionTimeout < 0 {
		return nil, fmt.Errorf("recipes: connect: session timeout %v is negative", c.SessionTimeout)
	}
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	granted := newGranted(cmp.Or(c.SessionTimeout, DefaultSessionTimeout))
	dial := c.Dial
	if dial == nil {
		dial = net.DialTimeout
	}
	options := sliceOf(
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := dial(network, address, timeout)
			if err != nil {
				return nil, err
			}
			return &handshakeConn{Conn: conn, granted: granted}, nil
		}),
		zk.WithLogger(zkLogger{log}),
	)
	if c.HostProvider != nil {
		options = append(options, zk.WithHostProvider(c.HostProvider))
	}
	conn, events, err := zk.Connect(c.Servers, granted.timeout(), options...)
	if err != nil {
		return nil, fmt.Errorf("recipes: connect: %w", err)
	}
	return newSession(conn, events, granted.timeout, log), nil
}

// sliceOf makes a slice of a type that has no name outside of its package.
func sliceOf[T any](v ...T) []T { return v }

// granted is the session timeout in force: what was asked for, until a server
// has answered.
type granted struct{ ms atomic.Int32 }

func newGranted(asked time.Duration) *granted {
	g := new(granted)
	// Whole milliseconds are what the protocol has, and 0 is not a timeout.
	g.ms.Store(int32(max(1, asked.Milliseconds())))
	return g
}

func (g *granted) timeout() time.Duration { return time.Duration(g.ms.Load()) * time.Millisecond }

// handshakeConn reads along with the start of a server's answer to the
// handshake, for the one thing in it that go-zookeeper does not hand on:
//
//	length(4) protocolVersion(4) timeOut(4, ms) sessionId(8) passwd(4+16) ...
//
// It passes everything on unchanged. One goroutine reads from a connection.
type handshakeConn struct {
	net.Conn
	granted *granted
	head    []byte // what has been read of the first 20 bytes
}

const handshakeHead = 20

func (c *handshakeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if missing := handshakeHead - len(c.head); missing > 0 && n > 0 {
		c.head = append(c.head, b[:min(n, missing)]...)
		if len(c.head) == handshakeHead {
			c.learn()
		}
	}
	return n, err
}

func (c *handshakeConn) learn() {
	timeoutMs := int32(binary.BigEndian.Uint32(c.head[8:]))
	sessionID := binary.BigEndian.Uint64(c.head[12:])
	if timeoutMs > 0 && sessionID != 0 { // else the session has expired
		c.granted.ms.Store(timeoutMs)
	}
}

// zkLogger is go-zookeeper's log. It is at level debug: what matters of it the
// recipes report themselves.
type zkLogger struct{ log *slog.Logger }

func (l zkLogger) Printf(format string, args ...any) {
	l.log.Debug("recipes: go-zookeeper: " + fmt.Sprintf(format, args...))
}
