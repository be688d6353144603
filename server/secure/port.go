package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/internal/loglimit"
)

const (
	// ReloadEvery is the time between two looks at the files of certificates.
	ReloadEvery = time.Second
	// HandshakeByte is the first byte of a TLS connection. No frame of the protocol begins with
	// it: it would be 369 MB long. Neither does a four-letter word or a request of HTTP.
	HandshakeByte = 0x16
	// HandshakeMajor is the second byte: the major version, of all versions of TLS.
	HandshakeMajor = 3
	// HandshakeBytes bounds the bytes that are read of a client before its handshake is over, most
	// of them its certificates. Without it crypto/tls would take 256 KiB of them.
	HandshakeBytes = 32 << 10
	// lingerTimeout bounds the farewell of CloseWrite.
	lingerTimeout = 2 * time.Second
	// recordBytes is the most that a record has.
	recordBytes = 16 << 10
	// unsentRecordBytes bounds the bytes of records that wait to be sent: one that is being sent,
	// and the answers that crypto/tls makes by itself.
	unsentRecordBytes = 4 * recordBytes
)

// PortConfig describes a Port.
type PortConfig struct {
	// MaxHandshakes bounds the clients that are in their handshake at a time.
	MaxHandshakes int
	Reload        bool // certificates when their files have changed
	Logger        *slog.Logger
}

// Port is the TLS of the ports for clients and HTTP: the certificates, and the clients in their
// handshake. It owns a goroutine that looks at the files of the certificates until Close.
type Port struct {
	Keeper *Keeper
	// Handshakes and Failed count the handshakes that ended, Exceeded the clients that were closed
	// in theirs for newer ones.
	Handshakes, Failed, Exceeded atomic.Int64
	Refusals                     *loglimit.Limiter // lines of the log that clients cause

	cfg  PortConfig
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	shaking *connlimit.Table[*Conn] // the clients in their handshake
}

// NewPort returns a Port with these certificates.
func NewPort(keeper *Keeper, cfg PortConfig) *Port {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Port{Keeper: keeper, cfg: cfg, Refusals: loglimit.New(cfg.Logger), stop: cancel,
		shaking: connlimit.New[*Conn](cfg.MaxHandshakes, 0)}
	p.done.Go(func() { p.reloadLoop(ctx) })
	return p
}

// Close ends the goroutine of the Port, and waits for it. Connections stay.
func (p *Port) Close() {
	p.stop()
	p.done.Wait()
}

// Clients is a listener for clients; also says that those without TLS are served, too. The owner of
// a connection calls Begin first.
func (p *Port) Clients(l net.Listener, also bool) net.Listener {
	return &listener{Listener: l, also: also, config: p.Keeper.Server()}
}

// HTTP is a listener for HTTP. Its connections shake hands when net/http reads from them, within
// its deadlines.
func (p *Port) HTTP(l net.Listener, also bool, auth ClientAuth) net.Listener {
	return &listener{Listener: l, also: also, config: p.Keeper.ServerAsking(auth), begin: p.beginHTTP}
}

// reloadLoop reads certificates again that have changed, if the configuration says so, and logs
// that they expire. Connections keep theirs.
func (p *Port) reloadLoop(ctx context.Context) {
	tick := time.NewTicker(ReloadEvery)
	defer tick.Stop()
	end := Expiry{Whom: "clients"}
	for {
		end.Look(p.cfg.Logger, p.Keeper.Expires())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !p.cfg.Reload {
			continue
		}
		switch changed, err := p.Keeper.Reload(); {
		case err != nil:
			p.cfg.Logger.Error("the new certificates cannot be used: those before stay in use", "err", err)
		case changed:
			p.cfg.Logger.Info("certificates read again", "expires", p.Keeper.Expires())
		}
	}
}

// errUnsentRecords says that the other side does not take the answers that crypto/tls makes by
// itself.
var errUnsentRecords = errors.New("server: too many TLS records are unsent")

