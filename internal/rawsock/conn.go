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

// Conn is a TCP connection. Its methods may be called at the same time, as those of each net.Conn.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn
}

// Wrap returns a *Conn for a connection of package net over TCP, which is not to be used any more, and any other as it is.
func Wrap(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	return &Conn{tcp, raw}
}

// call is one call of Read, Write or TryWrite.
type call struct {
	b   []byte
	n   int // bytes of it that are done
	err error

	readSome, writeAll, writeSome func(fd uintptr) (done bool) // its methods; kept, because making them takes memory
}

var calls = sync.Pool{New: func() any {
	a := new(call)
	a.readSome, a.writeAll, a.writeSome = a.read, a.write, a.tryWrite
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
		err = &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
	}
	return n, err
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
	for a.n < len(a.b) {
		rest := a.b[a.n:]
		n, err := retry(sysWrite, fd, rest[:min(len(rest), maxBytes)])
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == nil && n == 0:
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			a.err = err
			return true
		}
		a.n += n
	}
	return true
}

func (a *call) tryWrite(fd uintptr) bool {
	a.write(fd)
	return true // what the socket does not take is not waited for
}

// retry makes a system call again that a signal has interrupted.
func retry(call func(fd uintptr, b []byte) (int, error), fd uintptr, b []byte) (n int, err error) {
	for {
		if n, err = call(fd, b); err != syscall.EINTR {
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

// TryWrite writes what the socket takes at once, which may be nothing. Errors: as Write, of which the deadline is heeded, too.
func (c *Conn) TryWrite(b []byte) (n int, err error) {
	a := begin(b)
	return a.end(c, "write", c.raw.Write(a.writeSome))
}
