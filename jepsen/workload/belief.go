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

// belief is promise C6: every client has an ephemeral node for as long as its
// session lasts, and watches those of all others. What its library believes of its
// connection is in the history. Now and then a client loses every byte, in both
// directions, for longer than its session timeout.
type belief struct{}

// Name implements Workload.
func (belief) Name() string { return beliefName }

// Run implements Workload.
func (belief) Run(ctx context.Context, env *Env, n int) error {
	c := &beliefClient{worker: newWorker(env, beliefName, n), watched: make(map[string]bool)}
	l, err := c.connect(ctx, func(e zk.Event) {
		if e.Type == zk.EventNodeDeleted {
			c.add(jepsen.Op{Kind: jepsen.Info, F: fVanished, Path: e.Path})
		}
	})
	if err != nil {
		return err
	}
	c.l = l
	defer l.close()
	dark := time.Now().Add(c.darkness())
	for pause(ctx, c.period()) {
		if time.Now().After(dark) {
			c.l.darken(true)
			pause(ctx, 2*env.SessionTimeout)
			c.l.darken(false)
			dark = time.Now().Add(c.darkness())
			continue
		}
		c.stand()
		c.look()
	}
	c.add(jepsen.Op{Kind: jepsen.Info, F: fClosed, Session: sessionText(l.SessionID())})
	return nil
}

// Final implements Workload. The clients have seen all there is to see.
func (belief) Final(context.Context, *Env) error { return nil }

type beliefClient struct {
	*worker
	l       *library
	session int64  // of node
	node    string // of this client; "" if it is not certain that it has one
	nodes   int
	watched map[string]bool // other clients' nodes, in this session
}

// period is how long to wait before looking for new nodes.
func (c *beliefClient) period() time.Duration {
	return c.env.SessionTimeout/20 + time.Duration(c.rng.Int64N(int64(c.env.SessionTimeout)/20+1))
}

// darkness is how long to wait before the next one.
func (c *beliefClient) darkness() time.Duration {
	return c.env.SessionTimeout + time.Duration(c.rng.Int64N(int64(c.env.SessionTimeout)*3))
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
	if why, certain := "", false; err != nil {
		if why, certain = certainly(err); !certain {
			c.end(op, jepsen.Info, why)
			return
		}
		c.end(op, jepsen.Fail, why)
		if why == noteNoNode {
			c.l.Create(beliefRoot, nil, 0, zk.WorldACL(zk.PermAll)) // the next create tells whether it is there
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
