package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
	"lockkeeper/znode"
)

const (
	// reloadEvery is how often the files of certificates are looked at.
	reloadEvery = time.Second
	// tlsHandshakeByte is the first byte of a TLS connection. No frame of the protocol begins with
	// it: it would be 369 MB long. Neither does a four-letter word or a request of HTTP.
	tlsHandshakeByte = 0x16
	// tlsMajor is the second byte: the major version, of all versions of TLS.
	tlsMajor = 3
	// clientHandshakeBytes bounds what is read of a client before its handshake of TLS is over: its
	// certificates are the most of it. Without it crypto/tls would take 256 KiB of them.
	clientHandshakeBytes = 32 << 10
	// recordBytes is how many bytes a record has at most.
	recordBytes = 16 << 10
	// unsentRecordBytes is how many bytes of records may wait to be sent: one that is being sent,
	// and what crypto/tls answers by itself to the other side.
	unsentRecordBytes = 4 * recordBytes
)

// serverTLS is the TLS of the ports for clients and HTTP. nil has no port that speaks TLS.
type serverTLS struct {
	cfg      *Config
	keeper   *secure.Keeper
	refusals *loglimit.Limiter
	// maxShaking is how many clients may be in their handshake at a time.
	maxShaking int
	stopped    context.CancelFunc
	done       sync.WaitGroup

	handshakes, failed, exceeded atomic.Int64

	mu      sync.Mutex
	shaking list.List // the secureConns of clients that are in their handshake, the oldest first
}

// openTLS reads the certificates; nil if no port speaks TLS.
func openTLS(cfg *Config) (*serverTLS, error) {
	if !cfg.SpeaksTLS() {
		return nil, nil
	}
	keeper, err := cfg.OpenTLS()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &serverTLS{cfg: cfg, keeper: keeper, refusals: loglimit.New(cfg.Logger), maxShaking: cfg.MaxHandshakes, stopped: cancel}
	t.done.Go(func() { t.reloadLoop(ctx) })
	return t, nil
}

// expiry logs that a certificate is about to expire: when it is first seen, and once a day.
type expiry struct {
	whom   string // for whom the certificate is
	logged time.Time
}

const (
	// expiryNotice is how long before its end the log says that a certificate expires.
	expiryNotice = 30 * 24 * time.Hour
	expiryPause  = 24 * time.Hour
)

func (e *expiry) look(log *slog.Logger, expires time.Time) {
	now := time.Now()
	left := expires.Sub(now)
	if left > expiryNotice || !e.logged.IsZero() && now.Sub(e.logged) < expiryPause {
		return
	}
	e.logged = now
	text := "the certificate of this member expires soon: replace it ('lockkeeper certs renew')"
	if left <= 0 {
		text = "THE CERTIFICATE OF THIS MEMBER HAS EXPIRED: others refuse it; replace it ('lockkeeper certs renew')"
	}
	log.Warn(text, "for", e.whom, "expires", expires.UTC().Format(time.RFC3339), "days", int(left.Hours()/24))
}

// reloadLoop reads certificates again that have changed, if the configuration says so, and logs
// that they expire. Connections keep theirs.
func (t *serverTLS) reloadLoop(ctx context.Context) {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	end := expiry{whom: "clients"}
	for {
		end.look(t.cfg.Logger, t.keeper.Expires())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !t.cfg.TLS.Reload {
			continue
		}
		switch changed, err := t.keeper.Reload(); {
		case err != nil:
			t.cfg.Logger.Error("the new certificates cannot be used: those before stay in use", "err", err)
		case changed:
			t.cfg.Logger.Info("certificates read again", "expires", t.keeper.Expires())
		}
	}
}

func (t *serverTLS) stop() {
	if t == nil {
		return
	}
	t.stopped()
	t.done.Wait()
}

