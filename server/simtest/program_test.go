package simtest

import (
	"context"
	"net"
	"sync"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// program is a running lockkeeper. TEMPORARY GLUE until server.Start exists.
type program struct {
	m        *member
	manager  *session.Manager
	replica  *quorum.Replica
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  bool
}

func startProgram(m *member, disk *simdisk.Disk) (*program, error) {
	host := m.c.net.Host(m.name)
	logger := m.c.journal.logger("m" + string('0'+rune(m.id)))
	p := &program{m: m, conns: map[net.Conn]struct{}{}}
	p.manager = session.NewManager(session.Config{Member: m.id, Tick: tick, Logger: logger, Now: m.now})
	cfg := quorum.Config{
		ID: quorum.MemberID(m.id), Tick: tick,
		SnapshotEntries: 300, TrailingEntries: 100,
		ConfigText: "server.1=a",
		Stores:     quorum.Stores{Log: disk, Stable: disk, Snapshots: disk},
		Listener:   p.manager, Logger: logger,
		Listen: host.Listen, Dial: host.Dial, Now: m.now,
		Fatal: func(err error) { m.c.t.Errorf("member %d: fatal: %v", m.id, err) },
	}
	for _, o := range m.c.members {
		_ = o
	}
	for i := range clusterSize {
		cfg.Members = append(cfg.Members, quorum.Member{ID: quorum.MemberID(i + 1), Addr: "10.0.0." + string('1'+rune(i)) + ":2888"})
	}
	var err error
	if p.replica, err = quorum.Open(cfg); err != nil {
		return nil, err
	}
	p.manager.Start(p.replica)
	if p.listener, err = host.Listen("tcp", m.clientAddr()); err != nil {
		return nil, err
	}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *program) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.done {
			p.mu.Unlock()
			c.Close()
			return
		}
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() {
			p.serve(c)
			c.Close()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		})
	}
}

func (p *program) serve(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	frame, err := wire.ReadFrame(c, nil, wire.DefaultMaxBuffer)
	if err != nil {
		return
	}
	c.SetReadDeadline(time.Time{})
	var req wire.ConnectRequest
	if wire.Decode(frame, &req) != nil {
		return
	}
	s, resp, err := p.manager.Connect(context.Background(), &req, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
	if err != nil {
		return
	}
	if _, err := c.Write(wire.AppendFrame(nil, resp)); err != nil || s == nil {
		if s != nil {
			s.Detach()
		}
		return
	}
	defer s.Detach()
	var wg sync.WaitGroup
	wg.Go(func() {
		<-s.Done()
		c.Close()
	})
	wg.Go(func() {
		var buf []byte
		for {
			var err error
			if buf, err = s.Output(buf); err != nil {
				c.Close()
				s.Detach()
				return
			}
			if _, err := c.Write(buf); err != nil {
				c.Close()
				s.Detach()
				return
			}
		}
	})
	for {
		frame, err := wire.ReadFrame(c, nil, wire.DefaultMaxBuffer)
		if err != nil || s.Submit(frame) != nil {
			break
		}
	}
	c.Close()
	s.Detach()
	wg.Wait()
}

func (p *program) close() {
	p.listener.Close()
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	p.manager.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.replica.Close()
	p.wg.Wait()
}

func (p *program) leader() uint8 { return uint8(p.replica.Status().Leader) }

func (p *program) view(f func(*znode.Store)) { p.replica.View(f) }
