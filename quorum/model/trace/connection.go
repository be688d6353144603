package trace

import (
	"fmt"

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
