package jepsen

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Proxies are Links for users that may not make namespaces: every member reaches every other one
// through a TCP proxy of its own on this machine's loopback, which holds back blocked bytes. Pass
// Between to ClusterConfig, so that each member's zoo.cfg has the proxies' addresses.
//
//	m1 --> proxy 1->2 --> m2's peer port
//	m2 --> proxy 2->1 --> m1's peer port
//
// A difference from a network: a connection to a member that is cut off opens (to the proxy) and
// then says nothing, where it would not open. Bytes are never lost, only late, as TCP makes it
// look.
//
// ZooKeeper's members tell each other their own addresses and would find their way round; it needs
// a Network.
type Proxies struct {
	size  int
	gates map[[2]int]*gate // from, to; never changes
	done  chan struct{}    // closed by Close

	mu        sync.Mutex
	closed    bool
	shapes    []Shape // by host, from 1
	random    *rand.Rand
	listeners []net.Listener
	addrs     map[int]string // by host: where it serves its peers
	exchanged map[int]int    // by host, both ways: the host that has its address now
	conns     map[net.Conn]struct{}
	running   sync.WaitGroup
}

// NewProxies makes the links of n hosts, without any proxy yet. The seed decides delays and losses.
func NewProxies(n int, seed uint64) *Proxies {
	p := &Proxies{
		size: n, gates: make(map[[2]int]*gate), done: make(chan struct{}), shapes: make([]Shape, n+1),
		random: rand.New(rand.NewPCG(seed, 0)), conns: make(map[net.Conn]struct{}),
		addrs: make(map[int]string), exchanged: make(map[int]int),
	}
	for from := 1; from <= n; from++ {
		for to := 1; to <= n; to++ {
			p.gates[[2]int{from, to}] = &gate{}
		}
	}
	return p
}

// Between starts the proxy through which member from reaches the address addr of member to, and
// returns the proxy's address.
func (p *Proxies) Between(from, to int, addr string) (string, error) {
	if err := checkPair(p, from, to); err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("jepsen: proxy: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", errors.Join(errClosed, l.Close())
	}
	p.listeners, p.addrs[to] = append(p.listeners, l), addr
	p.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // Close closes the listener
			}
			if p.enter(conn) {
				p.running.Go(func() { p.serve(conn, from, to) })
			}
		}
	})
	return l.Addr().String(), nil
}

var errClosed = errors.New("jepsen: the proxies are closed")

// enter takes note of a connection that Close closes. It reports false, and closes it, after Close.
func (p *Proxies) enter(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

// forget closes a connection that was entered.
func (p *Proxies) forget(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// serve carries one connection that from has opened to to.
func (p *Proxies) serve(near net.Conn, from, to int) {
	defer p.forget(near)
	to, addr := p.holder(to)
	there, back := p.gates[[2]int{from, to}], p.gates[[2]int{to, from}]
	// The packets that open a connection go both ways.
	if !there.pass(p.done) || !back.pass(p.done) {
		return
	}
	far, err := net.Dial("tcp", addr)
	if err != nil {
		reset(near) // as the machine there would answer
		return
	}
	if !p.enter(far) {
		return
	}
	defer p.forget(far)
	var both sync.WaitGroup
	both.Go(func() { p.carry(near, far, from, there, back) })
	both.Go(func() { p.carry(far, near, to, back, there) })
	both.Wait()
}

// reset closes a connection so that its other end sees an error.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// A parcel has the bytes of one read, and their time of arrival.
type parcel struct {
	bytes []byte
	at    time.Time
	err   error // the end of the stream, if not nil; no bytes then
}

const (
	packetBytes = 1448 // TCP payload of an Ethernet packet
	readBytes   = 16 << 10
	// inFlight bounds the parcels under way; beyond it the sender has to wait.
	inFlight = 64
	// resendTime is after how long TCP sends a lost packet again (Linux: at least 200 ms, doubled
	// each time).
	resendTime = 200 * time.Millisecond
)

// carry takes bytes from one end to the other until there are no more. back is the gate of the
// other direction.
func (p *Proxies) carry(src, dst net.Conn, from int, gate, back *gate) {
	parcels := make(chan parcel, inFlight)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(parcels)
		var last time.Time
		for {
			buf := make([]byte, readBytes)
			n, err := src.Read(buf)
			at := time.Now().Add(p.travel(from, n))
			if at.Before(last) {
				at = last // TCP keeps the order: bytes behind a late packet wait
			}
			last = at
			if n > 0 {
				parcels <- parcel{bytes: buf[:n], at: at}
			}
			if err != nil {
				parcels <- parcel{at: at, err: err}
				return
			}
		}
	})
	for next := range parcels {
		if !p.sleep(time.Until(next.at)) || !gate.pass(p.done) {
			break
		}
		if next.err != nil {
			finish(dst, next.err)
		} else if _, err := dst.Write(next.bytes); err != nil {
			if back.pass(p.done) { // the refusal travels too
				reset(src)
			}
			break
		}
	}
	for range parcels { // nobody waits for the rest
	}
	reading.Wait()
}

