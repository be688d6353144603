//go:build !unix

package server

import "net"

// socketWriter knows no sockets on this system.
func socketWriter(net.Conn) tryWriter { return nil }
