package trace

import (
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
)

// connection is what a member has sent over a connection. Its client numbers its requests upwards,
// as all libraries do.
type connection struct {
	on   raft.ServerID
	xid  wire.Xid  // of the newest reply to a numbered request
	zxid wire.Zxid // of the state that the replies show
	// replaced is the zxid of a state by which a leader has replaced an older one, on this member,
	// since the connection was open; 0: none has.
	replaced wire.Zxid
	calls    []call          // without a reply, in their order
	told     map[Change]bool // the notifications since the oldest call came
}

// call is a Call that waits for its reply.
type call struct {
	Call
	shown wire.Zxid // to any client, when the call came
}

// send is a frame for the client.
func (c *connection) send(f Frame, history nodes) error {
	if err := c.answer(f, history); err != nil {
		return err
	}
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
	if f.Xid > 0 {
		if f.Xid <= c.xid {
			return fmt.Errorf("the reply to request %d follows the one to %d (C2)", f.Xid, c.xid)
		}
		c.xid = f.Xid
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

// answer compares a frame with the calls. Replies come in the order of the calls.
func (c *connection) answer(f Frame, history nodes) error {
	if len(c.calls) == 0 {
		return nil
	}
	if f.Xid == wire.XidNotification {
		if c.told == nil {
			c.told = map[Change]bool{}
		}
		c.told[f.Change] = true
		return nil
	}
	i := slices.IndexFunc(c.calls, func(q call) bool { return q.Xid == f.Xid })
	if i < 0 {
		return nil
	}
	q, told := c.calls[i], c.told
	if c.calls = c.calls[i+1:]; len(c.calls) == 0 {
		c.told = nil
	}
	switch {
	case f.Code != wire.CodeOK:
	case q.Op == wire.OpSync:
		if f.Zxid < q.shown {
			return fmt.Errorf("sync is answered with %v, and another client had seen %v before it was called (C4)", f.Zxid,
				q.shown)
		}
	default:
		if path := history.untold(q.Watches, f.Zxid, told); path != "" {
			return fmt.Errorf("setWatches is answered with %v, and the client has missed a change of %s behind %v without "+
				"a notification (C3)", f.Zxid, path, q.Watches.RelativeZxid)
		}
	}
	return nil
}
