package locktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/gate"
	"lockkeeper/internal/simnet"
	"lockkeeper/server"
)

const (
	// tick is the members' tickTime: sessions may be as short as two ticks, one second.
	tick = 500 * time.Millisecond
	// maxSessionTimeout is the largest session timeout that a client can get.
	maxSessionTimeout = time.Minute
	// peerPort is where members listen for each other, each on a host of its own.
	peerPort = 2888
	// patience is how long a member may take to start, or a cluster to elect a leader.
	patience = 30 * time.Second
)

// Server starts one server and returns its address, as host:port. It fails the test if that cannot
// be done, and stops the server when the test ends.
func Server(t testing.TB) (addr string) {
	t.Helper()
	return Start(t, 1).Servers()[0]
}

// Cluster is some servers, numbered from 0. Its methods fail the test when something cannot be
// done. They may be called from the goroutine of the test only.
type Cluster struct {
	t       testing.TB
	net     *simnet.Network
	members []*member
}

// member is one machine of a Cluster.
type member struct {
	number int
	cfg    server.Config
	host   string         // on the network between the members
	srv    *server.Server // nil while it is down
	gate   *gate.Gate     // between srv and its clients
}

// Start starts a cluster with the given number of members, waits until it has a leader, and stops
// it when the test ends. Each of change may change every member's configuration before it starts,
// for example to set a SuperDigest.
func Start(t testing.TB, members int, change ...func(*server.Config)) *Cluster {
	t.Helper()
	if members < 1 {
		t.Fatalf("locktest: a cluster of %d members", members)
	}
	c := &Cluster{t: t, net: simnet.New(simnet.Config{})}
	for i := range members {
		c.members = append(c.members, c.newMember(i, members, change))
	}
	t.Cleanup(c.close)
	for _, m := range c.members {
		c.start(m)
	}
	c.Leader()
	return c
}

func (c *Cluster) newMember(i, n int, change []func(*server.Config)) *member {
	c.t.Helper()
	m := &member{number: i, host: fmt.Sprintf("10.0.0.%d", i+1)}
	c.net.Host(m.host)
	m.cfg.Client.Addr = "127.0.0.1:0"
	m.cfg.Client.MaxCnxnsPerAddr = server.Unlimited
	m.cfg.Client.FourLetterWords = []string{"*"}
	m.cfg.Data.Dir = c.t.TempDir()
	m.cfg.Sessions.TickTime, m.cfg.Sessions.MaxTimeout = tick, maxSessionTimeout
	m.cfg.Logger = slog.New(slog.DiscardHandler)
	if n > 1 {
		m.cfg.Cluster.ID = uint8(i + 1)
		for k := range n {
			m.cfg.Cluster.Members = append(m.cfg.Cluster.Members, server.Member{
				ID: uint8(k + 1), Host: fmt.Sprintf("10.0.0.%d", k+1), PeerPort: peerPort, ElectionPort: peerPort +
					1000,
			})
		}
	}
	for _, f := range change {
		f(&m.cfg)
	}
	return m
}

// start starts a member on its present host. The first time, the system chooses its client port.
func (c *Cluster) start(m *member) {
	c.t.Helper()
	host := c.net.Host(m.host)
	m.gate = new(gate.Gate)
	cfg := m.cfg
	cfg.Machine.Dial = host.Dial
	cfg.Machine.Listen = m.gate.Listen(host)
	srv, err := server.Start(cfg)
	if err != nil {
		c.t.Fatalf("locktest: start %s: %v", m, err)
	}
	m.srv, m.cfg.Client.Addr = srv, srv.ClientAddr().String()
}

// String is the member in a message.
func (m *member) String() string { return fmt.Sprintf("member %d", m.number) }

// Servers are the addresses of all members, as host:port, those that are down included.
func (c *Cluster) Servers() []string {
	var addrs []string
	for _, m := range c.members {
		addrs = append(addrs, m.cfg.Client.Addr)
	}
	return addrs
}

// String is the addresses of all members as connect strings have them, with commas.
func (c *Cluster) String() string { return strings.Join(c.Servers(), ",") }

// Leader waits until one member that runs, and is neither cut off nor frozen, leads, and returns
// its number.
func (c *Cluster) Leader() int {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, m := range c.members {
			if m.leads() {
				return m.number
			}
		}
	}
	c.t.Fatalf("locktest: no member leads after %v", patience)
	return -1
}

// Kill ends a member as kill -9 does. Its written files are there again after Restart.
func (c *Cluster) Kill(member int) {
	c.t.Helper()
	m := c.running(member)
	m.gate.Kill()
	c.net.Kill(m.host)
	_ = m.srv.Close() // it cannot part from anybody any more
	m.srv = nil
}

// Restart starts a killed member at its old address, on its written files.
func (c *Cluster) Restart(member int) {
	c.t.Helper()
	m := c.members[member]
	if m.srv != nil {
		c.t.Fatalf("locktest: restart %s, which runs", m)
	}
	c.start(m)
}

// Isolate cuts a member off from all others, until Heal. Clients reach it still.
func (c *Cluster) Isolate(member int) { c.net.Isolate(c.members[member].host) }

// Heal restores all links between members, except the links of frozen members.
func (c *Cluster) Heal() {
	c.net.HealAll()
	for _, m := range c.members {
		if m.srv != nil && m.gate.IsFrozen() {
			c.net.Isolate(m.host)
		}
	}
}

// Freeze stops a member as SIGSTOP stops a process, until Thaw: connections to it stay, its system
// accepts new ones, and nothing is answered.
func (c *Cluster) Freeze(member int) {
	c.t.Helper()
	m := c.running(member)
	m.gate.Freeze()
	c.net.Isolate(m.host)
}

// Thaw ends Freeze.
func (c *Cluster) Thaw(member int) {
	c.t.Helper()
	m := c.running(member)
	c.net.Reconnect(m.host)
	m.gate.Thaw()
}

// running is a member that is not down.
func (c *Cluster) running(member int) *member {
	c.t.Helper()
	m := c.members[member]
	if m.srv == nil {
		c.t.Fatalf("locktest: %s is down", m)
	}
	return m
}

// leads reports whether the member leads and can act.
func (m *member) leads() bool {
	if m.srv == nil || m.gate.IsFrozen() {
		return false
	}
	role := m.srv.Status().Role
	return role == "leader" || role == "standalone"
}

func (c *Cluster) close() {
	var stopping sync.WaitGroup
	for _, m := range c.members {
		if m.srv == nil {
			continue
		}
		m.gate.Kill()
		stopping.Go(func() {
			if err := m.srv.Close(); err != nil && !errors.Is(err, context.Canceled) {
				c.t.Errorf("locktest: stop %s: %v", m, err)
			}
		})
	}
	c.net.Close()
	stopping.Wait()
}
