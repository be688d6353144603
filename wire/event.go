package wire

import "fmt"

// EventType says what happened to a node.
type EventType int32

// The event types that servers send.
const (
	EventNodeCreated         EventType = 1
	EventNodeDeleted         EventType = 2
	EventNodeDataChanged     EventType = 3
	EventNodeChildrenChanged EventType = 4
)

// String returns the name ZooKeeper gives to t, or "event" and the number when it has none.
func (t EventType) String() string {
	switch t {
	case EventNodeCreated:
		return "NodeCreated"
	case EventNodeDeleted:
		return "NodeDeleted"
	case EventNodeDataChanged:
		return "NodeDataChanged"
	case EventNodeChildrenChanged:
		return "NodeChildrenChanged"
	}
	return fmt.Sprintf("event%d", int32(t))
}

// StateSyncConnected is the only value of WatcherEvent.State that servers send.
const StateSyncConnected = 3

// WatcherEvent is the body of a notification.
type WatcherEvent struct {
	Type  EventType
	State int32 // StateSyncConnected
	Path  string
}

// Append encodes e.
func (e WatcherEvent) Append(b []byte) []byte {
	b = appendInt32(b, int32(e.Type))
	b = appendInt32(b, e.State)
	return appendString(b, e.Path)
}

// Decode reads e from d.
func (e *WatcherEvent) Decode(d *Decoder) error {
	e.Type = EventType(d.Int32())
	e.State = d.Int32()
	e.Path = d.Path()
	return d.Err()
}

// AppendNotification appends a notification with its length. zxid is that of the update which fired
// the watch, ZxidNone when setWatches did.
func AppendNotification(b []byte, zxid Zxid, e WatcherEvent) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = ReplyHeader{Xid: XidNotification, Zxid: zxid}.Append(b)
	return setFrameLen(e.Append(b), start)
}