// metrics are about the clients of the ports that speak TLS.
func (t *serverTLS) metrics() metrics.List {
	return metrics.List{
		metrics.Gauge("outstanding_tls_handshake", "clients that are in their TLS handshake", t.shakingCount()),
		metrics.Counter("tls_handshake_exceeded", "clients closed in their TLS handshake because too many newer ones were in theirs "+
			"(netty.server.outstandingHandshake.limit)", t.exceeded.Load()),
		metrics.Counter("tls_handshakes", "TLS handshakes that succeeded", t.handshakes.Load()),
		metrics.Counter("tls_handshakes_failed", "TLS handshakes that failed", t.failed.Load()),
		metrics.Gauge("tls_certificate_seconds_left", "seconds until the certificate of this server expires",
			int64(time.Until(t.keeper.Expires()).Seconds())),
		metrics.Counter("tls_reloads", "times that changed certificates were read", t.keeper.Reloads.Load()),
		metrics.Counter("tls_reload_failures", "times that changed certificates could not be used", t.keeper.ReloadFailures.Load()),
	}
}

// errUnsentRecords says that the other side does not take what crypto/tls answers by itself.
var errUnsentRecords = errors.New("server: too many TLS records are unsent")

// errLongHandshake says that a client sends more than a handshake needs.
var errLongHandshake = fmt.Errorf("server: a TLS handshake of more than %d bytes", clientHandshakeBytes)

// errTooManyHandshakes is why a client is closed when too many newer ones are in their handshake.
var errTooManyHandshakes = errors.New("server: too many TLS handshakes (netty.server.outstandingHandshake.limit)")

// secureClient has a client's connection decide whether it speaks TLS, and shakes hands. All of it,
// and the first request, has the time of HandshakeTimeout. It returns false when the connection is
// to be closed.
func (p *clientPort) secureClient(ctx context.Context, c *conn) bool {
	sc, ok := c.Conn.(*secureConn)
	if !ok {
		return true
	}
	until := c.accepted.Add(p.cfg.HandshakeTimeout)
	_ = sc.SetDeadline(until)
	err := sc.decide(p.cfg.TLSDetectTimeout, until)
	if err == nil && sc.tls != nil {
		err = p.tls.shakeHands(ctx, sc)
	}
	_ = sc.SetWriteDeadline(time.Time{})
	switch {
	case err == nil:
		return true
	case sc.tls == nil:
		p.silent(c, err)
	case errors.Is(err, errTooManyHandshakes):
		p.tls.exceeded.Add(1)
		p.tls.refusals.Warn("too many", "client closed in its TLS handshake: newer ones are too many", "client", c.remote,
			"limit", p.cfg.MaxHandshakes)
	case !sc.heard:
		p.silent(c, err)
	default:
		p.tls.failed.Add(1)
		if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
			p.tls.refusals.Warn(c.remote.Addr().String(), "client refused: it does not use TLS, and this port is for TLS only", "client", c.remote)
			break
		}
		p.tls.refusals.Warn(c.remote.Addr().String(), "client refused: TLS handshake failed", "client", c.remote, "err", err)
	}
	return false
}

func (t *serverTLS) shakeHands(ctx context.Context, sc *secureConn) error {
	at := t.begin(sc)
	err := sc.handshake(ctx)
	displaced := !t.end(at)
	switch {
	case err == nil:
		t.handshakes.Add(1)
	case displaced:
		return errTooManyHandshakes
	}
	return err
}

// begin counts a client that begins its handshake. If there are too many, the one that began first
// is closed: clients that never finish keep nobody out.
func (t *serverTLS) begin(sc *secureConn) *list.Element {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shaking.Len() >= t.maxShaking {
		oldest := t.shaking.Front()
		oldest.Value.(*secureConn).displaced = true
		_ = t.shaking.Remove(oldest).(*secureConn).Close()
	}
	return t.shaking.PushBack(sc)
}

// end takes a client out of the count. It returns false if the client has been closed for another.
func (t *serverTLS) end(at *list.Element) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	sc := at.Value.(*secureConn)
	if !sc.displaced {
		t.shaking.Remove(at)
	}
	return !sc.displaced
}

func (t *serverTLS) shakingCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shaking.Len()
}

// certIdentities are the identities of the holder of the certificate that was shown on a
// connection.
func (t *serverTLS) certIdentities(nc net.Conn) []znode.Identity {
	sc, ok := nc.(*secureConn)
	if !ok || sc.tls == nil {
		return nil
	}
	certs := sc.tls.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil
	}
	return t.holderIdentities(certs[0])
}

