package recipes

import (
	"encoding/binary"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// TreeWatch is a watch on a node and all nodes below it that stands as long as the
// Session: ZooKeeper's persistent recursive watch, which servers have as of 3.6. No
// creation, change or deletion is missed while the connection lives, however quickly
// one follows another. (ZooKeeper 3.8.0 was seen to lose a creation within some
// milliseconds of a reconnect, but not the deletion; see TestLiveTreeWatch.)
type TreeWatch struct {
	// Path is the node at the top. It need not exist.
	Path string

	// Notify gets the events, one after the other. It must not block, nor call the
	// Session: the connection waits for it. Besides the events of nodes there are
	// those of the session (Type zk.EventSession): with State zk.StateHasSession a
	// connection begins, and what happened before it may have been missed. If the
	// server has no such watches, there is one event of Type zk.EventNotWatching
	// with its error for each connection.
	Notify func(zk.Event)
}

const (
	addWatchOp       = 106
	addWatchXid      = -106 // go-zookeeper's are positive; the reply is read here
	notificationXid  = -1
	watchesRecursive = 1
)

// watchTree sets the TreeWatch, if there is one. It returns the events that have
// arrived before the reply.
func (c *serverConn) watchTree() (events []byte, err error) {
	w := c.d.tree
	if w == nil {
		return nil, nil
	}
	if _, err := c.Conn.Write(addWatchRequest(w.Path)); err != nil {
		return nil, err
	}
	for {
		frame, err := readFrame(c.Conn)
		if err != nil {
			return nil, err
		}
		if len(frame) < 20 {
			return nil, fmt.Errorf("recipes: %s answers addWatch with a frame of %d bytes", c.address, len(frame))
		}
		switch xid := int32(binary.BigEndian.Uint32(frame[4:])); xid {
		case notificationXid:
			events = append(events, frame...)
		case addWatchXid:
			if code := int32(binary.BigEndian.Uint32(frame[16:])); code != 0 {
				w.Notify(zk.Event{
					Type: zk.EventNotWatching, Path: w.Path, Server: c.address,
					Err: fmt.Errorf("recipes: %s answers addWatch with error %d", c.address, code),
				})
			}
			return events, nil
		default:
			return nil, fmt.Errorf("recipes: %s answers addWatch with a frame of xid %d", c.address, xid)
		}
	}
}

// addWatchRequest is the frame
//
//	length(4) xid(4) op(4) path(4+n) mode(4)
func addWatchRequest(path string) []byte {
	xid := int32(addWatchXid)
	b := make([]byte, 4, 20+len(path))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, addWatchOp)
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	b = append(b, path...)
	b = binary.BigEndian.AppendUint32(b, watchesRecursive)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
