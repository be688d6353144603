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

	"github.com/hashicorp/raft"
)

// Every connection to a peer port starts with a preface that says what it carries and between whom:
//
//	 0        4         5       6      7    8            12
//	+--------+---------+-------+------+----+------------+
//	| "LKPR" | version | kind  | from | to | members    |
//	+--------+---------+-------+------+----+------------+
//
// Members is a checksum of the ids and roles of all members. The receiver closes a connection that is not
// for it: two clusters whose addresses were mixed up, or members that count other majorities, must not
// exchange a single entry.
const (
	prefaceMagic    = "LKPR"
	prefaceVersion  = 1
	prefaceLen      = 12
	prefaceDeadline = 5 * time.Second
)

type streamKind byte

const (
	streamRaft    streamKind = 'R' // the raft library's own RPCs
	streamForward streamKind = 'F' // commands on their way to the leader
	streamLease   streamKind = 'L' // lease reports and their confirmations
)

// peerPort owns this member's listener and every peer connection, accepted or dialled. Closing it
// closes them all, which is what ends the goroutines that read from them.
type peerPort struct {
	cfg      *Config
	listener net.Listener
	log      *slog.Logger

	raftConns chan net.Conn
	serve     map[streamKind]func(from MemberID, c net.Conn)

	wg   sync.WaitGroup
	done chan struct{}

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{}
	rejected map[string]struct{} // what has been logged already
}

func listenPeers(cfg *Config) (*peerPort, error) {
	l, err := cfg.Listen("tcp", cfg.ListenAddr)
	if err != nil {
		return nil, fmt.Errorf("quorum: listen for peers: %w", err)
	}
	return &peerPort{
		cfg:       cfg,
		listener:  l,
		log:       cfg.Logger,
		raftConns: make(chan net.Conn),
		serve:     map[streamKind]func(MemberID, net.Conn){},
		done:      make(chan struct{}),
		conns:     map[net.Conn]struct{}{},
		rejected:  map[string]struct{}{},
	}, nil
}

// start begins to accept. The handlers in serve must be in place.
func (p *peerPort) start() {
	p.wg.Add(1)
	go p.acceptLoop()
}

func (p *peerPort) acceptLoop() {
	defer p.wg.Done()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			select {
			case <-p.done:
				return
			case <-time.After(50 * time.Millisecond): // out of file descriptors, for example
				p.log.Warn("peer port: accept failed", "err", err)
				continue
			}
		}
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
	case p.cfg.member(from).ID == 0 || from == p.cfg.ID:
		p.reject(c, fmt.Sprintf("it says it is member %d, which this member's configuration does not know as a peer", from))
	case binary.BigEndian.Uint32(b[8:]) != p.cfg.membersSum():
		p.reject(c, fmt.Sprintf("member %d has another list of members than this one: compare the server lines of both", from))
	case kind == streamRaft:
		select {
		case p.raftConns <- c:
		case <-p.done:
			p.forget(c)
		}
	case p.serve[kind] != nil:
		p.serve[kind](from, c)
		p.forget(c)
	default:
		p.reject(c, fmt.Sprintf("unknown kind of stream %q", byte(kind)))
	}
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
	m := p.cfg.member(to)
	if m.ID == 0 {
		return nil, fmt.Errorf("quorum: member %d is unknown", to)
	}
	c, err := p.cfg.Dial(ctx, "tcp", m.Addr)
	if err != nil {
		return nil, err
	}
	if !p.track(c) {
		return nil, net.ErrClosed
	}
	preface := append([]byte(prefaceMagic), prefaceVersion, byte(kind), byte(p.cfg.ID), byte(to))
	preface = binary.BigEndian.AppendUint32(preface, p.cfg.membersSum())
	_ = c.SetWriteDeadline(time.Now().Add(prefaceDeadline))
	if _, err := c.Write(preface); err != nil {
		p.forget(c)
		return nil, err
	}
	_ = c.SetWriteDeadline(time.Time{})
	return c, nil
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

// close ends every connection and waits for the goroutines that serve them.
func (p *peerPort) close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	_ = p.listener.Close()
	p.wg.Wait()
}

// raftStreams lets the raft library's transport use the peer port.
type raftStreams struct {
	*peerPort
}

var _ raft.StreamLayer = raftStreams{}

// Accept implements net.Listener.
func (s raftStreams) Accept() (net.Conn, error) {
	select {
	case c := <-s.raftConns:
		return trackedConn{c, s.peerPort}, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (s raftStreams) Addr() net.Addr { return s.listener.Addr() }

// Close implements net.Listener. The port belongs to the Replica, which closes it.
func (s raftStreams) Close() error { return nil }

// Dial implements raft.StreamLayer. The library knows peers by their address; which member that is
// stands in the configuration.
func (s raftStreams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	for _, m := range s.cfg.Members {
		if m.Addr == string(addr) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			c, err := s.dial(ctx, m.ID, streamRaft)
			if err != nil {
				return nil, err
			}
			return trackedConn{c, s.peerPort}, nil
		}
	}
	return nil, errors.New("quorum: no member has the address " + string(addr))
}

// trackedConn is a connection in the hands of the library; closing it also forgets it.
type trackedConn struct {
	net.Conn
	port *peerPort
}

func (c trackedConn) Close() error {
	c.port.forget(c.Conn)
	return nil
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
