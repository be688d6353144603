package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// paths are a client's ways to the members, of which some may be cut. A connection over a path that
// is cut stays open, and no byte comes or goes; it ends when the path is whole again, for bytes
// were lost. Clients of all members share this machine's address, so routing cannot tell them
// apart.
type paths struct {
	mu      sync.Mutex
	cut     []string // members' client addresses
	through []*pathConn
}

// errCut is that bytes of a connection were lost.
var errCut = errors.New("run: the path to the member was cut")

// follow cuts as the lines say that a Test sends, until they end.
func (p *paths) follow(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var cut []string
		if text, ok := strings.CutPrefix(line, cutLine); ok && json.Unmarshal([]byte(text), &cut) == nil {
			p.set(cut)
		}
	}
}

// set cuts the paths to some members, and mends all others.
func (p *paths) set(cut []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.through = slices.DeleteFunc(p.through, func(c *pathConn) bool {
		if slices.Contains(cut, c.member) {
			c.lost = true
		} else if c.lost {
			_ = c.Conn.Close()
		}
		return c.lost && !slices.Contains(cut, c.member)
	})
}

// isCut says whether the path to a member is cut.
func (p *paths) isCut(member string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.cut, member)
}

// dial opens a connection to a member. Over a path that is cut nobody answers.
func (p *paths) dial(network, member string, timeout time.Duration) (net.Conn, error) {
	if p.isCut(member) {
		time.Sleep(timeout)
		return nil, errCut
	}
	conn, err := net.DialTimeout(network, member, timeout)
	if err != nil {
		return nil, err
	}
	c := &pathConn{Conn: conn, paths: p, member: member}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.lost = slices.Contains(p.cut, member)
	p.through = append(p.through, c)
	return c, nil
}

// pathConn is a connection over one of the paths.
type pathConn struct {
	net.Conn
	paths  *paths
	member string
	lost   bool // the path was cut; guarded by paths.mu
}

func (c *pathConn) isLost() bool {
	c.paths.mu.Lock()
	defer c.paths.mu.Unlock()
	return c.lost
}

// Read implements net.Conn.
func (c *pathConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.isLost() {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *pathConn) Write(b []byte) (int, error) {
	if c.isLost() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *pathConn) Close() error {
	c.paths.mu.Lock()
	c.paths.through = slices.DeleteFunc(c.paths.through, func(o *pathConn) bool { return o == c })
	c.paths.mu.Unlock()
	return c.Conn.Close()
}
