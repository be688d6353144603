package server

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"lockkeeper/internal/connlimit"
	"lockkeeper/internal/loglimit"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/words"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
)

// clientPort accepts client connections, enforces the limits on their number, and owns them until
// they are closed.
type clientPort struct {
	cfg      *Config
	sessions *session.Manager
	words    *words.Words
	tls      *serverTLS // nil without TLS
	connects *rate.Limiter
	refusals *loglimit.Limiter
	// maxFiles is the number of connections that the file descriptors permit; no limit when <= 0.
	maxFiles, maxSilent int
	counters            counters

	flushers flushers

	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ctx    context.Context // of the handshakes; nil before start
	// listener may be replaced when the member's address changes.
	listener net.Listener
	secure   net.Listener            // of clients with TLS; nil if there is none
	conns    *connlimit.Table[*conn] // spare before their first request is complete
}

// newClientPort returns a port that accepts from its listeners between start and stopAccepting.
func newClientPort(ports listeners, cfg *Config, tls *serverTLS, sessions *session.Manager,
	w *words.Words) *clientPort {
	files := planDescriptors(cfg).forClients()
	silent := cfg.Client.MaxSilentCnxns
	if files > 0 {
		silent = min(silent, files/2)
	}
	p := &clientPort{
		cfg: cfg, sessions: sessions, words: w, tls: tls, refusals: loglimit.New(cfg.Logger),
		connects: connlimit.NewRate(cfg.Client.ConnectTokens, cfg.Client.ConnectFillCount, cfg.Client.ConnectFillTime),
		maxFiles: files, maxSilent: silent, listener: tls.clientListener(ports.clients, cfg.Client.TLS),
		conns: connlimit.New[*conn](lowest(cfg.Client.MaxCnxns, files), cfg.Client.MaxCnxnsPerAddr),
	}
	if ports.secure != nil {
		p.secure = tls.clientListener(ports.secure, zoocfg.TLSOnly)
	}
	return p
}

// start begins to accept. The end of ctx ends handshakes that wait for a commit.
func (p *clientPort) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = ctx
	p.acceptLocked(p.listener)
	if p.secure != nil {
		p.acceptLocked(p.secure)
	}
}

func (p *clientPort) acceptLocked(l net.Listener) {
	ctx := p.ctx
	p.wg.Go(func() { p.acceptLoop(ctx, l) })
}

// replace accepts from l instead, unless the port has been closed. Connections stay.
func (p *clientPort) replace(l net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = l.Close()
		return false
	}
	_ = p.listener.Close()
	p.listener = l
	if p.ctx != nil {
		p.acceptLocked(l)
	}
	return true
}

// mayConnect takes one of the handshakes that all clients share; false if there is none now.
func (p *clientPort) mayConnect() bool {
	ok := p.connects.Allow()
	if !ok {
		p.counters.rejected.Add(1)
	}
	return ok
}

func (p *clientPort) addr() net.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener.Addr()
}

// Accepting fails for a while when the process is out of file descriptors; trying again at once
// would only burn CPU.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

func (p *clientPort) acceptLoop(ctx context.Context, l net.Listener) {
	pause := acceptPauseMin
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = acceptPauseMin
			p.admit(ctx, nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		p.refusals.Warn("accept", "client port: accept failed", "err", err, "retryIn", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, acceptPauseMax)
	}
}