// ErrLongHandshake says that a client sends more than a handshake needs.
var ErrLongHandshake = fmt.Errorf("server: a TLS handshake of more than %d bytes", HandshakeBytes)

// errTooManyHandshakes is why a client is closed when too many newer ones are in their handshake.
var errTooManyHandshakes = errors.New("server: too many TLS handshakes (netty.server.outstandingHandshake.limit)")

// Begin finds out whether a client's connection speaks TLS, within detect if its first byte has to
// say that, and shakes hands until the deadline. heard is false, with an error, if the client has
// sent nothing, or no more than a first byte that begins no handshake; other errors are logged.
func (p *Port) Begin(ctx context.Context, c *Conn, detect time.Duration, until time.Time) (heard bool, err error) {
	_ = c.SetDeadline(until)
	if err = c.decide(detect, until); err == nil && c.tls != nil {
		err = p.shakeHands(ctx, c)
	}
	_ = c.SetWriteDeadline(time.Time{})
	switch {
	case err == nil:
		return true, nil
	case c.tls != nil && errors.Is(err, errTooManyHandshakes):
		p.Exceeded.Add(1)
		p.Refusals.Warn("too many", "client closed in its TLS handshake: newer ones are too many", "client",
			remoteAddr(c),
			"limit", p.cfg.MaxHandshakes)
	case c.tls == nil || !c.heard:
		return false, err
	default:
		p.Failed.Add(1)
		from := remoteAddr(c)
		if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
			p.Refusals.Warn(from.Addr().String(), "client refused: it does not use TLS, and this port is for TLS only",
				"client", from)
			break
		}
		p.Refusals.Warn(from.Addr().String(), "client refused: TLS handshake failed", "client", from, "err", err)
	}
	return true, err
}

// shakeHands shakes hands as one of the clients that do. If there are too many, the one that began
// first is closed: clients that never finish keep nobody out.
func (p *Port) shakeHands(ctx context.Context, c *Conn) error {
	p.mu.Lock()
	if oldest, ok := p.shaking.Oldest(); ok && p.shaking.Full() {
		p.shaking.Remove(oldest)
		_ = oldest.Close()
	}
	p.shaking.Add(c, netip.Addr{})
	p.mu.Unlock()
	err := c.handshake(ctx)
	p.mu.Lock()
	stayed := p.shaking.Remove(c)
	p.mu.Unlock()
	switch {
	case err == nil:
		p.Handshakes.Add(1)
	case !stayed:
		return errTooManyHandshakes
	}
	return err
}

// Shaking is the number of clients in their handshake.
func (p *Port) Shaking() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shaking.Len()
}

// noPlainHTTP answers a request without TLS.
const noPlainHTTP = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port is " +
	"for HTTPS.\n"

func (p *Port) beginHTTP(c *Conn) error {
	if err := c.decide(0, time.Time{}); err != nil || c.tls == nil {
		return err
	}
	err := c.tls.Handshake()
	c.bounded = false
	switch {
	case err == nil:
		p.Handshakes.Add(1)
	case c.heard:
		p.Failed.Add(1)
		from := remoteAddr(c)
		if record, plain := errors.AsType[tls.RecordHeaderError](err); plain {
			p.Refusals.Warn(from.Addr().String(), "HTTP client refused: it does not use TLS, and this port is "+
				"for TLS only", "client", from)
			_, _ = io.WriteString(record.Conn, noPlainHTTP)
			break
		}
		p.Refusals.Warn(from.Addr().String(), "HTTP client refused: TLS handshake failed", "client", from, "err", err)
	}
	return err
}

// NamingFailed logs that the id of a certificate's holder is its subject.
func (p *Port) NamingFailed(id string, err error) {
	p.Refusals.Warn("naming", "the id of a certificate's holder is its subject", "id", id, "because", err)
}

// remoteAddr is the other end of a connection; zero if that is no IP address.
func remoteAddr(c net.Conn) netip.AddrPort {
	at, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
