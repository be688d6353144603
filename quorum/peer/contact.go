package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockkeeper/internal/loglimit"
)

// contactGrace is for how long a member may be out of reach before a line of the log says so: a
// restart takes a moment.
const contactGrace = time.Second

// contacts logs which members this one cannot reach, at which address, since when and why: once a
// Period of the log for each member, and once when it is reached again.
type contacts struct {
	log *slog.Logger

	mu   sync.Mutex
	lost map[MemberID]*lostContact
}

// lostContact is a member that the last streams could not be opened to.
type lostContact struct {
	since  time.Time
	logged time.Time // the newest line; zero: there is none
}

func newContacts(log *slog.Logger) *contacts {
	return &contacts{log: log, lost: map[MemberID]*lostContact{}}
}

// note records the result of opening a stream to a member at one of its addresses.
func (c *contacts) note(ctx context.Context, to MemberID, addrs []string, err error) {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled), errors.Is(err, net.ErrClosed), len(addrs) == 0:
		return // nobody wanted the stream any more, or it is no member
	case errors.Is(err, ErrVerdict):
		return // awaitVerdict has said it
	}
	now := time.Now()
	c.mu.Lock()
	lost := c.lost[to]
	switch {
	case err == nil:
		delete(c.lost, to)
		c.mu.Unlock()
		if lost != nil && !lost.logged.IsZero() {
			c.log.Info("a member is reached again", "other", to, "after", now.Sub(lost.since).Round(time.Millisecond))
		}
		return
	case lost == nil:
		lost = &lostContact{since: now}
		c.lost[to] = lost
	}
	due := now.Sub(lost.since) >= contactGrace && (lost.logged.IsZero() || now.Sub(lost.logged) >= loglimit.Period)
	if due {
		lost.logged = now
	}
	since := lost.since
	c.mu.Unlock()
	if due {
		c.log.Warn("a member cannot be reached", "other", to, "address", strings.Join(addrs, ","), "for",
			now.Sub(since).Round(time.Second),
			"why", whyUnreached(err))
	}
}

// errTLS says that the TLS handshake with a member failed.
var errTLS = errors.New("TLS")

// whyUnreached says in words why a stream could not be opened.
func whyUnreached(err error) string {
	var timeout net.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "its host name is not resolved: " + dns.Err
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: nothing listens there, or a firewall refuses it"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to its host"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time: the host is down, the network drops packets, or the process hangs"
	case errors.Is(err, errTLS), errors.Is(err, errProof), errors.Is(err, ErrVersion):
		return err.Error()
	case errors.Is(err, errUnanswered), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Sprintf("it closes the connection: it refuses this member, which its log says, or no member "+
			"listens there (%v)", err)
	}
	return err.Error()
}
