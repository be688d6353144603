package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

const (
	beliefName = "belief"
	beliefRoot = "/belief"
)

// fVanished: a watch has told that Path, of another client, was deleted; or a
// read that it is not there any more.
const fVanished = "vanished"

// newBelief is promise C6: every client has an ephemeral node for as long as its session lasts, and
// watches all others' nodes. Its library's belief about its connection is in the history. Now and
// then a client loses every byte, in both directions, for longer than its session timeout.
func newBelief() Workload {
	return Workload{name: beliefName, check: checkBelief, run: func(ctx context.Context, env *Env, n int) error {
		c := &beliefClient{worker: newWorker(env, beliefName, n), watched: make(map[string]bool)}
		return c.run(ctx)
	}}
}

type beliefClient struct {
	*worker
	l       *library
	session int64  // of node
	node    string // of this client; "" if it is not certain that it has one
	nodes   int
	watched map[string]bool // other clients' nodes, in this session
}

func (c *beliefClient) run(ctx context.Context) (err error) {
	if c.l, err = c.connect(ctx, func(e zk.Event) {
		if e.Type == zk.EventNodeDeleted {
			c.add(jepsen.Op{Kind: jepsen.Info, F: fVanished, Path: e.Path})
		}
	}); err != nil {
		return err
	}
	defer c.l.close()
	timeout := c.env.SessionTimeout
	// between is a time from least to most.
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(c.rng.Int64N(int64(most-least)+1))
	}
	dark := time.Now().Add(between(timeout, 4*timeout))
	for jepsen.Sleep(ctx, between(timeout/20, timeout/10)) {
		if time.Now().After(dark) {
			c.darken(c.l)
			jepsen.Sleep(ctx, 2*timeout)
			c.lighten(c.l)
			dark = time.Now().Add(between(timeout, 4*timeout))
			continue
		}
		c.stand()
		c.look()
	}
	c.add(jepsen.Op{Kind: jepsen.Info, F: fClosed, Session: sessionText(c.l.SessionID())})
	return nil
}

// stand sees to it that this session has a node.
func (c *beliefClient) stand() {
	id := c.l.SessionID()
	if id == 0 || id == c.session && c.node != "" {
		return
	}
	if id != c.session {
		clear(c.watched) // they ended with the session
	}
	c.session, c.node = id, ""
	c.nodes++
	path := fmt.Sprintf("%s/%s.%d", beliefRoot, c.name, c.nodes)
	op := c.invoke(jepsen.Op{F: fCreate, Path: path})
	_, err := c.l.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err != nil {
		kind, why := certainly(err)
		c.end(op, kind, why)
		if why == noteNoNode {
			// The next create shows whether it is there.
			c.l.Create(beliefRoot, nil, 0, zk.WorldACL(zk.PermAll))
		}
		return
	}
	_, stat, err := c.l.Exists(path)
	if err != nil || stat.EphemeralOwner == 0 {
		c.end(op, jepsen.Info, "whose it is has not been told")
		return
	}
	op.Session = sessionText(stat.EphemeralOwner)
	c.end(op, jepsen.OK, "")
	if stat.EphemeralOwner == id {
		c.node = path
	}
}

// look watches the nodes that are new.
func (c *beliefClient) look() {
	names, _, err := c.l.Children(beliefRoot)
	if err != nil {
		return
	}
	for _, name := range names {
		path := beliefRoot + "/" + name
		if c.watched[path] {
			continue
		}
		there, _, _, err := c.l.ExistsW(path)
		if err != nil {
			return
		}
		c.watched[path] = true
		if !there {
			c.add(jepsen.Op{Kind: jepsen.Info, F: fVanished, Path: path})
		}
	}
}
