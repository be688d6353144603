package workload

import (
	"context"
	"errors"
	"fmt"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

const orderName = "session-order"

const (
	orderRoot = "/session-order"
	// orderHot is a node that all clients watch and set.
	orderHot = orderRoot + "/hot"
	// orderBurst bounds the requests that are sent at once.
	orderBurst = 10
)

// The operations of the session-order workload, beside fSet. A session has a
// node of its own that it sets to 1, 2, 3 and so on.
const (
	fMake  = "make"  // create of the session's own node, Path, with 0
	fGet   = "get"   // getData of Path; OK has Value and Version
	fWatch = "watch" // getData of Path with a watch; OK has Value and Version
	fSync  = "sync"
	fEvent = "event" // a watch has fired for Path, with the Zxid if the member says it
	// fRewatch: the first request of a connection that takes a session over tells of the watch on
	// Path.
	fRewatch = "rewatch"
)

// newOrder is promises C2 and C3: sessions that move between members, with many requests under way.
func newOrder() Workload {
	return Workload{name: orderName, check: checkOrder, run: func(ctx context.Context, env *Env, n int) error {
		c := &orderClient{worker: newWorker(env, orderName, n)}
		for k := 0; ctx.Err() == nil; k++ {
			c.session(ctx, k)
			c.think(ctx)
		}
		return nil
	}}
}

type orderClient struct {
	*worker
	l        *link
	own      string
	made     bool // own
	value    int
	watching bool // the hot node, by a request that was answered
	asked    bool // to watch it, by one that was not
}

// errMoved ends a connection that the client leaves by itself.
var errMoved = errors.New("workload: left for another member")

// session is the life of a session, over many connections.
func (c *orderClient) session(ctx context.Context, k int) {
	c.own = fmt.Sprintf("%s/%s.%d", orderRoot, c.name, k)
	c.made, c.value, c.watching = false, 0, false
	var s session
	for ctx.Err() == nil {
		l, err := c.open(ctx, c.member(), s)
		switch {
		case errors.Is(err, errExpired) && s.id != 0:
			return
		case err != nil:
			c.think(ctx)
			continue
		}
		c.l, c.asked = l, false
		err = c.connection(ctx)
		s = l.session
		l.finish(ctx, err, c.see)
		if !c.made || errors.Is(err, errOrder) {
			return // nothing is known of the session's node
		}
	}
}

// connection works until the connection ends, and says why it has.
func (c *orderClient) connection(ctx context.Context) error {
	var b []byte
	switch {
	case !c.made:
		b = c.l.add(b, wire.OpCreate, wire.CreateRequest{Path: orderRoot, ACL: wire.OpenACL}, jepsen.Op{})
		b = c.l.add(b, wire.OpCreate, wire.CreateRequest{Path: orderHot, ACL: wire.OpenACL}, jepsen.Op{})
		b = c.add(b, fMake, wire.OpCreate, wire.CreateRequest{Path: c.own, Data: []byte("0"), ACL: wire.OpenACL}, c.own,
			"0")
	case c.watching:
		b = c.add(b, fRewatch, wire.OpSetWatches, wire.SetWatchesRequest{
			RelativeZxid: c.l.session.seen, Data: []string{orderHot}, Exist: []string{}, Child: []string{},
		}, orderHot, "")
	}
	for {
		for range 1 + c.rng.IntN(orderBurst) {
			b = c.request(b)
		}
		if err := c.l.send(b); err != nil {
			return err
		}
		if c.made && c.rng.IntN(40) == 0 {
			return errMoved // with everything under way
		}
		if err := c.l.drain(ctx, c.see); err != nil {
			return err
		}
		if err := c.l.idle(ctx, c.thinking(), c.see); err != nil {
			return err
		}
		if !c.made {
			return errors.New("workload: the session's node could not be made")
		}
		if c.rng.IntN(40) == 0 {
			return errMoved
		}
		b = nil
	}
}

// add adds a request and tells the history.
func (c *orderClient) add(b []byte, f string, code wire.Op, body wire.Record, path, value string) []byte {
	op := c.invoke(jepsen.Op{F: f, Path: path, Value: value, Session: c.l.session.text()})
	return c.l.add(b, code, body, op)
}

func (c *orderClient) request(b []byte) []byte {
	switch c.rng.IntN(10) {
	case 0, 1, 2:
		c.value++
		value := fmt.Sprint(c.value)
		return c.add(b, fSet, wire.OpSetData, wire.SetDataRequest{Path: c.own, Data: []byte(value), Version: -1}, c.own,
			value)
	case 3, 4:
		return c.add(b, fGet, wire.OpGetData, wire.PathWatchRequest{Path: c.own}, c.own, "")
	case 5:
		return c.add(b, fSync, wire.OpSync, wire.SyncRequest{Path: orderRoot}, orderRoot, "")
	case 6:
		value := fmt.Sprintf("%s.%d", c.name, c.rng.IntN(1000))
		return c.add(b, fSet, wire.OpSetData, wire.SetDataRequest{Path: orderHot, Data: []byte(value), Version: -1},
			orderHot, value)
	}
	if !c.watching && !c.asked {
		c.asked = true
		return c.add(b, fWatch, wire.OpGetData, wire.PathWatchRequest{Path: orderHot, Watch: true}, orderHot, "")
	}
	return c.add(b, fGet, wire.OpGetData, wire.PathWatchRequest{Path: orderHot}, orderHot, "")
}

// see takes note of a frame.
func (c *orderClient) see(f frame) {
	if f.request == nil {
		c.event(f)
		return
	}
	if f.request.op.F == fWatch {
		c.asked, c.watching = false, f.header.Err == wire.CodeOK
	}
	if op, ok := c.answered(f); ok && op.F == fMake {
		c.made = true
	}
}

func (c *orderClient) event(f frame) {
	op := jepsen.Op{Kind: jepsen.Info, F: fEvent, Zxid: int64(f.header.Zxid), Session: c.l.session.text()}
	if e, err := wire.DecodeResponse(wire.OpNotification, f.body); err == nil {
		op.Path = e.(*wire.WatcherEvent).Path
	}
	if op.Path == orderHot {
		c.watching = false
	}
	c.worker.add(op)
}
