package demo

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"lockkeeper/recipes"
)

// The paths of the locks.
const (
	reportPath  = "/demo/report"
	catalogPath = "/demo/catalog"
	primaryPath = "/demo/primary"
)

// role is a kind of contender: its lock, and for how long it holds it and stays away.
type role struct {
	path       string
	hold, away time.Duration
	verb       string // of a holder
	acquire    func(s *recipes.Session, name string) func(context.Context) (*recipes.Grant, error)
}

var (
	worker = role{path: reportPath, hold: 3 * time.Second, away: 100 * time.Millisecond, verb: "holds it",
		acquire: func(s *recipes.Session, name string) func(context.Context) (*recipes.Grant, error) {
			return recipes.NewMutex(s, reportPath, recipes.MutexOptions{Note: name}).Lock
		}}
	reader = role{path: catalogPath, hold: 5 * time.Second, away: 2 * time.Second, verb: "reads",
		acquire: func(s *recipes.Session, name string) func(context.Context) (*recipes.Grant, error) {
			return recipes.NewRWMutex(s, catalogPath, recipes.MutexOptions{Note: name}).RLock
		}}
	writer = role{path: catalogPath, hold: 2 * time.Second, away: 5 * time.Second, verb: "writes",
		acquire: func(s *recipes.Session, name string) func(context.Context) (*recipes.Grant, error) {
			return recipes.NewRWMutex(s, catalogPath, recipes.MutexOptions{Note: name}).Lock
		}}
	candidate = role{path: primaryPath, hold: 12 * time.Second, away: 100 * time.Millisecond, verb: "leads",
		acquire: func(s *recipes.Session, name string) func(context.Context) (*recipes.Grant, error) {
			e := recipes.NewElection(s, primaryPath, recipes.ElectionOptions{})
			return func(ctx context.Context) (*recipes.Grant, error) {
				l, err := e.Campaign(ctx, []byte(name))
				if err != nil {
					return nil, err
				}
				return l.Grant, nil
			}
		}}
)

// contender is a program that takes a lock, holds it for a while, and releases it, again and again.
// It has a session of its own.
type contender struct {
	role
	name    string
	story   *story
	session *recipes.Session

	mu     sync.Mutex
	server string         // where its newest connection goes
	grant  *recipes.Grant // nil while it does not hold the lock
	kept   bool           // it holds the lock until it is lost
	cut    bool           // it reaches the member that is cut off, and no other one
	gone   chan struct{}  // closed when a kept lock has been lost
}

// connect opens the session.
func (c *contender) connect() (err error) {
	c.session, err = recipes.Connect(recipes.Config{Servers: c.story.cluster.servers(), SessionTimeout: sessionTimeout,
		Dial: c.dial})
	return err
}

// dial connects to a member, unless a cut is in between.
func (c *contender) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	alone, cut := c.story.cluster.side(addr)
	c.mu.Lock()
	blocked := cut && c.cut && !alone
	c.mu.Unlock()
	if blocked {
		return nil, fmt.Errorf("dial %s: cut off", addr)
	}
	conn, err := net.DialTimeout(network, addr, timeout)
	if err == nil {
		c.mu.Lock()
		c.server = addr
		c.mu.Unlock()
	}
	return conn, err
}

// run takes the lock again and again, until ctx ends.
func (c *contender) run(ctx context.Context) {
	const afterFailure = 200 * time.Millisecond
	lock := c.acquire(c.session, c.name)
	for ctx.Err() == nil {
		grant, err := lock(ctx)
		if err != nil {
			_ = wait(ctx, afterFailure) // no lock, and nothing left behind
			continue
		}
		c.held(ctx, grant)
		c.release(ctx, grant)
		_ = wait(ctx, c.away)
	}
}

// held holds a grant for a while, or until it is lost.
func (c *contender) held(ctx context.Context, grant *recipes.Grant) {
	c.mu.Lock()
	c.grant = grant
	c.mu.Unlock()
	select {
	case c.story.granted <- grantedAt{c, time.Now()}:
	default: // Run waits for nobody
	}
	c.tellLock(ctx)
	hold := time.NewTimer(c.hold)
	defer hold.Stop()
	select {
	case <-hold.C:
	case <-grant.Lost():
	case <-ctx.Done():
	}
	c.mu.Lock()
	kept, gone := c.kept, c.gone
	if !kept {
		c.grant = nil
	}
	c.mu.Unlock()
	if !kept {
		if err := grant.Err(); err != nil && ctx.Err() == nil {
			c.story.lost.Add(1)
			c.story.teller.tell("%s has lost %s: %v", c.name, c.path, err)
		}
		return
	}
	select {
	case <-grant.Lost():
	case <-ctx.Done():
	}
	close(gone)
	c.mu.Lock()
	c.grant, c.kept = nil, false
	c.mu.Unlock()
}

// tellLock tells which contenders hold and which ones wait, as this one's member sees it.
func (c *contender) tellLock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	if list, err := c.session.Contenders(ctx, c.path); err == nil {
		c.story.teller.lock(c.path, list, c.verb)
	}
}

// release gives the lock back, also one that was lost, and also after the end of ctx.
func (c *contender) release(ctx context.Context, grant *recipes.Grant) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout)
	defer cancel()
	_ = grant.Unlock(ctx) // if it fails, the session ends it
}

// keep has a contender that holds its lock hold it until it is lost, and reach nobody but the
// member that its connection goes to. lost is closed then. ok is false if it holds no lock.
func (c *contender) keep() (server string, lost <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grant == nil || !c.grant.Held() {
		return "", nil, false
	}
	c.kept, c.cut, c.gone = true, true, make(chan struct{})
	return c.server, c.gone, true
}

// mend has the contender reach all members again.
func (c *contender) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
}