// usesTLS reports whether a connection speaks TLS.
func usesTLS(nc net.Conn) bool {
	sc, ok := nc.(*secureConn)
	return ok && sc.tls != nil
}

func (t *serverTLS) holderIdentities(cert *x509.Certificate) []znode.Identity {
	id, err := t.cfg.X509Naming.ID(cert)
	if err != nil {
		t.refusals.Warn("naming", "the id of a certificate's holder is its subject", "id", id, "because", err)
	}
	ids := []znode.Identity{{Scheme: "x509", ID: id}}
	if t.cfg.X509SuperUser != "" && id == t.cfg.X509SuperUser {
		ids = append(ids, znode.Identity{Scheme: "super"})
	}
	return ids
}

// tlsListener accepts connections that speak TLS, or may. Nothing is read from them yet.
type tlsListener struct {
	net.Listener
	mode   zoocfg.TLSMode
	config *tls.Config
	begin  func(*secureConn) error // of its connections
}

// clientListener is a listener for clients in that mode; without TLS it is l itself.
func (t *serverTLS) clientListener(l net.Listener, mode zoocfg.TLSMode) net.Listener {
	if mode == zoocfg.TLSOff {
		return l
	}
	return &tlsListener{Listener: l, mode: mode, config: t.keeper.Server()}
}

// httpListener is the listener of a port for HTTP. Its connections shake hands when net/http reads
// from them, within its deadlines.
func (t *serverTLS) httpListener(l net.Listener, mode zoocfg.TLSMode) net.Listener {
	if mode == zoocfg.TLSOff {
		return l
	}
	auth := secure.ClientAuthWant
	switch {
	case t.cfg.HTTPNeedCert:
		auth = secure.ClientAuthNeed
	case t.cfg.TLS.TrustStore.File == "":
		auth = secure.ClientAuthNone
	}
	return &tlsListener{Listener: l, mode: mode, config: t.keeper.ServerAsking(auth), begin: t.beginHTTP}
}

// noPlainHTTP answers a request without TLS.
const noPlainHTTP = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port is for HTTPS.\n"

func (t *serverTLS) beginHTTP(c *secureConn) error {
	if err := c.decide(0, time.Time{}); err != nil || c.tls == nil {
		return err
	}
	err := c.tls.Handshake()
	c.bounded = false
	switch {
	case err == nil:
		t.handshakes.Add(1)
	case c.heard:
		t.failed.Add(1)
		from := remoteAddr(c)
		if record, plain := errors.AsType[tls.RecordHeaderError](err); plain {
			t.refusals.Warn(from.Addr().String(), "HTTP client refused: it does not use TLS, and this port is for TLS only", "client", from)
			_, _ = io.WriteString(record.Conn, noPlainHTTP)
			break
		}
		t.refusals.Warn(from.Addr().String(), "HTTP client refused: TLS handshake failed", "client", from, "err", err)
	}
	return err
}

// Accept implements net.Listener.
func (l *tlsListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &secureConn{Conn: nc, mode: l.mode, config: l.config, begin: l.begin}, nil
}

// secureConn is a connection that speaks TLS, or may. One goroutine begins: it calls decide and
// handshake, or Read does. After that it is a net.Conn like others, with two differences that the
// sessions need, because to crypto/tls a deadline that passes within a write is the end of the
// connection:
//
//   - After a Write that ran into its deadline, another one has to begin with the bytes that were
//     not written.
//   - Close does not tell the other side; CloseWrite does.
type secureConn struct {
	net.Conn
	mode   zoocfg.TLSMode
	config *tls.Config
	begin  func(*secureConn) error // called by the first Read, unless nil
	first  []byte                  // read by decide, to be read again
	heard  bool                    // something has been read
	tls    *tls.Conn               // nil before decide, and if there is no TLS
	shaken bool                    // the handshake is over, and records wait for send
	// bounded says that only allowed bytes more may be read.
	bounded bool
	allowed int
	// displaced says that it was closed for a newer one; guarded by serverTLS.mu.
	displaced bool

	encrypted int // how many bytes of the next Write are in records already

	mu      sync.Mutex
	records []byte // to be sent
}

