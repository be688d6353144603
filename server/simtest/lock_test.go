package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

// registry watches over one lock from outside of the cluster: at every moment
// it knows who believes to hold it.
type registry struct {
	c *cluster
	// strict extends "believes" to what the client library says; see holder.
	strict bool

	mu           sync.Mutex
	holders      map[*lockClient]*holder
	lastToken    int64
	acquisitions int
	lost         int // grants that ended before they were given back
}

// holder is a client with a grant that it has not given back.
type holder struct {
	grant   *recipes.Grant
	conn    *zk.Conn
	session int64
}

// believes says why a client may take itself for the holder, "" if it may not:
//
//   - its Grant stands, or
//   - its client library says that it is connected, with the session that the
//     lock was acquired in. That is all that a program has which knows nothing
//     of Grants, and what promise C6 is about.
func (h *holder) believes(strict bool) string {
	switch {
	case h.grant.Held():
		return "its grant stands"
	case strict && h.conn.State() == zk.StateHasSession && h.conn.SessionID() == h.session:
		return "its library says that it is connected"
	}
	return ""
}

// acquired is called by a client the moment it has got the lock. Whoever held it
// before must have given it back, or know that it may no longer rely on it.
func (r *registry) acquired(l *lockClient, g *recipes.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn := l.session.Conn().(*zk.Conn)
	r.acquisitions++
	r.c.journal.printf("%s acquired, token %#x", l.name, g.Token())
	for other, h := range r.holders {
		if why := h.believes(r.strict); why != "" {
			r.c.t.Errorf("after %v: two holders: %s (session %#x, token %#x) and %s (session %#x, token %#x), of which %s",
				time.Since(r.c.journal.start), l.name, conn.SessionID(), g.Token(), other.name, h.session, h.grant.Token(), why)
		}
	}
	if g.Token() <= r.lastToken {
		r.c.t.Errorf("%s acquired with token %#x after one with %#x", l.name, g.Token(), r.lastToken)
	}
	r.lastToken = g.Token()
	r.holders[l] = &holder{grant: g, conn: conn, session: conn.SessionID()}
}

// releases is called by a client before it gives the lock back.
func (r *registry) releases(l *lockClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.holders[l].grant.Held() {
		r.lost++
	}
	delete(r.holders, l)
	r.c.journal.printf("%s releases", l.name)
}

// lockClient is a program on a host of its own that takes the lock again and
// again.
type lockClient struct {
	c       *cluster
	reg     *registry
	gate    *gate
	name    string
	host    string
	rng     *rand.Rand
	session *recipes.Session

	cycles, failures int // of run's goroutine until it has ended
}

const lockPath = "/locks/sim"

func newLockClient(c *cluster, reg *registry, g *gate, i int, seed uint64) *lockClient {
	l := &lockClient{
		c: c, reg: reg, gate: g,
		name: fmt.Sprintf("lock%d", i), host: fmt.Sprintf("10.0.1.%d", i+1),
		rng: rand.New(rand.NewPCG(seed, uint64(1000+i))),
	}
	c.net.Host(l.host)
	s, err := recipes.Connect(recipes.Config{
		Servers:        c.servers(),
		SessionTimeout: time.Duration(4+2*i) * time.Second,
		Dial:           c.dialer(l.host),
		HostProvider:   &provider{rng: l.rng},
		Logger:         c.journal.logger(l.name),
	})
	if err != nil {
		c.t.Fatalf("%s: %v", l.name, err)
	}
	l.session = s
	return l
}

// run takes the lock until the gate says that it is over.
func (l *lockClient) run() {
	defer l.session.Close()
	m := recipes.NewMutex(l.session, lockPath, recipes.MutexOptions{Data: []byte(l.name)})
	for l.gate.enter(l.name) {
		l.cycle(m)
		l.gate.leave()
		time.Sleep(time.Duration(l.rng.IntN(2000)) * time.Millisecond)
	}
}

func (l *lockClient) cycle(m *recipes.Mutex) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	g, err := m.Lock(ctx)
	if err != nil {
		l.failures++
		l.c.journal.printf("%s not acquired: %v", l.name, err)
		if !errors.Is(err, recipes.ErrExpired) && !errors.Is(err, context.DeadlineExceeded) {
			l.c.t.Errorf("%s: %v", l.name, err)
		}
		return
	}
	l.reg.acquired(l, g)
	hold := time.Duration(l.rng.IntN(500)) * time.Millisecond
	if l.rng.IntN(10) == 0 {
		hold = time.Duration(l.rng.IntN(20)) * time.Second // long enough for a session to expire
	}
	if l.rng.IntN(2) == 0 {
		// Does not look at its grant, as programs that know only the library.
		time.Sleep(hold)
	} else {
		select {
		case <-g.Lost():
		case <-time.After(hold):
		}
	}
	l.reg.releases(l)
	if err := g.Unlock(ctx); err == nil {
		l.cycles++
	} else {
		l.c.journal.printf("%s unlock: %v", l.name, err)
	}
}

// dialer is what a client on that host connects with, in the form that the
// library wants.
func (c *cluster) dialer(host string) zk.Dialer {
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		return c.net.Host(host).DialTimeout(network, addr, timeout)
	}
}

// provider is a zk.HostProvider that asks no DNS and shuffles with a seed.
type provider struct {
	rng     *rand.Rand
	mu      sync.Mutex
	servers []string
	at      int
	tried   int // since the last that worked
}

// Init implements zk.HostProvider.
func (p *provider) Init(servers []string) error {
	p.servers = slices.Clone(servers)
	slices.Sort(p.servers) // the library has shuffled them with a source of its own
	p.rng.Shuffle(len(p.servers), func(i, j int) { p.servers[i], p.servers[j] = p.servers[j], p.servers[i] })
	return nil
}

// Len implements zk.HostProvider.
func (p *provider) Len() int { return len(p.servers) }

// Next implements zk.HostProvider.
func (p *provider) Next() (server string, retryStart bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server = p.servers[p.at]
	p.at = (p.at + 1) % len(p.servers)
	p.tried++
	return server, p.tried > 1 && p.tried%len(p.servers) == 1
}

// Connected implements zk.HostProvider.
func (p *provider) Connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried = 0
}
