package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/internal/gate"
	"lockkeeper/internal/simnet"
	"lockkeeper/server"
)

const (
	// tick is the members' tickTime: a leader that is gone is replaced within about a second.
	tick = 500 * time.Millisecond
	// sessionTimeout is that of every contender: short, so that a lost lock is seen soon.
	sessionTimeout = 4 * time.Second
	peerPort       = 2888
	loopback       = "127.0.0.1"
)

// cluster is the members, with the network between them. Its methods are called by Run's goroutine
// only, except side and dial.
type cluster struct {
	net     *simnet.Network
	members []*member

	mu sync.Mutex
	// alone is the member that is cut off from the others, nil if none is.
	alone *member
}

type member struct {
	number int // from 1
	host   string
	cfg    server.Config
	srv    *server.Server // nil while it is down
	gate   *gate.Gate     // between srv and its clients
}

func (m *member) String() string { return fmt.Sprintf("member %d", m.number) }

// newCluster returns members that keep their data below dir, and have not started.
func newCluster(n int, dir string) (*cluster, error) {
	ports, err := freeport.Take(2 * n)
	if err != nil {
		return nil, err
	}
	c := &cluster{net: simnet.New(simnet.Config{})}
	var list []server.Member
	for i := 1; i <= n; i++ {
		host := fmt.Sprintf("10.0.0.%d", i)
		c.net.Host(host)
		list = append(list, server.Member{ID: uint8(i), Host: host, PeerPort: peerPort,
			ElectionPort: peerPort + 1000})
	}
	for i := range list {
		m := &member{number: i + 1, host: list[i].Host}
		m.cfg.Client.Addr = net.JoinHostPort(loopback, strconv.Itoa(ports[2*i]))
		m.cfg.HTTP.Addr = net.JoinHostPort(loopback, strconv.Itoa(ports[2*i+1]))
		m.cfg.Data.Dir = filepath.Join(dir, strconv.Itoa(m.number))
		m.cfg.Sessions.TickTime = tick
		m.cfg.Cluster.ID, m.cfg.Cluster.Members = list[i].ID, list
		m.cfg.Logger = slog.New(slog.DiscardHandler)
		c.members = append(c.members, m)
	}
	return c, nil
}

// start starts a member on its present host, with the files that it has.
func (c *cluster) start(m *member) error {
	host := c.net.Host(m.host)
	g := new(gate.Gate)
	cfg := m.cfg
	cfg.Machine.Dial = host.Dial
	cfg.Machine.Listen = g.Listen(host)
	srv, err := server.Start(cfg)
	if err != nil {
		return fmt.Errorf("start %v: %w", m, err)
	}
	m.srv, m.gate = srv, g
	return nil
}

// kill cuts all connections of a member without a goodbye, and ends its part of Raft.
func (c *cluster) kill(m *member) {
	m.gate.Kill()
	c.net.Kill(m.host)
	_ = m.srv.Close() // it can part from nobody any more
	m.srv = nil
}

// isolate cuts a member off from the others, and with it the clients that are on its side.
func (c *cluster) isolate(m *member) {
	c.mu.Lock()
	c.alone = m
	c.mu.Unlock()
	c.net.Isolate(m.host)
}

// heal ends isolate.
func (c *cluster) heal() {
	c.mu.Lock()
	c.alone = nil
	c.mu.Unlock()
	c.net.HealAll()
}

// side reports whether an address is one of the member that is cut off; cut is whether any is.
func (c *cluster) side(addr string) (alone, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alone != nil && c.alone.cfg.Client.Addr == addr, c.alone != nil
}

// leader waits until a member leads that runs and is not cut off.
func (c *cluster) leader(ctx context.Context) (*member, error) {
	const pause = 10 * time.Millisecond
	for {
		for _, m := range c.members {
			if alone, _ := c.side(m.cfg.Client.Addr); m.srv != nil && !alone && m.srv.Status().Role == "leader" {
				return m, nil
			}
		}
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// serving waits until a member has caught up and serves clients.
func (c *cluster) serving(ctx context.Context, m *member) error {
	const pause = 10 * time.Millisecond
	for !m.srv.Serving() {
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// at returns the member at a client address.
func (c *cluster) at(addr string) *member {
	for _, m := range c.members {
		if m.cfg.Client.Addr == addr {
			return m
		}
	}
	return nil
}

// servers are the addresses for clients, of all members.
func (c *cluster) servers() (list []string) {
	for _, m := range c.members {
		list = append(list, m.cfg.Client.Addr)
	}
	return list
}

// close stops the members, all at a time.
func (c *cluster) close() error {
	var stopping sync.WaitGroup
	errs := make([]error, len(c.members))
	for i, m := range c.members {
		if m.srv == nil {
			continue
		}
		m.gate.Kill()
		stopping.Go(func() { errs[i] = m.srv.Close() })
	}
	c.net.Close()
	stopping.Wait()
	return errors.Join(errs...)
}

// wait waits for d; it returns the error of ctx if that ends before.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
