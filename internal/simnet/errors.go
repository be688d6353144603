package simnet

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// timeoutError is package net's error when a dial runs out of time.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// Is makes errors.Is(err, context.DeadlineExceeded) hold, as it does for a
// net.Dialer, and os.ErrDeadlineExceeded with it.
func (timeoutError) Is(err error) bool {
	return err == context.DeadlineExceeded || err == os.ErrDeadlineExceeded
}

// errCanceled is package net's error when a dial's context is cancelled.
var errCanceled error = canceledError{}

type canceledError struct{}

func (canceledError) Error() string     { return "operation was canceled" }
func (canceledError) Is(err error) bool { return err == context.Canceled }

// errno wraps a system error the way package net does.
func errno(call string, e syscall.Errno) error { return os.NewSyscallError(call, e) }

// fromContext translates the end of a dial's context into package net's terms.
func fromContext(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return timeoutError{}
	case errors.Is(err, context.Canceled):
		return errCanceled
	}
	return err
}

// opError is the error of an operation on c. io.EOF is never wrapped.
func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}
