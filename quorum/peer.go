package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"lockkeeper/internal/rawsock"
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
	prefaceVersion  = 5
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
	cfg    *Config
	roster *roster
	log    *slog.Logger

	serve map[streamKind]func(from MemberID, c net.Conn)
	join  func(cluster uint32) error // makes a cluster this member's, on its disk

	wg   sync.WaitGroup
	done chan struct{}

	mu       sync.Mutex
	closed   bool
	listener net.Listener
	conns    map[net.Conn]struct{}
	rejected map[string]struct{} // what has been logged already
}

func listenPeers(cfg *Config, roster *roster) (*peerPort, error) {
	l, err := cfg.Listen("tcp", cfg.ListenAddr)
	if err != nil {
		return nil, fmt.Errorf("quorum: listen for peers: %w", err)
	}
	return &peerPort{
		cfg:      cfg,
		roster:   roster,
		listener: l,
		log:      cfg.Logger,
		serve:    map[streamKind]func(MemberID, net.Conn){},
		done:     make(chan struct{}),
		conns:    map[net.Conn]struct{}{},
		rejected: map[string]struct{}{},
	}, nil
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
				p.log.Warn("peer port: accept failed", "err", err)
				continue
			}
		}
		c = rawsock.Wrap(c)
		if !p.track(c) {
			return
		}
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			p.welcome(c)
		}()
	}
}

// welcome reads the preface and hands the connection to whom it is for.
func (p *peerPort) welcome(c net.Conn) {
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
	case b[4] != prefaceVersion:
		p.reject(c, fmt.Sprintf("it speaks version %d of the peer protocol, this member version %d", b[4], prefaceVersion))
	case to != p.cfg.ID:
		p.reject(c, fmt.Sprintf("member %d took this address for that of member %d: compare the server lines of both", from, to))
	case from == p.cfg.ID:
		p.reject(c, fmt.Sprintf("it says it is member %d, which is this one", from))
	case kind == streamHello:
		p.serve[kind](from, c) // whoever asks may be about to become a member
		p.forget(c)
	case binary.BigEndian.Uint32(b[8:]) != p.expects():
		p.reject(c, fmt.Sprintf("member %d belongs to another cluster: compare the server lines of both", from))
	case kind != streamRaft && !p.roster.isPeer(from):
		// As for raft, this member may have been down while others were made members, the leader among them. The library itself knows whose
		// vote counts.
		p.reject(c, fmt.Sprintf("it says it is member %d, which is no member of the cluster, as far as this member knows", from))
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

// expects is the cluster that connections must come from: a new member takes those whose list of members is its own.
func (p *peerPort) expects() uint32 {
	if c := p.roster.cluster(); c != 0 {
		return c
	}
	return p.cfg.membersSum()
}

// reject closes a connection and says why, once for each remote host and reason.
func (p *peerPort) reject(c net.Conn, why string) {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	p.mu.Lock()
	_, known := p.rejected[host+why]
	if len(p.rejected) < 1000 {
		p.rejected[host+why] = struct{}{}
	}
	p.mu.Unlock()
	if !known {
		p.log.Warn("peer port: connection refused", "remote", c.RemoteAddr(), "reason", why)
	}
	p.forget(c)
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
		c = rawsock.Wrap(c)
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

// Frames of the forward and lease streams: a 4-byte big-endian length, then that many bytes.
const maxPeerFrame = 64 << 20

var errPeerFrame = errors.New("quorum: peer frame too long")

func appendFrameHeader(b []byte) []byte { return append(b, 0, 0, 0, 0) }

// sealFrame fills in the length of the frame that starts at b[start].
func sealFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

func readPeerFrame(r io.Reader, buf []byte) ([]byte, error) {
	var h [4]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(h[:])
	if n > maxPeerFrame {
		return nil, errPeerFrame
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(r, buf)
	return buf, err
}
