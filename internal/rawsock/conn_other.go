//go:build !unix

package rawsock

import "net"

// Wrap returns c as it is on this system.
func Wrap(c net.Conn) net.Conn { return c }
