//go:build unix

package server

import (
	"io"
	"net"
	"sync"
	"syscall"
)

// socket writes to a socket without waiting for it, which a net.Conn cannot.
type socket struct{ raw syscall.RawConn }

// socketWriter is the tryWriter of a connection with a socket, nil if it has none.
func socketWriter(nc net.Conn) tryWriter {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return socket{raw}
}

// attempt is one call of TryWrite.
type attempt struct {
	b    []byte
	n    int
	err  error
	call func(fd uintptr) bool // write; kept, because making it takes memory
}

var attempts = sync.Pool{New: func() any {
	a := new(attempt)
	a.call = a.write
	return a
}}

func (a *attempt) write(fd uintptr) bool {
	for a.n < len(a.b) {
		n, err := syscall.Write(int(fd), a.b[a.n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return true
		case err != nil:
			a.err = err
			return true
		case n == 0:
			a.err = io.ErrUnexpectedEOF
			return true
		}
		a.n += n
	}
	return true // done: what the socket does not take is not waited for
}

// TryWrite implements tryWriter. The socket does not block, as those of package net do not.
func (s socket) TryWrite(b []byte) (int, error) {
	a := attempts.Get().(*attempt)
	a.b, a.n, a.err = b, 0, nil
	err := s.raw.Write(a.call)
	if err == nil {
		err = a.err
	}
	n := a.n
	a.b, a.err = nil, nil
	attempts.Put(a)
	return n, err
}