// decide finds out whether the other side speaks TLS. If its first byte has to say so, it must come
// within timeout; until is the deadline for all that follows. Zeros leave the deadlines alone.
func (c *secureConn) decide(timeout time.Duration, until time.Time) error {
	if c.mode == zoocfg.TLSAlso {
		if at := time.Now().Add(timeout); at.Before(until) {
			_ = c.SetReadDeadline(at)
		}
		var first [1]byte
		if _, err := io.ReadFull(c.Conn, first[:]); err != nil {
			return err
		}
		if !until.IsZero() {
			_ = c.SetReadDeadline(until)
		}
		c.heard, c.first = true, first[:]
		if first[0] != tlsHandshakeByte {
			return nil
		}
	}
	c.tls = tls.Server((*recordConn)(c), c.config)
	c.bounded, c.allowed = true, clientHandshakeBytes
	return nil
}

func (c *secureConn) handshake(ctx context.Context) error {
	err := c.tls.HandshakeContext(ctx)
	c.shaken, c.bounded = true, false
	return err
}

// Read implements net.Conn.
func (c *secureConn) Read(b []byte) (int, error) {
	if c.begin != nil {
		begin := c.begin
		c.begin = nil
		if err := begin(c); err != nil {
			return 0, err
		}
	}
	if c.tls == nil {
		return (*recordConn)(c).Read(b)
	}
	return c.tls.Read(b)
}

// Write implements net.Conn.
func (c *secureConn) Write(b []byte) (n int, err error) {
	if c.tls == nil {
		return c.Conn.Write(b)
	}
	if c.encrypted > 0 {
		if err := c.send(); err != nil {
			return 0, err
		}
		n, c.encrypted = min(c.encrypted, len(b)), 0
	}
	for n < len(b) {
		part := b[n:min(len(b), n+recordBytes)]
		if _, err := c.tls.Write(part); err != nil {
			return n, err
		}
		if err := c.send(); err != nil {
			c.encrypted = len(part)
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// send sends the records that wait, until the write deadline.
func (c *secureConn) send() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records) == 0 {
		return nil
	}
	n, err := c.Conn.Write(c.records)
	if c.records = c.records[n:]; len(c.records) == 0 {
		c.records = nil // most connections are idle, and the next answer has another length
	}
	return err
}

// CloseWrite tells the other side that nothing more will come.
func (c *secureConn) CloseWrite() error {
	hc, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	if c.tls != nil && c.shaken {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(lingerTimeout))
		if err := errors.Join(c.tls.CloseWrite(), c.send()); err != nil {
			return err
		}
	}
	return hc.CloseWrite()
}

// recordConn is what crypto/tls reads records from and writes them to. Records after the handshake
// wait until secureConn.send sends them.
type recordConn secureConn

// Read implements net.Conn.
func (c *recordConn) Read(b []byte) (int, error) {
	if n := copy(b, c.first); n > 0 {
		c.first = c.first[n:]
		return n, nil
	}
	if c.bounded {
		if c.allowed == 0 && len(b) > 0 {
			return 0, errLongHandshake
		}
		b = b[:min(len(b), c.allowed)]
	}
	n, err := c.Conn.Read(b)
	if c.bounded {
		c.allowed -= n
	}
	if n > 0 && !c.heard { // later on, other goroutines read
		c.heard = true
	}
	return n, err
}

// Write implements net.Conn.
func (c *recordConn) Write(b []byte) (int, error) {
	if !c.shaken {
		return c.Conn.Write(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records)+len(b) > unsentRecordBytes {
		return 0, errUnsentRecords
	}
	c.records = append(c.records, b...)
	return len(b), nil
}

// SetDeadline and SetWriteDeadline do nothing: the deadlines of the connection are those of its
// owner.
func (c *recordConn) SetDeadline(time.Time) error      { return nil }
func (c *recordConn) SetWriteDeadline(time.Time) error { return nil }