// admit counts a connection before anything is read from it, and closes it at once when there are
// too many: a refused client costs no memory. Connections without a complete first request make
// room for newer ones, the oldest first: so a client that sends its request at once is served,
// whatever their number.
func (p *clientPort) admit(ctx context.Context, nc net.Conn) {
	c := newConn(nc)
	c.port = p
	ip := c.remote().Addr()
	p.mu.Lock()
	if oldest, ok := p.conns.Oldest(); ok && (p.conns.LenSpare() >= p.maxSilent || p.conns.Full()) {
		p.conns.Remove(oldest)
		p.counters.displaced.Add(1)
		_ = oldest.Close()
	}
	switch {
	case p.closed:
	case p.conns.HostFull(ip):
		p.counters.rejected.Add(1)
		p.refusals.Warn("maxClientCnxns "+ip.String(),
			"client refused: too many connections from its address (maxClientCnxns)",
			"client", c.remote(), "limit", p.cfg.Client.MaxCnxnsPerAddr)
	case p.conns.Full() && p.cfg.Client.MaxCnxns == lowest(p.cfg.Client.MaxCnxns, p.maxFiles):
		p.counters.rejected.Add(1)
		p.refusals.Warn("maxCnxns", "client refused: too many connections (maxCnxns)",
			"client", c.remote(), "limit", p.cfg.Client.MaxCnxns)
	case p.conns.Full():
		p.counters.rejected.Add(1)
		p.refusals.Warn("files",
			"client refused: the file descriptors that are left are for the peers and the log (ulimit -n)",
			"client", c.remote(), "limit", p.maxFiles)
	default:
		p.counters.accepted.Add(1)
		p.conns.Add(c, ip)
		p.wg.Go(func() { p.live(ctx, c) })
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	_ = nc.Close()
}

// counters are the counters of a client port.
type counters struct {
	// These three reset leaves: connections, connections and handshakes beyond a limit, connections
	// without a complete request that were closed for a newer one.
	accepted, rejected, displaced atomic.Int64

	wordsReceived      atomic.Int64 // four-letter words: they count as packets
	wordsSent          atomic.Int64
	connectRequests    atomic.Int64
	refusedHandshakes  atomic.Int64 // no leader, or the client has seen later state
	badHandshakes      atomic.Int64 // first frames that were no connect request
	sessionlessExpired atomic.Int64 // connections without a first request in time
	drops              atomic.Int64 // connections that clients ended without closing the session
	badLengths         atomic.Int64 // frames that were too long, or not as long as nothing
	bytesReceived      atomic.Int64
	lockStrangers      atomic.Int64 // nodes of locks beside another library's
}

func (c *counters) reset() {
	for _, n := range []*atomic.Int64{&c.wordsReceived, &c.wordsSent, &c.connectRequests, &c.refusedHandshakes,
		&c.badHandshakes, &c.sessionlessExpired, &c.badLengths, &c.bytesReceived, &c.drops, &c.lockStrangers} {
		n.Store(0)
	}
}

// lowest is the lowest of limits, of which 0 or less is none.
func lowest(a, b int) int {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// live serves a connection to its end. When serve returns true, it continues in a new goroutine.
func (p *clientPort) live(ctx context.Context, c *conn) {
	if p.serveConn(ctx, c) {
		p.wg.Go(func() { p.live(ctx, c) })
		return
	}
	p.forget(c)
}

func (p *clientPort) forget(c *conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns.Remove(c)
}

// ports are the ports for clients, the second one with TLS only; -1 if there is none.
func (p *clientPort) ports() (port, securePort int) {
	port, securePort = 0, -1
	if at, ok := p.addr().(*net.TCPAddr); ok {
		port = at.Port
	}
	if p.secure != nil {
		if at, ok := p.secure.Addr().(*net.TCPAddr); ok {
			securePort = at.Port
		}
	}
	if p.cfg.Client.TLS == zoocfg.TLSOnly {
		return -1, port
	}
	return port, securePort
}

// counts returns the counters of the port.
func (p *clientPort) counts() ops.PortCounts {
	c := &p.counters
	return ops.PortCounts{WordsReceived: c.wordsReceived.Load(), WordsSent: c.wordsSent.Load(),
		ConnectRequests: c.connectRequests.Load(), RefusedHandshakes: c.refusedHandshakes.Load(),
		BadHandshakes: c.badHandshakes.Load(), Expired: c.sessionlessExpired.Load(), Drops: c.drops.Load(),
		BadLengths: c.badLengths.Load(), BytesReceived: c.bytesReceived.Load(), Rejected: c.rejected.Load(),
		Displaced: c.displaced.Load(), Silent: p.silentCount()}
}

// connections lists the connections in the order of their acceptance.
func (p *clientPort) connections() []ops.Connection {
	conns := p.list()
	slices.SortStableFunc(conns, func(a, b *conn) int { return a.accepted.Compare(b.accepted) })
	list := make([]ops.Connection, len(conns))
	for i, c := range conns {
		list[i] = ops.Connection{Remote: c.remote(), Secure: usesTLS(c.Conn), Accepted: c.accepted,
			Session: c.session.Load()}
	}
	return list
}

// heard is called when the first request of a connection is complete.
func (p *clientPort) heard(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns.Keep(c)
}

// silentCount returns the number of connections without a complete first request.
func (p *clientPort) silentCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns.LenSpare()
}

func (p *clientPort) list() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(p.conns.All())
}

func (p *clientPort) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns.Len()
}

// stopAccepting closes the listener. The connections stay.
func (p *clientPort) stopAccepting() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close()
	if p.secure != nil {
		_ = p.secure.Close()
	}
	p.mu.Unlock()
}

// cut closes every connection without a last answer.
func (p *clientPort) cut() {
	for _, c := range p.list() {
		_ = c.Close()
	}
}

// cutSilent closes the connections without a session. Those with a session end with it, and those
// that are being sent their last answer end by themselves.
func (p *clientPort) cutSilent() {
	for _, c := range p.list() {
		if c.session.Load() == nil && !c.parting.Load() {
			_ = c.Close()
		}
	}
}

// wait waits until every goroutine of the port and of its connections has ended.
func (p *clientPort) wait() { p.wg.Wait() }
