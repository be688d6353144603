//go:build unix

package rawsock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Conn is a TCP connection, once Use has made it one. Its methods may be called at the same time, as those of each net.Conn, but for
// Write and TryWrite.
type Conn struct {
	mu     sync.Mutex // is taken while TryWrite writes, so that fd is that of this connection
	closed bool
	fd     uintptr

	*net.TCPConn
	raw syscall.RawConn
}

// Wrap returns a *Conn for a connection of package net over TCP, which is not to be used any more, and any other as it is.
func Wrap(c net.Conn) net.Conn {
	if w := new(Conn); w.Use(c) {
		return w
	}
	return c
}

// Use makes c a connection of package net over TCP, which is not to be used any more. If it is something else, c remains what it was.
func (c *Conn) Use(nc net.Conn) bool {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	if raw.Control(func(fd uintptr) { c.fd = fd }) != nil {
		return false
	}
	c.TCPConn, c.raw = tcp, raw
	return true
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return c.TCPConn.Close()
}

// call is one call of Read or Write.
type call struct {
	b   []byte
	n   int // bytes of it that are done
	err error

	readSome, writeAll func(fd uintptr) (done bool) // its methods; kept, because making them takes memory
}

var calls = sync.Pool{New: func() any {
	a := new(call)
	a.readSome, a.writeAll = a.read, a.write
	return a
}}

// begin makes a call with b. It is given back with end.
func begin(b []byte) *call {
	a := calls.Get().(*call)
	a.b, a.n, a.err = b, 0, nil
	return a
}

// end returns what has come of the call. waitErr is from package net.
func (a *call) end(c *Conn, op string, waitErr error) (int, error) {
	n, err := a.n, a.err
	a.b, a.err = nil, nil
	calls.Put(a)
	if waitErr != nil {
		if named := (*net.OpError)(nil); errors.As(waitErr, &named) {
			named.Op = op // not raw-read and raw-write
		}
		return n, waitErr
	}
	if err != nil && err != io.EOF {
		err = c.failed(op, os.NewSyscallError(op, err))
	}
	return n, err
}

func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// maxBytes is how much is given to the system at a time: no other goroutine runs on this processor while it copies that.
const maxBytes = 64 << 10

func (a *call) read(fd uintptr) bool {
	n, err := retry(sysRead, fd, a.b[:min(len(a.b), maxBytes)])
	switch {
	case err == syscall.EAGAIN:
		return false
	case err != nil:
		a.err = err
	case n == 0:
		a.err = io.EOF
	}
	a.n = n
	return true
}

func (a *call) write(fd uintptr) bool {
	n, err := writeUntilFull(fd, a.b[a.n:])
	if a.n += n; err == syscall.EAGAIN {
		return false
	}
	a.err = err
	return true
}

// writeUntilFull writes b. With EAGAIN the socket takes no more than it has now.
func writeUntilFull(fd uintptr, b []byte) (done int, err error) {
	for done < len(b) {
		n, err := retry(sysWrite, fd, b[done:min(len(b), done+maxBytes)])
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.ErrUnexpectedEOF
		}
		done += n
	}
	return done, nil
}

// retry makes a system call again that a signal has interrupted.
func retry(sys func(fd uintptr, b []byte) (int, error), fd uintptr, b []byte) (n int, err error) {
	for {
		if n, err = sys(fd, b); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.TCPConn.Read(b)
	}
	a := begin(b)
	return a.end(c, "read", c.raw.Read(a.readSome))
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	a := begin(b)
	return a.end(c, "write", c.raw.Write(a.writeAll))
}

// TryWrite writes what the socket takes at once, which may be nothing. Errors: as Write, but that there is no deadline. It does without
// package net, which keeps what it needs for a write in four places: to tell many connections something, most of what is not the
// system's is to wait for memory.
func (c *Conn) TryWrite(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, c.failed("write", net.ErrClosed)
	}
	if n, err = writeUntilFull(c.fd, b); err == nil || err == syscall.EAGAIN {
		return n, nil
	}
	return n, c.failed("write", os.NewSyscallError("write", err))
}
