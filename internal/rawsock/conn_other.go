//go:build !unix

package rawsock

import "net"

// Conn is never used on this system.
type Conn struct{ net.Conn }

// Wrap returns c as it is on this system.
func Wrap(c net.Conn) net.Conn { return c }

// Use does nothing on this system.
func (c *Conn) Use(net.Conn) bool { return false }

// TryWrite writes nothing on this system.
func (c *Conn) TryWrite([]byte) (int, error) { return 0, nil }
