package session

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// burst holds the events of one command for the connections that will be sent some of them. It
// counts once for the memory of all connections, until the last of them has been sent its part.
type burst struct {
	events []znode.Event
	bytes  int
	refs   atomic.Int32
	memory *admission.Memory
}

// eventBytes is the size of an event without its path: its part of a burst, and of its groups.
const eventBytes = 160

// newBurst copies the events, without the data of their nodes. Its caller holds a reference.
func newBurst(events []znode.Event, m *admission.Memory) *burst {
	b := &burst{events: slices.Clone(events), memory: m}
	for i := range b.events {
		b.events[i].Data = nil
		b.bytes += eventBytes + len(b.events[i].Path)
	}
	b.refs.Store(1)
	m.AddShared(b.bytes)
	return b
}

// release takes a reference back.
func (b *burst) release() {
	if b.refs.Add(-1) == 0 {
		b.memory.AddShared(-b.bytes)
	}
}

// backlog is the part of a burst that one connection will be sent.
type backlog struct {
	of    *burst
	first *part
	more  []*part          // until the first frame is made
	ids   []znode.Identity // of the connection, when it happened
	bytes int              // of all frames, at the most
	own   int              // its size, without its burst

	due  []due // of several parts, when the first frame has been made
	done int   // position of the next event, in due or in first.events
}

// The size of a backlog without its burst: itself, each of several parts, and each event while
// these are merged. The frames of a chunk come on top.
const (
	backlogBytes = 256
	partBytes    = 16
	dueBytes     = 16
)

// zxid is the zxid of the command.
func (b *backlog) zxid() wire.Zxid { return b.of.events[0].Zxid }

// next returns the next event; false if there is none.
func (b *backlog) next() (d due, ok bool) {
	if b.more != nil {
		b.due, b.more = merged(nil, b.first, b.more), nil
	}
	switch {
	case b.due == nil && b.done < len(b.first.events):
		d = due{b.first.events[b.done], b.first.base}
	case b.done < len(b.due):
		d = b.due[b.done]
	default:
		return due{}, false
	}
	b.done++
	return d, true
}

// appendFrames appends about a chunk of frames, and returns their number. Nothing of the backlog is
// left when it appends none.
func (b *backlog) appendFrames(buf []byte) (frames []byte, n int) {
	for len(buf) < writeChunkBytes {
		d, ok := b.next()
		if !ok {
			break
		}
		if e := &b.of.events[d.event]; visible(e, b.ids, d.base) {
			buf = appendNotice(buf, e.Zxid, e.Type, e.Path)
			n++
		}
	}
	return buf, n
}

// part is the share of a group (watch.go) that a connection gets.
type part struct {
	events []int32 // positions in the command's events, ascending
	bytes  int     // of their frames
	base   int     // see due
}

// due is an event for a connection, which gets it if it is visible.
type due struct {
	event int32 // its position in the command's events
	// base is the length of the path that the connection watches recursively, of the deepest if
	// there are several: the connection knows that path, and must not learn names below it that
	// are hidden from it. It is atPath if the connection watches the event's own path.
	base int
}

// atPath is greater than the length of any path.
const atPath = math.MaxInt

// visible reports whether a connection with the identities ids may be sent an event. ZooKeeper
// sends it the names of nodes below those that it may not read (docs/protocol/watches.md 6).
func visible(e *znode.Event, ids []znode.Identity, base int) bool {
	return e.ReadableBy(ids) && (base == atPath || !e.Guarded() || e.NamedTo(ids, base))
}

// merged appends the events of some parts, ascending, each once and with its deepest base.
func merged(list []due, first *part, more []*part) []due {
	list = first.appendDue(list)
	if len(more) == 0 {
		return list
	}
	for _, p := range more {
		list = p.appendDue(list)
	}
	slices.SortFunc(list, func(a, b due) int {
		return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(b.base, a.base))
	})
	return slices.CompactFunc(list, func(a, b due) bool { return a.event == b.event })
}

func (p *part) appendDue(list []due) []due {
	for _, i := range p.events {
		list = append(list, due{i, p.base})
	}
	return list
}

// writeChunkBytes bounds one write. A client that receives none of it for the length of its session
// timeout is disconnected; a slow client is not.
const writeChunkBytes = 64 << 10

// noticeBytes is the size of a notification without its path, at least.
const noticeBytes = 64

// appendNotice appends the frame of a notification.
func appendNotice(buf []byte, zxid wire.Zxid, t wire.EventType, path string) []byte {
	return wire.AppendReply(buf, wire.ReplyHeader{Xid: wire.XidNotification, Zxid: zxid},
		wire.WatcherEvent{Type: t, State: wire.StateSyncConnected, Path: path})
}
