package wire

import "fmt"

// EventType is the kind of a change of a node.
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
func (e *WatcherEvent) Decode(d *Decoder) {
	e.Type, e.State, e.Path = EventType(d.Int32()), d.Int32(), d.Path()
}
