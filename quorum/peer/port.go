package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockkeeper/internal/loglimit"
)

// StreamKind is the kind of a stream.
type StreamKind byte

// The kinds of streams.
const (
	StreamRaft     StreamKind = 'R' // requests of the raft library
	StreamForward  StreamKind = 'F' // commands on their way to the leader
	StreamLease    StreamKind = 'L' // lease reports and their confirmations
	StreamClaims   StreamKind = 'C' // questions for sessions that a member does not know
	StreamHello    StreamKind = 'H' // the state of a member
	StreamTransfer StreamKind = 'T' // a request to transfer the leadership
	StreamStop     StreamKind = 'S' // questions whether a member may stop
)

// ErrRefused refuses a frame or a request of another member: no member of this version sends it, or
// there is no memory for it. It ends the stream.
var ErrRefused = errors.New("peer: refused")

// Config describes the peer port of one member. Zero values are useful where a comment says so.
type Config struct {
	ID      MemberID
	Disk    DiskID
	Members []Member     // of the configuration file, including this one
	Logger  *slog.Logger // nil: slog.Default

	// Listen and Dial open the connections; nil means TCP. ListenAddr defaults to this member's
	// Addr.
	Listen     func(network, addr string) (net.Listener, error)
	Dial       func(ctx context.Context, network, addr string) (net.Conn, error)
	ListenAddr string
	// Lookup finds the addresses of a host name, to compare with those that peers connect from; nil
	// means the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// AnyAddr accepts connections in the name of a member from all addresses.
	AnyAddr bool
	// MaxConns bounds the connections that the port accepts. 0 means DefaultMaxConns. One address
	// may have half of them, one member an eighth, and a quarter may be without a preface.
	MaxConns int
	// FrameBytes bounds the memory of unfinished frames above 64 KiB. 0 means
	// DefaultFrameBytes.
	FrameBytes int64
	// Version is the newest version of the protocol that this member speaks. 0 means NewestVersion;
	// tests have others.
	Version uint8
	// Auth says how members prove to each other who they are.
	Auth Auth
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Listen == nil {
		c.Listen = net.Listen
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.FrameBytes == 0 {
		c.FrameBytes = DefaultFrameBytes
	}
	if c.Version == 0 {
		c.Version = NewestVersion
	}
	if c.ListenAddr == "" {
		for _, m := range c.Members {
			if m.ID == c.ID {
				c.ListenAddr = m.Addr
			}
		}
	}
}

// Handlers serve the streams of other members, each in the goroutine of its stream, which is closed
// when they return.
type Handlers struct {
	// Join makes a cluster this member's, on its disk, before the first stream of it is served.
	Join func(cluster ClusterID) error
	// Hello returns the state of this member for the one that asks; the port fills in Member, Disk,
	// Counted, Cluster and Listed.
	Hello func(asked Identity) Hello
	// Streams serve the streams of the other kinds. An error that is ErrRefused is counted, and
	// logged with the address of the sender.
	Streams map[StreamKind]func(from Identity, s *Stream) error
}

// Stats are the counts of a peer port.
type Stats struct {
	Connections int   // open ones that others have opened
	Crowded     int64 // connections closed because there were too many
	Rejected    int64 // connections that cannot be a member's, or were refused later
	Refused     int64 // of these, by ErrRefused after the preface
	FrameBytes  int64 // that large frames hold which have begun
	Auth        AuthStats
	// Version is the newest version of the protocol that this member speaks, VersionsRefused how
	// many streams did not come about because the other member has no version in common with it.
	Version         uint8
	VersionsRefused int64
}

// Port owns this member's listener and every peer connection, accepted or dialled. Closing it
// closes them all, which ends the goroutines that read from them.
type Port struct {
	cfg       Config
	roster    *Roster
	local     Local
	log       *loglimit.Limiter
	admission *admission
	origins   *origins
	budget    *frameBudget

	versions versions
	contacts *contacts
	conns    openConns

	crowded  atomic.Int64
	rejected atomic.Int64
	refused  atomic.Int64
	unproven atomic.Int64 // connections refused for want of a proof
	late     atomic.Int64 // connections that took too long to say and prove who they are

	wg   sync.WaitGroup
	done chan struct{}

	mu       sync.Mutex
	closed   bool
	listener net.Listener
}

// Listen opens the peer port of a member. It can dial; nothing is accepted before Start.
func Listen(cfg Config, roster *Roster, local Local) (*Port, error) {
	cfg.setDefaults()
	l, err := cfg.Listen("tcp", cfg.ListenAddr)
	if err != nil {
		return nil, fmt.Errorf("peer: listen: %w", err)
	}
	return &Port{
		cfg:       cfg,
		roster:    roster,
		local:     local,
		listener:  l,
		log:       loglimit.New(cfg.Logger),
		admission: newAdmission(cfg.MaxConns),
		origins:   newOrigins(cfg.Lookup),
		budget:    &frameBudget{max: cfg.FrameBytes},
		contacts:  newContacts(cfg.Logger),
		versions:  versions{heard: map[MemberID]uint8{}},
		done:      make(chan struct{}),
		conns:     openConns{proved: map[net.Conn]secret{}},
	}, nil
}

// Start begins to accept connections, which h serves.
func (p *Port) Start(h Handlers) {
	p.wg.Go(func() { p.acceptLoop(h) })
	if p.cfg.Auth.Secrets != nil {
		p.wg.Go(p.secretLoop)
	}
}

// Move listens at another address instead. Connections stay. It does nothing if addr is another
// name of the address that the port listens on.
func (p *Port) Move(addr string) error {
	l, err := p.cfg.Listen("tcp", addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(err, syscall.EADDRINUSE) && samePort(addr, p.listener.Addr().String()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("peer: listen: %w", err)
	}
	if p.closed {
		return l.Close()
	}
	old := p.listener
	p.listener = l
	return old.Close() // acceptLoop goes on with the new one
}

func samePort(a, b string) bool {
	_, one, _ := net.SplitHostPort(a)
	_, two, _ := net.SplitHostPort(b)
	return one == two
}

// Stats reports the counts.
func (p *Port) Stats() Stats {
	return Stats{Connections: p.admission.count(), Crowded: p.crowded.Load(), Rejected: p.rejected.Load(),
		Refused: p.refused.Load(), FrameBytes: p.budget.inUse(), Version: p.cfg.Version,
		VersionsRefused: p.versions.refused.Load(),
		Auth:            AuthStats{Unproved: p.admission.unproved(), Refused: p.unproven.Load(), Late: p.late.Load()}}
}

func (p *Port) acceptLoop(h Handlers) {
	for {
		l := p.current()
		c, err := l.Accept()
		if err != nil {
			if p.current() != l {
				continue
			}
			select {
			case <-p.done:
				return
			case <-time.After(50 * time.Millisecond): // out of file descriptors, for example
				p.log.Warn("accept", "peer port: accept failed", "err", err)
				continue
			}
		}
		g := newInbound(c)
		if err := p.admission.admit(g); err != nil {
			p.crowd(g, err)
			continue
		}
		if !p.conns.add(g) {
			return
		}
		p.wg.Go(func() {
			defer p.admission.forget(g)
			p.serve(g, h)
		})
	}
}

// current is the listener; Move replaces it.
func (p *Port) current() net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener
}

// crowd closes a connection that is one too many.
func (p *Port) crowd(g *inbound, err error) {
	p.crowded.Add(1)
	p.log.Warn("crowded "+g.addr.String(), "peer port: connection refused", "remote", g.RemoteAddr(), "reason", err,
		"limit", p.admission.max)
	p.conns.end(g)
}

// serve has the sender of a connection say and prove who it is, and serves the stream.
func (p *Port) serve(c *inbound, h Handlers) {
	defer p.conns.end(c)
	conn, f, err := p.welcome(c)
	var why rejection
	if errors.As(err, &why) {
		p.reject(c, string(why))
	}
	if err != nil {
		return
	}
	kind, from := f.kind, f.from
	if err := p.admission.name(c, from); err != nil {
		p.crowd(c, err)
		return
	}
	if kind == StreamHello { // its sender may be about to become a member
		p.serveHello(f.sender(), conn, h)
		return
	}
	serve := h.Streams[kind]
	refusal := p.notMember(f, c.addr)
	if refusal == "" && serve == nil {
		refusal = fmt.Sprintf("unknown kind of stream %q", byte(kind))
	}
	if refusal == "" && p.roster.Cluster() == 0 {
		// A request that comes in here makes this member one of that cluster, and it has to say so
		// itself from now on.
		if err := h.Join(f.cluster); err != nil {
			refusal = err.Error()
		}
	}
	if err := p.sendVerdict(conn, refusal); err != nil && refusal == "" {
		return
	}
	if refusal != "" {
		p.reject(c, refusal)
		return
	}
	p.versions.hear(from, f.version)
	s := newStream(p, c, conn, acceptedReadBytes)
	s.frames.limit, s.frames.budget = c.SetReadDeadline, p.budget
	defer s.frames.release()
	if err := serve(f.sender(), s); errors.Is(err, ErrRefused) {
		p.refused.Add(1)
		p.reject(c, err.Error())
	}
}

// notMember says why a connection cannot be of the member that it says it is of, or is not for this
// one; empty if neither.
func (p *Port) notMember(f preface, ip netip.Addr) string {
	from, own := f.from, p.roster.Cluster()
	switch {
	case f.cluster != own && own != 0:
		return fmt.Sprintf("member %d belongs to cluster %v, and this is member %d of cluster %v: compare the "+
			"addresses in the "+
			"server lines of both", from, f.cluster, p.cfg.ID, own)
	case f.toDisk != 0 && f.toDisk != p.cfg.Disk:
		return fmt.Sprintf("member %d of cluster %v wants disk %v of member %d, and this is disk %v%s",
			from, f.cluster, f.toDisk, f.to, p.cfg.Disk, ofCluster(own))
	case f.toDisk == 0 && own == 0:
		return fmt.Sprintf("member %d wants a member of cluster %v, and this one belongs to no cluster yet", from,
			f.cluster)
	case f.fromDisk == p.cfg.Disk:
		return fmt.Sprintf("member %d has the same disk as this member, %v: one of the two data directories is a copy",
			from, f.fromDisk)
	case own == 0 && (f.kind != StreamRaft || f.cluster == 0):
		return fmt.Sprintf("this member belongs to no cluster yet, and member %d wants more than a query", from)
	}
	if !p.roster.isPeer(from, f.fromDisk) && (f.kind != StreamRaft || !p.mayLead(from, f.fromDisk)) {
		// This member may have been down while others were made members, the leader among them.
		// Raft itself counts the votes. But as long as this member follows a leader, it
		// hears of new members from that.
		return fmt.Sprintf("it says it is member %d with disk %v, which is no member of the cluster, as far as this "+
			"member knows",
			from, f.fromDisk)
	}
	if p.cfg.AnyAddr {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	if addrs := p.roster.addrs(from); !p.origins.fits(ctx, ip, addrs) {
		return fmt.Sprintf("it says it is member %d, and does not come from its address (%s); peerAddressCheck=false "+
			"does not look at that",
			from, strings.Join(addrs, ", "))
	}
	return ""
}

// mayLead reports whether a member that is not in the roster may be the leader: no other is known.
func (p *Port) mayLead(id MemberID, disk DiskID) bool {
	leader, known := p.local.Leader()
	return !known || leader.Member == id && leader.Disk == disk
}

// ofCluster ends a message about a member of that cluster.
func ofCluster(c ClusterID) string {
	if c == 0 {
		return ", which belongs to no cluster yet"
	}
	return fmt.Sprintf(" of cluster %v", c)
}

// reject closes a connection and logs why, now and then for each remote host.
func (p *Port) reject(c net.Conn, why string) {
	p.rejected.Add(1)
	p.log.Warn(remoteIP(c).String(), "peer port: connection refused", "remote", c.RemoteAddr(), "reason", why)
	p.conns.end(c)
}

// Dial opens a stream of that kind to a member, at the first of its addresses that answers. Errors:
// ErrVersion, ErrVerdict, those of ctx, of the proof and of the connection.
func (p *Port) Dial(ctx context.Context, to MemberID, kind StreamKind) (*Stream, error) {
	return p.DialDisk(ctx, to, 0, kind)
}

// DialDisk is Dial to a member with that disk; 0: with any.
func (p *Port) DialDisk(ctx context.Context, to MemberID, disk DiskID, kind StreamKind) (*Stream, error) {
	f := preface{version: p.cfg.Version, kind: kind, from: p.cfg.ID, to: to,
		fromDisk: p.cfg.Disk, toDisk: disk, cluster: p.roster.Cluster()}
	secrets := p.secrets()
	f.proves = len(secrets) > 0
	s, err := p.open(ctx, f, secrets)
	if f.proves && p.cfg.Auth.SecretOptional && errors.Is(err, errUnanswered) {
		f.proves = false
		s, err = p.open(ctx, f, nil)
	}
	p.contacts.note(ctx, to, p.roster.addrs(to), err)
	return s, err
}

// open is Dial with that preface.
func (p *Port) open(ctx context.Context, f preface, secrets []secret) (*Stream, error) {
	raw, host, err := p.reach(ctx, f.to)
	if err != nil {
		return nil, err
	}
	c, err := p.introduce(ctx, raw, host, f, secrets)
	if err == nil && f.kind != StreamHello {
		err = p.awaitVerdict(ctx, raw, c, f)
	}
	if err != nil {
		p.conns.end(raw)
		return nil, err
	}
	return newStream(p, raw, c, dialledReadBytes), nil
}

// reach connects to a member. Host is that of the address that answered.
func (p *Port) reach(ctx context.Context, to MemberID) (c net.Conn, host string, err error) {
	err = fmt.Errorf("peer: member %d is unknown", to)
	for _, addr := range p.roster.addrs(to) {
		if c, err = p.cfg.Dial(ctx, "tcp", addr); err != nil {
			continue
		}
		if !p.conns.add(c) {
			return nil, "", net.ErrClosed
		}
		host, _, _ = net.SplitHostPort(addr)
		return c, host, nil
	}
	return nil, "", err
}

// Refuses reports whether connections to all addresses of a member are refused: no process listens
// there.
func (p *Port) Refuses(ctx context.Context, id MemberID) bool {
	addrs := p.roster.addrs(id)
	for _, addr := range addrs {
		c, err := p.cfg.Dial(ctx, "tcp", addr)
		if err == nil {
			_ = c.Close()
			return false
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return false
		}
	}
	return len(addrs) > 0
}

// openConns are the open connections of a port.
type openConns struct {
	// Lock: mu is a leaf.
	mu     sync.Mutex
	closed bool
	proved map[net.Conn]secret // each with the secret that it was proved with; nil if with none
}

// add records a connection. It closes it, and returns false, after cut.
func (o *openConns) add(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close()
		return false
	}
	o.proved[c] = nil
	return true
}

// end closes a connection.
func (o *openConns) end(c net.Conn) {
	_ = c.Close()
	o.mu.Lock()
	delete(o.proved, c)
	o.mu.Unlock()
}

// provedWith records the secret with which a connection was proved.
func (o *openConns) provedWith(c net.Conn, s secret) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, open := o.proved[c]; open {
		o.proved[c] = s
	}
}

