package workload

import (
	"context"
	"fmt"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

const onceName = "exactly-once"

const (
	onceRoot = "/exactly-once"
	// onceDir is the number of creates in one directory.
	onceDir = 200
	// onceBurst bounds the requests that are sent at once.
	onceBurst = 20
)

// The operations of the exactly-once workload. Value counts the requests of a connection; it is the
// written data.
const (
	fMkdir = "mkdir" // create of the directory Path
	fCount = "count" // sequential create under Path; OK has the new node's path in Path
	fSet   = "set"   // setData of Path, whatever the version; OK has the Version
	fBegin = "begin" // a connection begins; Path is the beginning of its directories' names
)

// newOnce is promise C5: clients count, by sequential creates and by setData without a version,
// many requests at once, on connections that live through changes of leader. A connection has
// directories of its own, one after the other, so that the final tree shows the outcome of each
// request.
func newOnce() Workload {
	return Workload{name: onceName, check: checkOnce, final: tells(onceName, onceRoot),
		run: func(ctx context.Context, env *Env, n int) error {
			c := &onceClient{worker: newWorker(env, onceName, n)}
			for k := 0; ctx.Err() == nil; k++ {
				c.connection(ctx, k)
				c.think(ctx)
			}
			return nil
		}}
}

type onceClient struct {
	*worker
	l       *link
	prefix  string // of the connection's directories
	dir     string
	dirs    int
	creates int // in dir
	value   int
}

// connection is the life of one.
func (c *onceClient) connection(ctx context.Context, k int) {
	l, err := c.open(ctx, c.member(), session{})
	if err != nil {
		c.think(ctx)
		return
	}
	c.l, c.prefix, c.dirs, c.value = l, fmt.Sprintf("%s/%s.%d.", onceRoot, c.name, k), 0, 0
	c.add(jepsen.Op{Kind: jepsen.Info, F: fBegin, Path: c.prefix, Member: l.member, Session: l.session.text()})
	b := l.add(nil, wire.OpCreate, wire.CreateRequest{Path: onceRoot, ACL: wire.OpenACL}, jepsen.Op{})
	l.finish(ctx, l.burst(ctx, c.mkdir(b), onceBurst, c.request, c.see), c.see)
}

func (c *onceClient) see(f frame) { c.answered(f) }

// mkdir begins a new directory.
func (c *onceClient) mkdir(b []byte) []byte {
	c.dirs++
	c.value++
	c.creates = 0
	c.dir = fmt.Sprintf("%s%d", c.prefix, c.dirs)
	op := c.invoke(jepsen.Op{F: fMkdir, Path: c.dir, Value: fmt.Sprint(c.value)})
	return c.l.add(b, wire.OpCreate, wire.CreateRequest{Path: c.dir, Data: []byte(op.Value), ACL: wire.OpenACL}, op)
}

// request adds a request that counts.
func (c *onceClient) request(b []byte) []byte {
	if c.creates == onceDir {
		b = c.mkdir(b)
	}
	c.value++
	value := fmt.Sprint(c.value)
	if c.rng.IntN(3) == 0 {
		op := c.invoke(jepsen.Op{F: fSet, Path: c.dir, Value: value})
		return c.l.add(b, wire.OpSetData, wire.SetDataRequest{Path: c.dir, Data: []byte(value), Version: -1}, op)
	}
	c.creates++
	op := c.invoke(jepsen.Op{F: fCount, Path: c.dir, Value: value})
	return c.l.add(b, wire.OpCreate, wire.CreateRequest{
		Path: c.dir + "/n-", Data: []byte(value), ACL: wire.OpenACL, Mode: wire.ModePersistentSequential,
	}, op)
}