// sleep waits for d; false means that the proxies were closed.
func (p *Proxies) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// finish passes on how a stream ended.
func finish(dst net.Conn, err error) {
	tcp, ok := dst.(*net.TCPConn)
	if !ok || errors.Is(err, net.ErrClosed) {
		return
	}
	var failed net.Error
	if errors.As(err, &failed) {
		reset(dst)
		return
	}
	_ = tcp.CloseWrite()
}

// travel is how long n bytes that a host sends are under way.
func (p *Proxies) travel(from, n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	shape := p.shapes[from]
	d := shape.Delay
	if shape.Jitter > 0 {
		d += time.Duration((2*p.random.Float64() - 1) * float64(shape.Jitter))
	}
	if shape.Loss == 0 {
		return d
	}
	for packets := (n + packetBytes - 1) / packetBytes; packets > 0; packets-- {
		for wait := resendTime; p.random.Float64() < shape.Loss; wait *= 2 {
			d += wait
		}
	}
	return d
}

// Size implements Links.
func (p *Proxies) Size() int { return p.size }

// Block implements Links.
func (p *Proxies) Block(from, to int) error {
	if err := checkPair(p, from, to); err != nil {
		return err
	}
	p.gates[[2]int{from, to}].shut()
	return nil
}

// Unblock implements Links.
func (p *Proxies) Unblock(from, to int) error {
	if err := checkPair(p, from, to); err != nil {
		return err
	}
	p.gates[[2]int{from, to}].open()
	return nil
}

// Shape implements Links. A lost packet holds up all that comes behind it, for as long as TCP takes
// to send it again.
func (p *Proxies) Shape(host int, shape Shape) error {
	if err := checkHost(p, host); err != nil {
		return err
	}
	shape.Loss = min(max(shape.Loss, 0), 0.9)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shapes[host] = shape
	return nil
}

// Exchange gives each of two hosts the address of the other one, from now on: a host that connects
// to one of them, one of the two as well, reaches the other. Connections that are open break.
// Exchanging the same two again gives them their own.
func (p *Proxies) Exchange(one, other int) error {
	if err := checkPair(p, one, other); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exchanged[one] == other {
		delete(p.exchanged, one)
		delete(p.exchanged, other)
	} else if p.exchanged[one] != 0 || p.exchanged[other] != 0 {
		return fmt.Errorf("jepsen: exchange hosts %d and %d: one of them has the address of a third", one, other)
	} else {
		p.exchanged[one], p.exchanged[other] = other, one
	}
	p.breakLocked()
	return nil
}

// move has new connections to a host reach addr from now on. Connections that are open break.
func (p *Proxies) move(host int, addr string) error {
	if err := checkHost(p, host); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs[host] = addr
	p.breakLocked()
	return nil
}

// breakLocked closes all connections.
func (p *Proxies) breakLocked() {
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// holder is the host that has the address of host now, and where it serves.
func (p *Proxies) holder(host int) (int, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.exchanged[host]; other != 0 {
		host = other
	}
	return host, p.addrs[host]
}

// Close ends all proxies with their connections and waits for them. Closing again does nothing.
func (p *Proxies) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.breakLocked()
	p.mu.Unlock()
	p.running.Wait()
	return errors.Join(errs...)
}

// A gate is one direction between two hosts.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed when it opens; nil while it is open
}

// pass waits until the gate is open; false means that done was closed before.
func (g *gate) pass(done <-chan struct{}) bool {
	for {
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		if opened == nil {
			return true
		}
		select {
		case <-opened:
		case <-done:
			return false
		}
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}