// endDropped ends the connections that were proved with a secret that is not among these.
func (o *openConns) endDropped(secrets []secret) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c, s := range o.proved {
		if s != nil && !slices.ContainsFunc(secrets, func(one secret) bool { return bytes.Equal(one, s) }) {
			_ = c.Close()
		}
	}
}

// cut closes the connections, and each that is added later.
func (o *openConns) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.proved {
		_ = c.Close()
	}
}

// Done is closed by Cut.
func (p *Port) Done() <-chan struct{} { return p.done }

// Cluster is the cluster that this member belongs to; 0 for none.
func (p *Port) Cluster() ClusterID { return p.roster.Cluster() }

// Cut ends every connection, and accepts no more.
func (p *Port) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
	p.conns.cut()
	_ = p.listener.Close()
}

// Close is Cut, and waits for the goroutines that serve the connections.
func (p *Port) Close() {
	p.Cut()
	p.wg.Wait()
}

// Stream is a connection between two members, behind its preface.
type Stream struct {
	net.Conn          // raw, or TLS on it
	raw      net.Conn // as the port tracks it
	port     *Port    // nil: no port tracks it
	frames   frameReader
}

// What one read from a connection takes at most, besides large frames: requests, and answers.
const acceptedReadBytes, dialledReadBytes = 32 << 10, 512

