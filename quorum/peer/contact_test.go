package peer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A member that is out of reach has a line when that has lasted, another one after each minute, and
// one when it is reached again, with the address and the reason. A short absence has none.
func TestContactsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newContacts(slog.New(slog.NewTextHandler(&out, nil)))
		ctx, refused := t.Context(), &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		addrs := []string{"10.0.0.2:2888"}
		c.note(ctx, 2, addrs, refused)
		time.Sleep(contactGrace / 2)
		c.note(ctx, 2, addrs, nil)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for range 100 { // somebody gives up
			c.note(ended, 3, addrs, context.Canceled)
			time.Sleep(contactGrace)
		}
		if out.Len() > 0 {
			t.Errorf("logged %s", out.String())
		}
		for range 1250 {
			c.note(ctx, 2, addrs, refused)
			time.Sleep(100 * time.Millisecond)
		}
		c.note(ctx, 2, addrs, nil)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 4 {
			t.Fatalf("%d lines in 125 s, want 3 and the end:\n%s", len(lines), out.String())
		}
		for i, want := range []string{"for=1s", "for=1m1s", "for=2m1s"} {
			if !strings.Contains(lines[i], `level=WARN msg="a member cannot be reached" other=2 address=10.0.0.2:2888 `+want+` why="connection refused`) {
				t.Errorf("line %d: %s", i, lines[i])
			}
		}
		if !strings.Contains(lines[3], `level=INFO msg="a member is reached again" other=2 after=2m5s`) {
			t.Errorf("the last line: %s", lines[3])
		}
	})
}

// Each cause is told from the others.
func TestWhyUnreached(t *testing.T) {
	call := func(e syscall.Errno) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", e)} }
	for want, err := range map[string]error{
		"connection refused: ":      call(syscall.ECONNREFUSED),
		"no route to its host":      call(syscall.EHOSTUNREACH),
		"no answer in time: ":       fmt.Errorf("%w: %w", errTLS, os.ErrDeadlineExceeded),
		"its host name is not":      &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "m2", IsNotFound: true}},
		"TLS: x509: ":               fmt.Errorf("%w: x509: certificate signed by unknown authority", errTLS),
		"it closes the connection":  fmt.Errorf("%w by member 2: EOF", errUnanswered),
		"peer: no common version":   fmt.Errorf("%w: member 2 speaks 4 and 5", ErrVersion),
		"peer: member 2 is unknown": fmt.Errorf("peer: member 2 is unknown"),
	} {
		if got := whyUnreached(err); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
