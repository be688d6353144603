package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The verdict of the member that a stream was opened to says whether it serves the stream, so that
// a refusal is named at both ends:
//
//	 0   1            1+n
//	+---+------------+
//	| n | reason (n) |
//	+---+------------+
//
// N is 0 if the stream is served.
const maxReason = 255

// ErrVerdict says that a member refuses this one, with the reason that it gives.
var ErrVerdict = errors.New("peer: refused")

// sendVerdict answers a stream with the reason for which it is refused; empty: it is served.
func (p *Port) sendVerdict(c net.Conn, refusal string) error {
	refusal = refusal[:min(len(refusal), maxReason)]
	_ = c.SetWriteDeadline(time.Now().Add(PrefaceTimeout))
	_, err := c.Write(append([]byte{byte(len(refusal))}, refusal...))
	_ = c.SetWriteDeadline(time.Time{})
	return err
}

// awaitVerdict reads the verdict on a stream with that preface, and logs a refusal, now and then
// for each reason. Errors: ErrVerdict, those of ctx and of the connection.
func (p *Port) awaitVerdict(ctx context.Context, raw, c net.Conn, f preface) error {
	_ = raw.SetDeadline(time.Now().Add(PrefaceTimeout))
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	var b [1 + maxReason]byte
	_, err := io.ReadFull(c, b[:1])
	if err == nil {
		_, err = io.ReadFull(c, b[1:1+int(b[0])])
	}
	if !stop() {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	_ = raw.SetDeadline(time.Time{})
	if b[0] == 0 {
		return nil
	}
	reason := string(b[1 : 1+int(b[0])])
	p.log.Warn(fmt.Sprintf("verdict of member %d: %s", f.to, reason), "peer port: a member refuses this one",
		"other", f.to, "address", raw.RemoteAddr(), "reason", reason)
	return fmt.Errorf("%w by member %d at %v: %s", ErrVerdict, f.to, raw.RemoteAddr(), reason)
}
