package quorum

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/loglimit"
)

// Every connection to a peer port starts with a preface that says what it carries and between whom:
//
//	 0        4         5       6      7    8            12
//	+--------+---------+-------+------+----+------------+
//	| "LKPR" | version | kind  | from | to | cluster    |
//	+--------+---------+-------+------+----+------------+
//
// Cluster is a checksum of the ids and roles of the members of the first start, and 0 for a member that is in no cluster yet.
// The receiver closes a connection that is not for it: two clusters whose addresses were mixed up must not exchange a
// single entry. Who the members are now, raft settles.
const (
	prefaceMagic    = "LKPR"
	prefaceVersion  = 6
	prefaceLen      = 12
	prefaceDeadline = 5 * time.Second
)

type streamKind byte

const (
	streamRaft     streamKind = 'R' // what the raft library asks
	streamForward  streamKind = 'F' // commands on their way to the leader
	streamLease    streamKind = 'L' // lease reports and their confirmations
	streamHello    streamKind = 'H' // how things stand
	streamTransfer streamKind = 'T' // another member is to lead
)

// peerPort owns this member's listener and every peer connection, accepted or dialled. Closing it
// closes them all, which is what ends the goroutines that read from them.
type peerPort struct {
	cfg     *Config
	roster  *roster
	log     *loglimit.Limiter
	guests  *guests
	origins *origins
	room    *frameRoom

	serve map[streamKind]func(from MemberID, c net.Conn)
	join  func(cluster uint32) error // makes a cluster this member's, on its disk
	// mayLead says whether a member that this one does not know may be the leader: it knows no other one.
	mayLead func(MemberID) bool

	accepted atomic.Int64 // connections, those counted in crowded not
	crowded  atomic.Int64 // connections closed because there were too many
	rejected atomic.Int64 // connections closed for what they said, or where they came from
	refused  atomic.Int64 // of these, for a frame or a record that no member sends

	wg   sync.WaitGroup
	done chan struct{}

	mu       sync.Mutex
	closed   bool
	listener net.Listener
	conns    map[net.Conn]struct{}
}

func listenPeers(cfg *Config, roster *roster) (*peerPort, error) {
	l, err := cfg.Listen("tcp", cfg.ListenAddr)
	if err != nil {
		return nil, fmt.Errorf("quorum: listen for peers: %w", err)
	}
	return newPeerPort(cfg, roster, l), nil
}

func newPeerPort(cfg *Config, roster *roster, l net.Listener) *peerPort {
	return &peerPort{
		cfg:      cfg,
		roster:   roster,
		listener: l,
		log:      loglimit.New(cfg.Logger),
		guests:   newGuests(cfg.PeerConns),
		origins:  newOrigins(cfg.Lookup),
		room:     &frameRoom{max: cfg.PeerFrameBytes},
		serve:    map[streamKind]func(MemberID, net.Conn){},
		done:     make(chan struct{}),
		conns:    map[net.Conn]struct{}{},
	}
}

// start begins to accept. The handlers in serve must be in place.
func (p *peerPort) start() {
	p.wg.Add(1)
	go p.acceptLoop(p.listener)
}

// listenOn listens at another address instead. Connections stay.
func (p *peerPort) listenOn(addr string) error {
	l, err := p.cfg.Listen("tcp", addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return l.Close()
	}
	old := p.listener
	p.listener = l
	p.wg.Add(1)
	go p.acceptLoop(l)
	return old.Close()
}

// hasPortOf says whether the port is that of addr.
func (p *peerPort) hasPortOf(addr string) bool {
	_, want, _ := net.SplitHostPort(addr)
	p.mu.Lock()
	_, have, _ := net.SplitHostPort(p.listener.Addr().String())
	p.mu.Unlock()
	return want == have
}

func (p *peerPort) acceptLoop(l net.Listener) {
	defer p.wg.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			p.mu.Lock()
			replaced := p.listener != l
			p.mu.Unlock()
			if replaced {
				return
			}
			select {
			case <-p.done:
				return
			case <-time.After(50 * time.Millisecond): // out of file descriptors, for example
				p.log.Warn("accept", "peer port: accept failed", "err", err)
				continue
			}
		}
		g := newGuest(c)
		if err := p.guests.admit(g); err != nil {
			p.crowd(g, err)
			continue
		}
		p.accepted.Add(1)
		if !p.track(g) {
			return
		}
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			defer p.guests.forget(g)
			p.welcome(g)
		}()
	}
}

// crowd closes a connection for which there is no room.
func (p *peerPort) crowd(g *guest, err error) {
	p.crowded.Add(1)
	p.log.Warn("crowded "+g.addr.String(), "peer port: connection refused", "remote", g.RemoteAddr(), "reason", err, "limit", p.guests.max)
	p.forget(g)
}

