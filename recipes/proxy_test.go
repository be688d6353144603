package recipes

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and a server, and knows where a frame ends.
type proxy struct {
	t       *testing.T
	l       net.Listener
	backend string
	wg      sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	frames [2]int                             // seen, per direction; no handshakes, no pings
	judge  func(dir direction, n int) verdict // nil: pass
	held   chan struct{}                      // if not nil: no new connections until it is closed
	latest []byte                             // the newest answer to a handshake
}

type direction int

const (
	toServer direction = iota
	toClient
)

func (d direction) String() string { return [...]string{"to server", "to client"}[d] }

type verdict int

const (
	pass    verdict = iota
	drop            // cut the connection; the frame is lost
	deliver         // deliver the frame, then cut the connection
	swallow         // lose the frame, and everything else, without a word
)

func (v verdict) String() string {
	return [...]string{"pass", "drop", "deliver", "swallow"}[v]
}

func newProxy(t *testing.T, backend string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, l: l, backend: backend, conns: make(map[net.Conn]bool)}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// rule sets the rule, and starts to count anew.
func (p *proxy) rule(judge func(dir direction, n int) verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge, p.frames = judge, [2]int{}
}

// hold keeps new connections waiting until the function that it returns is
// called.
func (p *proxy) hold() (release func()) {
	held := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	return sync.OnceFunc(func() { close(held) })
}

// session is the id and the password of the session that was connected last.
func (p *proxy) session() (id, password []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest[12:20], p.latest[24:40]
}

func (p *proxy) serve() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held != nil {
			<-held
		}
		server, err := net.Dial("tcp", p.backend)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(toServer, client, server) })
		p.wg.Go(func() { p.pump(toClient, server, client) })
	}
}

// pump carries the frames of one direction.
func (p *proxy) pump(dir direction, from, to net.Conn) {
	defer func() {
		from.Close()
		// The delivered bytes shall be read: no reset.
		to.(*net.TCPConn).CloseWrite()
		if dir == toClient {
			to.Close()
		}
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	for first := true; ; first = false {
		head := make([]byte, 4)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
		if _, err := io.ReadFull(from, frame[4:]); err != nil {
			return
		}
		switch p.see(dir, first, frame) {
		case drop:
			return
		case deliver:
			to.Write(frame)
			return
		case swallow:
			continue
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

func (p *proxy) see(dir direction, first bool, frame []byte) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first && dir == toClient {
		p.latest = frame
	}
	const ping = -2
	silent := first || int32(binary.BigEndian.Uint32(frame[4:])) == ping
	n := -1 // rules that count frames let these pass
	if !silent {
		n = p.frames[dir]
		p.frames[dir]++
	}
	if p.judge == nil {
		return pass
	}
	return p.judge(dir, n)
}