// NewStream makes a stream of a connection that no port tracks, for tests.
func NewStream(c net.Conn) *Stream { return newStream(nil, c, c, acceptedReadBytes) }

// newStream makes a stream of c, the connection raw that the port tracks, or TLS on it. ReadFrame
// reads up to readBytes ahead.
func newStream(p *Port, raw, c net.Conn, readBytes int) *Stream {
	return &Stream{Conn: c, raw: raw, port: p, frames: frameReader{Reader: bufio.NewReaderSize(c, readBytes)}}
}

// Close implements net.Conn.
func (s *Stream) Close() error {
	if s.port == nil {
		return s.Conn.Close()
	}
	s.port.conns.end(s.raw)
	return nil
}

// Read implements net.Conn. It reads on behind the newest frame.
func (s *Stream) Read(b []byte) (int, error) { return s.frames.Read(b) }

// ResetOnClose has the system drop the bytes that the other end has not received when the stream is
// closed, or this process killed (SO_LINGER 0). It would go on sending it, for minutes if the
// network does not let it through.
func (s *Stream) ResetOnClose() {
	if tcp, ok := s.raw.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // it fails if the connection has ended
	}
}

// ReadFrame reads one frame, into buf if it fits. What follows a frame on an accepted stream may
// take as long as it likes to begin, and then has to arrive within 10 s; the deadlines of a dialled
// one are the caller's. Errors: ErrRefused, for a frame of more than limit bytes, or one for which
// all accepted streams together have no memory left; those of the connection.
func (s *Stream) ReadFrame(limit int, buf []byte) ([]byte, error) {
	return s.frames.readFrame(limit, buf)
}
