package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

const registerName = "register"

// The operations of the register workload. A read, write or cas that ends with Fail because of the
// node (none, or the wrong version) tells something of the state, too.
const (
	fRead   = "read"   // a sync and a getData on one connection; OK has Value and Version
	fWrite  = "write"  // setData of Value, whatever the version; OK has the new Version
	fCAS    = "cas"    // setData of Value if the version is Version; OK has the new Version
	fCreate = "create" // of the node with Value; OK makes Version 0
)

// Keys are nodes under /register: a few at a time, and new ones every
// registerRound. A node with a short history is checked quickly, even if the
// outcome of many operations is unknown, and not knowing one ends with the node.
const (
	registerRoot  = "/register"
	registerKeys  = 3
	registerRound = 5 * time.Second
)

// register is promise C4: clients read behind a sync, write, and compare and set.
type register struct {
	// limit is how long the checker may take.
	limit time.Duration
}

func newRegister() Workload {
	r := register{limit: time.Minute}
	return Workload{name: registerName, check: r.check, run: func(ctx context.Context, env *Env, n int) error {
		w := newWorker(env, registerName, n)
		l, err := w.connect(ctx, nil)
		if err != nil {
			return err
		}
		defer l.close()
		c := &registerClient{worker: w, l: l}
		for w.think(ctx) {
			c.step()
		}
		return nil
	}}
}

type registerClient struct {
	*worker
	l *library
	// The last version of the key that this client has seen: where a cas has a chance.
	key     string
	version int32
	seen    bool
	values  int
}

// step does one operation on one of the present keys.
func (c *registerClient) step() {
	round := int64(c.env.History.Now() / registerRound)
	key := fmt.Sprintf("%s/%d-%d", registerRoot, round, c.rng.IntN(registerKeys))
	if c.key != key {
		c.key, c.seen = key, false
	}
	c.values++
	value := fmt.Sprintf("%s.%d", c.name, c.values)
	switch dice := c.rng.IntN(10); {
	case dice < 5 || !c.seen && dice < 7:
		c.read(key)
	case dice < 8 || !c.seen:
		c.write(key, value)
	default:
		c.cas(key, value)
	}
}

// read reads behind a sync. Both must have gone over one connection.
func (c *registerClient) read(key string) {
	connection := c.l.connections.Load()
	op := c.invoke(jepsen.Op{F: fRead, Path: key})
	_, err := c.l.Sync(key)
	var data []byte
	var stat *zk.Stat
	if err == nil {
		data, stat, err = c.l.Get(key)
	}
	switch {
	case c.l.connections.Load() != connection:
		c.end(op, jepsen.Fail, "not on one connection")
	case errors.Is(err, zk.ErrNoNode):
		c.end(op, jepsen.Fail, noteNoNode)
		c.create(key)
	case err != nil:
		c.end(op, jepsen.Fail, "not read: "+err.Error())
	default:
		op.Value, op.Version = string(data), stat.Version
		c.version, c.seen = stat.Version, true
		c.end(op, jepsen.OK, "")
	}
}

// create makes the node. That another client was first is an answer, too.
func (c *registerClient) create(key string) {
	c.values++
	value := fmt.Sprintf("%s.%d", c.name, c.values)
	op := c.invoke(jepsen.Op{F: fCreate, Path: key, Value: value})
	_, err := c.l.Create(key, []byte(value), 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNoNode) { // the root is missing
		c.end(op, jepsen.Fail, "no root")
		// The next create shows whether it is there.
		c.l.Create(registerRoot, nil, 0, zk.WorldACL(zk.PermAll))
		return
	}
	c.finish(op, err)
}

func (c *registerClient) write(key, value string) {
	c.set(c.invoke(jepsen.Op{F: fWrite, Path: key, Value: value}), -1)
}

func (c *registerClient) cas(key, value string) {
	c.seen = false // it becomes true when this succeeds
	c.set(c.invoke(jepsen.Op{F: fCAS, Path: key, Value: value, Version: c.version}), c.version)
}

func (c *registerClient) set(op jepsen.Op, version int32) {
	stat, err := c.l.Set(op.Path, []byte(op.Value), version)
	if err == nil {
		op.Version = stat.Version
		c.version, c.seen = stat.Version, true
	}
	c.finish(op, err)
}

// finish ends an operation that changes something.
func (c *registerClient) finish(op jepsen.Op, err error) {
	if err == nil {
		c.end(op, jepsen.OK, "")
		return
	}
	kind, why := certainly(err)
	c.end(op, kind, why)
}
