package workload

import (
	"context"
	"fmt"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

const (
	durabilityName = "durability"
	durabilityRoot = "/durability"
	// durabilityKeep is about the number of nodes that a client leaves there.
	durabilityKeep = 200
	// durabilityBurst bounds the requests that are sent at once.
	durabilityBurst = 5
)

// The operations of the durability workload, beside fCreate: every path is
// created once. A client has a node of its own that it sets.
const (
	fRemove = "remove" // delete of Path
	fBump   = "bump"   // setData of the client's own node
	// fRefused is a create of Path that has to fail: its parent is missing, or a check in the same
	// multi fails.
	fRefused = "refused"
)

// newDurability is promise C1: answered updates are there at the end, whatever was killed in
// between; refused ones are not; and the numbers of the updates are in the order in which they were
// answered.
func newDurability() Workload {
	return Workload{name: durabilityName, check: checkDurability, final: tells(durabilityName, durabilityRoot),
		run: func(ctx context.Context, env *Env, n int) error {
			c := &durabilityClient{worker: newWorker(env, durabilityName, n)}
			for ctx.Err() == nil {
				c.connection(ctx)
				c.think(ctx)
			}
			return nil
		}}
}

type durabilityClient struct {
	*worker
	l     *link
	value int
	there []string // created, and known to be
}

func (c *durabilityClient) connection(ctx context.Context) {
	l, err := c.open(ctx, c.member(), session{})
	if err != nil {
		return
	}
	c.l = l
	b := l.add(nil, wire.OpCreate, wire.CreateRequest{Path: durabilityRoot, ACL: wire.OpenACL}, jepsen.Op{})
	b = l.add(b, wire.OpCreate, wire.CreateRequest{Path: c.own(), ACL: wire.OpenACL}, jepsen.Op{})
	l.finish(ctx, l.burst(ctx, b, durabilityBurst, c.request, c.see), c.see)
}

// own is the node that this client sets.
func (c *durabilityClient) own() string { return durabilityRoot + "/" + c.name }

func (c *durabilityClient) request(b []byte) []byte {
	c.value++
	value := fmt.Sprint(c.value)
	path := fmt.Sprintf("%s/%s.%d", durabilityRoot, c.name, c.value)
	create := wire.CreateRequest{Path: path, Data: []byte(value), ACL: wire.OpenACL}
	switch dice := c.rng.IntN(20); {
	case len(c.there) > durabilityKeep:
		op := c.invoke(jepsen.Op{F: fRemove, Path: c.there[0]})
		c.there = c.there[1:]
		return c.l.add(b, wire.OpDelete, wire.DeleteRequest{Path: op.Path, Version: -1}, op)
	case dice == 0:
		create.Path = fmt.Sprintf("%s/nobody/%s.%d", durabilityRoot, c.name, c.value)
		op := c.invoke(jepsen.Op{F: fRefused, Path: create.Path, Value: value})
		return c.l.add(b, wire.OpCreate, create, op)
	case dice == 1:
		op := c.invoke(jepsen.Op{F: fRefused, Path: path, Value: value})
		return c.l.add(b, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCreate, Record: create},
			{Op: wire.OpCheck, Record: wire.CheckVersionRequest{Path: durabilityRoot + "/nobody", Version: -1}},
		}}, op)
	case dice < 8:
		op := c.invoke(jepsen.Op{F: fBump, Path: c.own(), Value: value})
		return c.l.add(b, wire.OpSetData, wire.SetDataRequest{Path: c.own(), Data: []byte(value), Version: -1}, op)
	}
	op := c.invoke(jepsen.Op{F: fCreate, Path: path, Value: value})
	return c.l.add(b, wire.OpCreate, create, op)
}

func (c *durabilityClient) see(f frame) {
	if op, ok := c.answered(f); ok && op.F == fCreate {
		c.there = append(c.there, op.Path)
	}
}