// welcome reads the preface and hands the connection to whom it is for.
func (p *peerPort) welcome(c *guest) {
	_ = c.SetReadDeadline(time.Now().Add(prefaceDeadline))
	var b [prefaceLen]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		p.forget(c)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	kind, from, to := streamKind(b[5]), MemberID(b[6]), MemberID(b[7])
	switch {
	case string(b[:4]) != prefaceMagic:
		p.reject(c, "it does not speak lockkeeper's peer protocol")
		return
	case b[4] != prefaceVersion:
		p.reject(c, fmt.Sprintf("it speaks version %d of the peer protocol, this member version %d", b[4], prefaceVersion))
		return
	case to != p.cfg.ID:
		p.reject(c, fmt.Sprintf("member %d took this address for that of member %d: compare the server lines of both", from, to))
		return
	case from == p.cfg.ID:
		p.reject(c, fmt.Sprintf("it says it is member %d, which is this one", from))
		return
	}
	if err := p.guests.name(c, from); err != nil {
		p.crowd(c, err)
		return
	}
	if kind == streamHello { // whoever asks may be about to become a member
		p.serve[kind](from, c)
		p.forget(c)
		return
	}
	if why := p.stranger(kind, from, binary.BigEndian.Uint32(b[8:]), c.addr); why != "" {
		p.reject(c, why)
		return
	}
	switch {
	case kind == streamRaft && p.join(p.expects()) != nil:
		// What comes in here makes it a member of that cluster, and it has to say so itself from now on.
		p.forget(c)
	case p.serve[kind] != nil:
		p.serve[kind](from, c)
		p.forget(c)
	default:
		p.reject(c, fmt.Sprintf("unknown kind of stream %q", byte(kind)))
	}
}

// stranger says why a connection cannot be of the member that it says it is of; empty if it can.
func (p *peerPort) stranger(kind streamKind, from MemberID, cluster uint32, ip netip.Addr) string {
	if cluster != p.expects() {
		return fmt.Sprintf("member %d belongs to another cluster: compare the server lines of both", from)
	}
	if !p.roster.isPeer(from) && (kind != streamRaft || !p.mayLead(from)) {
		// This member may have been down while others were made members, the leader among them. The library itself knows whose vote counts.
		// But as long as it follows a leader, it hears of new members from that.
		return fmt.Sprintf("it says it is member %d, which is no member of the cluster, as far as this member knows", from)
	}
	if p.cfg.AnyPeerAddr {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	if addrs := p.roster.addrs(from); !p.origins.fits(ctx, ip, addrs) {
		return fmt.Sprintf("it says it is member %d, and does not come from its address (%s); peerAddressCheck=false does not look at that",
			from, strings.Join(addrs, ", "))
	}
	return ""
}

// expects is the cluster that connections must come from: a new member takes those whose list of members is its own.
func (p *peerPort) expects() uint32 {
	if c := p.roster.cluster(); c != 0 {
		return c
	}
	return p.cfg.membersSum()
}

// reject closes a connection and says why, now and then for each remote host.
func (p *peerPort) reject(c net.Conn, why string) {
	p.rejected.Add(1)
	p.log.Warn(remoteIP(c).String(), "peer port: connection refused", "remote", c.RemoteAddr(), "reason", why)
	p.forget(c)
}

// refuse ends a stream that carries what no member sends.
func (p *peerPort) refuse(c net.Conn, err error) {
	p.refused.Add(1)
	p.reject(c, err.Error())
}

// dial opens a stream of that kind to a member.
func (p *peerPort) dial(ctx context.Context, to MemberID, kind streamKind) (net.Conn, error) {
	c, err := p.reach(ctx, to)
	if err != nil {
		return nil, err
	}
	preface := append([]byte(prefaceMagic), prefaceVersion, byte(kind), byte(p.cfg.ID), byte(to))
	preface = binary.BigEndian.AppendUint32(preface, p.roster.cluster())
	_ = c.SetWriteDeadline(time.Now().Add(prefaceDeadline))
	if _, err := c.Write(preface); err != nil {
		p.forget(c)
		return nil, err
	}
	_ = c.SetWriteDeadline(time.Time{})
	return c, nil
}

// reach connects to the first address of a member at which somebody answers.
func (p *peerPort) reach(ctx context.Context, to MemberID) (net.Conn, error) {
	addrs := p.roster.addrs(to)
	err := fmt.Errorf("quorum: member %d is unknown", to)
	for _, addr := range addrs {
		var c net.Conn
		if c, err = p.cfg.Dial(ctx, "tcp", addr); err != nil {
			continue
		}
		if !p.track(c) {
			return nil, net.ErrClosed
		}
		return c, nil
	}
	return nil, err
}

func (p *peerPort) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *peerPort) forget(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// cut ends every connection, and takes no more.
func (p *peerPort) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
	for c := range p.conns {
		_ = c.Close()
	}
	_ = p.listener.Close()
}

// close waits, too, for the goroutines that serve the connections. One that has a heartbeat in its hands may be waiting for
// guardedStore.released.
func (p *peerPort) close() {
	p.cut()
	p.wg.Wait()
}
