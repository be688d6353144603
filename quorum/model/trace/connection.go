package trace

import (
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
)

// connection is the requests and the replies of a connection. Every request has one reply, in the
// order of the requests.
type connection struct {
	on   raft.ServerID
	zxid wire.Zxid // of the state that the replies show
	// replaced is the zxid of a state by which a leader has replaced an older one, on this member,
	// since the connection was open; 0: none has.
	replaced wire.Zxid
	calls    []call          // without a reply, in their order
	told     map[Change]bool // the notifications since the oldest setWatches came; nil: none did
}

// call is a Call that waits for its reply.
type call struct {
	Call
	shown wire.Zxid // to any client, when the call came
}

// called is a request of the client.
func (c *connection) called(q call) {
	c.calls = append(c.calls, q)
	if q.Watches != nil && c.told == nil {
		c.told = map[Change]bool{}
	}
}

// send is a frame for the client.
func (c *connection) send(f Frame) error {
	if c.replaced > 0 && f.Xid != wire.XidNotification && f.Zxid >= c.replaced {
		return fmt.Errorf("a reply shows %v, and a snapshot has replaced the state up to %v since the connection was "+
			"open: it may have missed watches (C3)", f.Zxid, c.replaced)
	}
	switch f.Xid {
	case wire.XidNotification: // without a zxid it is the answer to setWatches
		if f.Zxid > 0 && f.Zxid <= c.zxid {
			return fmt.Errorf("a watch fires for the change %v behind a reply that shows %v (C3)", f.Zxid, c.zxid)
		}
		return nil
	case wire.XidPing, wire.XidAuth:
		return nil
	}
	if f.Zxid <= 0 {
		return nil
	}
	if f.Zxid < c.zxid {
		return fmt.Errorf("a reply shows %v, and one before it %v (C4)", f.Zxid, c.zxid)
	}
	c.zxid = f.Zxid
	return nil
}

// answer compares a frame for the client with the calls.
func (c *connection) answer(f Frame, history nodes) error {
	switch {
	case f.Xid == wire.XidNotification:
		if c.told != nil {
			c.told[f.Change] = true
		}
		return nil
	case f.Xid == wire.XidPing:
		return nil
	case len(c.calls) == 0:
		return fmt.Errorf("request %d is answered twice, or nobody has sent it (C2)", f.Xid)
	case c.calls[0].Xid != f.Xid:
		return fmt.Errorf("the reply to request %d comes before the one to %d (C2)", f.Xid, c.calls[0].Xid)
	}
	q, told := c.calls[0], c.told
	c.calls = c.calls[1:]
	if !slices.ContainsFunc(c.calls, func(q call) bool { return q.Watches != nil }) {
		c.told = nil
	}
	switch {
	case f.Code != wire.CodeOK:
	case q.Op == wire.OpSync:
		if f.Zxid < q.shown {
			return fmt.Errorf("sync is answered with %v, and a client had seen %v when it came (C4)", f.Zxid, q.shown)
		}
	case q.Watches != nil:
		if path := history.untold(q.Watches, f.Zxid, told); path != "" {
			return fmt.Errorf("setWatches is answered with %v, and the client has missed a change of %s behind %v "+
				"without a notification (C3)", f.Zxid, path, q.Watches.RelativeZxid)
		}
	}
	return nil
}
