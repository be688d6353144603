package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// FourLetter sends a four-letter word (srvr, mntr, ...) to a client port and
// returns the whole answer.
func FourLetter(ctx context.Context, addr, word string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("jepsen: %s: %w", word, err)
	}
	defer conn.Close()
	// A member that is paused accepts and never answers.
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("jepsen: %s: %w", word, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("jepsen: %s: %w", word, err)
	}
	return string(answer), nil
}

// errNotServing says that a member answers four-letter words but serves no
// clients: it has no quorum, or is still starting.
var errNotServing = errors.New("not serving")

// parseMode finds the role in the answer to srvr: leader, follower, observer
// or standalone.
func parseMode(srvr string) (string, error) {
	for line := range strings.Lines(srvr) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", fmt.Errorf("%w: srvr answered %q", errNotServing, strings.TrimSpace(srvr))
}
