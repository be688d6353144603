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

const lockPath = "/locks/sim"

// lockClient is a program on a host of its own that takes the lock again and
// again, by means of recipes.Mutex.
type lockClient struct {
	c       *cluster
	reg     *registry
	name    string
	timeout time.Duration
	rng     *rand.Rand
	session *recipes.Session
	mutex   *recipes.Mutex
}

func newLockClient(c *cluster, reg *registry, host string, timeout time.Duration, rng *rand.Rand) *lockClient {
	l := &lockClient{c: c, reg: reg, name: "lock@" + host, timeout: timeout, rng: rng}
	s, err := recipes.Connect(recipes.Config{
		Servers:        c.servers(),
		SessionTimeout: timeout,
		Dial:           c.dialer(host),
		HostProvider:   &provider{rng: l.rng},
		Logger:         c.journal.logger(l.name, nil),
	})
	if err != nil {
		c.t.Fatalf("%s: %v", l.name, err)
	}
	l.session = s
	c.witness.watch(s.Conn().(*zk.Conn))
	l.mutex = recipes.NewMutex(s, lockPath, recipes.MutexOptions{Data: []byte(l.name)})
	return l
}

func (l *lockClient) close() {
	l.c.witness.forget(l.session.Conn().(*zk.Conn))
	l.session.Close()
}

// work takes the lock once, holds it for a while and gives it back. It reports
// whether it was held.
func (l *lockClient) work() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	g, err := l.mutex.Lock(ctx)
	if err != nil {
		l.c.journal.printf("%s not acquired: %v", l.name, err)
		if !errors.Is(err, recipes.ErrExpired) && !errors.Is(err, context.DeadlineExceeded) {
			l.c.t.Errorf("%s: %v", l.name, err)
		}
		return false
	}
	conn := l.session.Conn().(*zk.Conn)
	l.reg.acquired(l.name, &holder{conn: conn, session: conn.SessionID(), timeout: l.timeout, token: g.Token(), held: g.Held})
	lost := g.Lost()
	if l.rng.IntN(2) == 0 {
		lost = nil // does not look at its grant, as programs that know only the library
	}
	l.reg.hold(l.rng, lost, conn)
	l.reg.releases(l.name)
	if err := g.Unlock(ctx); err != nil {
		l.c.journal.printf("%s unlock: %v", l.name, err)
	}
	return true
}

// foreignLockClient does the same with go-zookeeper's own Lock, as programs do
// that know nothing of this project. That Lock leaves its node behind when the
// connection breaks at a bad moment, so the program starts over with a new
// session then; and it may take itself for the holder when the session changes
// while it waits, which is not the cluster's fault and is not counted.
type foreignLockClient struct {
	c       *cluster
	reg     *registry
	name    string
	host    string
	timeout time.Duration
	rng     *rand.Rand
	conn    *zk.Conn
}

func newForeignLockClient(c *cluster, reg *registry, host string, timeout time.Duration, rng *rand.Rand) *foreignLockClient {
	f := &foreignLockClient{c: c, reg: reg, name: "zk.Lock@" + host, host: host, timeout: timeout, rng: rng}
	f.connect()
	return f
}

func (f *foreignLockClient) connect() { f.conn = f.c.connect(f.name, f.host, f.timeout, f.rng) }

func (f *foreignLockClient) close() { f.c.disconnect(f.conn) }

func (f *foreignLockClient) work() bool {
	for f.conn.State() != zk.StateHasSession {
		time.Sleep(100 * time.Millisecond)
	}
	session := f.conn.SessionID()
	lock := zk.NewLock(f.conn, lockPath, zk.WorldACL(zk.PermAll))
	err := lock.Lock()
	if err == nil && f.conn.SessionID() != session {
		err = zk.ErrSessionExpired
	}
	if err == nil {
		f.reg.acquired(f.name, &holder{conn: f.conn, session: session, timeout: f.timeout})
		f.reg.hold(f.rng, nil, f.conn)
		f.reg.releases(f.name)
		if err = lock.Unlock(); err == nil {
			return true
		}
	}
	f.c.journal.printf("%s starts over: %v", f.name, err)
	f.c.disconnect(f.conn)
	f.connect()
	return false
}

// connect opens a go-zookeeper connection from a host.
func (c *cluster) connect(name, host string, timeout time.Duration, rng *rand.Rand) *zk.Conn {
	conn, events, err := zk.Connect(c.servers(), timeout,
		zk.WithDialer(c.dialer(host)), zk.WithHostProvider(&provider{rng: rng}), zk.WithLogger(zkLogger{c.journal, name}))
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	go func() {
		for range events { // or the library drops them with a warning
		}
	}()
	c.witness.watch(conn)
	return conn
}

func (c *cluster) disconnect(conn *zk.Conn) {
	c.witness.forget(conn)
	conn.Close()
}

// zkLogger is go-zookeeper's log.
type zkLogger struct {
	journal *journal
	name    string
}

// Printf implements zk.Logger.
func (l zkLogger) Printf(format string, args ...any) {
	if l.journal.file != nil {
		l.journal.line(false, "%s %s", l.name, fmt.Sprintf(format, args...))
	}
}

// dialer is the dial function of a client on that host, in the form that the library wants.
func (c *cluster) dialer(host string) zk.Dialer {
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		return c.net.Host(host).DialTimeout(network, addr, timeout)
	}
}

// provider is a zk.HostProvider that asks no DNS and shuffles with a seed.
type provider struct {
	rng *rand.Rand

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
