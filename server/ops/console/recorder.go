package console

import (
	"sync"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// eventKind is the kind of an event.
type eventKind uint8

const (
	created eventKind = iota
	changed           // its data
	deleted
)

// End says how a contender went.
type End string

// The ends of a contender.
const (
	Released End = "released" // its own session deleted the node
	Closed   End = "closed"   // its session was closed
	Expired  End = "expired"  // its session expired
	Deleted  End = "deleted"  // another session deleted the node
)

// event is an event of an ephemeral node.
type event struct {
	kind    eventKind
	end     End // of deleted
	zxid    wire.Zxid
	timeMs  int64 // of the entry
	path    string
	owner   wire.SessionID
	by      wire.SessionID // session of the command
	czxid   wire.Zxid
	ctimeMs int64
	access  *znode.Access
	data    []byte // a copy, of at most dataMax bytes; of created and changed
	addr    string // of the owner's client; of created
}

const (
	// dataMax bounds the bytes of a node's data that are kept: the data of package recipes fit.
	dataMax = 1 << 10
	// eventBytes is the memory of an event, besides its path and data.
	eventBytes = 176
	// chunkEvents is the number of events that are overwritten at a time.
	chunkEvents = 256
	// arenaBytes is how much data is allocated for at a time.
	arenaBytes = 16 << 10
	// lookBytes is how much is recorded, while somebody looks, if there is to be no history.
	lookBytes = 1 << 20
)

// chunk is a part of the ring. Its first n events are never modified.
type chunk struct {
	number int64 // the first chunk of a ring is 0
	events []event
	bytes  int
}

// Why a history begins where it does.
const (
	beganAtStart    = "start"
	beganInRing     = "ring"
	beganAtSnapshot = "snapshot"
)

// Begin is where a history begins: this member knows nothing of earlier events.
type Begin struct {
	TimeMs int64
	Zxid   wire.Zxid
	Why    string
}

// Recorder keeps the events of ephemeral nodes while commands are applied, in a ring that is
// bounded in bytes.
//
// Lock: Applied and Restored are called while the state is locked, and never wait: mu is held for
// as long as it takes to append an event or to copy a list of chunks.
type Recorder struct {
	historyBytes int
	// Granted, if not nil, is called in Applied with the session of the contender that is the first
	// in its queue now, because the holder in front of it has gone.
	Granted func(next wire.SessionID)

	arena []byte // copies of data are made here; a full arena belongs to the events

	mu     sync.Mutex
	looked bool // an index follows
	begun  bool
	begin  Begin
	chunks []*chunk // the oldest first
	bytes  int      // that chunks count for
	next   int64    // the number of the next chunk
	resets int      // by snapshots
}

// NewRecorder returns a Recorder that keeps up to that number of bytes, 0 for none.
func NewRecorder(historyBytes int) *Recorder { return &Recorder{historyBytes: historyBytes} }

// Applied records a command that has just been applied, as the replica's listener learns of it.
// It costs nothing worth mentioning for commands that touch no ephemeral node.
func (r *Recorder) Applied(store *znode.Store, c *znode.Command, res *znode.Result) {
	if res.Restored { // all ephemeral nodes have gone with the state that they were in
		r.Restored(store)
		return
	}
	for i := range res.Events {
		if e := &res.Events[i]; e.Owner != 0 {
			r.record(store, c, res, e)
		}
	}
	if !r.begun { // only this goroutine sets it
		r.restart(store, beganAtStart, false)
	}
}

func (r *Recorder) record(store *znode.Store, c *znode.Command, res *znode.Result, e *znode.Event) {
	if e.Type == wire.EventNodeDeleted && r.Granted != nil {
		r.grant(store, e)
	}
	if !r.begun {
		r.restart(store, beganAtStart, false)
	}
	n := event{
		zxid: res.Zxid, timeMs: store.TimeMs(), path: e.Path, owner: e.Owner, by: c.Session,
		czxid: e.Czxid, ctimeMs: e.CtimeMs, access: e.Access(),
	}
	switch e.Type {
	case wire.EventNodeCreated:
		n.kind = created
		n.addr = store.Sessions().Addr(e.Owner)
	case wire.EventNodeDeleted:
		n.kind, n.end = deleted, endOf(c, e.Owner)
	default:
		n.kind = changed
	}
	if n.kind != deleted && len(e.Data) <= dataMax {
		n.data = r.copy(e.Data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appendLocked(n)
}

// copy returns a copy of data, which may be a part of an entry that is much larger. Many copies
// share one allocation. Only the goroutine that applies commands calls it.
func (r *Recorder) copy(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	if cap(r.arena)-len(r.arena) < len(data) {
		r.arena = make([]byte, 0, arenaBytes)
	}
	from := len(r.arena)
	r.arena = append(r.arena, data...)
	return r.arena[from:len(r.arena):len(r.arena)]
}

// endOf tells from the command that deleted a node of owner how it ended.
func endOf(c *znode.Command, owner wire.SessionID) End {
	switch {
	case c.Kind() == znode.KindExpire:
		return Expired
	case c.Closes():
		return Closed
	case c.Session == owner:
		return Released
	}
	return Deleted
}

func (r *Recorder) limit() int {
	if r.looked {
		return max(r.historyBytes, lookBytes)
	}
	return r.historyBytes
}

func (r *Recorder) appendLocked(e event) {
	limit := r.limit()
	if limit == 0 {
		return
	}
	last := len(r.chunks) - 1
	if last < 0 || len(r.chunks[last].events) == chunkEvents {
		r.chunks = append(r.chunks, &chunk{number: r.next, events: make([]event, 0, chunkEvents)})
		r.next++
		last++
	}
	c := r.chunks[last]
	n := eventBytes + len(e.path) + len(e.data)
	c.events = append(c.events, e)
	c.bytes += n
	r.bytes += n
	for r.bytes > limit && len(r.chunks) > 1 {
		gone := r.chunks[0]
		end := &gone.events[len(gone.events)-1]
		r.begin = Begin{TimeMs: end.timeMs, Zxid: end.zxid, Why: beganInRing}
		r.bytes -= gone.bytes
		r.chunks[0] = nil
		r.chunks = r.chunks[1:]
	}
}

// Restored forgets everything: a snapshot has replaced the state.
func (r *Recorder) Restored(store *znode.Store) { r.restart(store, beganAtSnapshot, true) }

func (r *Recorder) restart(store *znode.Store, why string, reset bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = true
	r.begin = Begin{TimeMs: store.TimeMs(), Zxid: store.Zxid(), Why: why}
	if reset {
		r.chunks, r.bytes = nil, 0
		r.resets++
	}
}

// grant calls Granted if the node that is gone was the first of its queue, and the next one waited
// for it. A queue is in the order in which its nodes were made, so its first child was made after
// the node that was first. Who reads beside another reader, or has a lease of a semaphore, held
// already; nodes that no known lock makes, such as the members of a group, need not wait for each
// other.
func (r *Recorder) grant(store *znode.Store, e *znode.Event) {
	dir, name := locknode.Split(e.Path)
	kind := locknode.KindOf(name)
	if kind == locknode.KindUnknown || kind == locknode.KindLease {
		return
	}
	for child := range store.ChildrenInOrder(dir) {
		next := locknode.KindOf(child)
		if next == locknode.KindUnknown || next == locknode.KindRead && kind == locknode.KindRead {
			return
		}
		if st, ok := store.Node(dir + "/" + child); ok && st.EphemeralOwner != 0 && st.Czxid > e.Czxid {
			r.Granted(st.EphemeralOwner)
		}
		return
	}
}

// look has events recorded also if there is to be no history.
func (r *Recorder) look(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked = on; !on && r.historyBytes == 0 {
		r.chunks, r.bytes = nil, 0
	}
}

// cursor is a position in the ring: a chunk, and a number of its events.
type cursor struct {
	chunk  int64
	events int
	resets int
}

// end returns the position behind the newest event.
func (r *Recorder) end() cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endLocked()
}

func (r *Recorder) endLocked() cursor {
	c := cursor{chunk: r.next, resets: r.resets}
	if n := len(r.chunks); n > 0 {
		c.chunk, c.events = r.chunks[n-1].number, len(r.chunks[n-1].events)
	}
	return c
}

// since returns the events behind a position, in slices that are never modified, and the position
// behind them. lost says that some of them have been overwritten, or that a snapshot has replaced
// the state.
func (r *Recorder) since(from cursor) (events [][]event, to cursor, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to = r.endLocked()
	if from.resets != r.resets || len(r.chunks) > 0 && from.chunk < r.chunks[0].number {
		return nil, to, true
	}
	for _, c := range r.chunks {
		switch {
		case c.number < from.chunk:
		case c.number == from.chunk:
			events = append(events, c.events[from.events:len(c.events):len(c.events)])
		default:
			events = append(events, c.events[:len(c.events):len(c.events)])
		}
	}
	return events, to, false
}

// all returns everything that is recorded, and where that begins.
func (r *Recorder) all() (events [][]event, begin Begin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.chunks {
		events = append(events, c.events[:len(c.events):len(c.events)])
	}
	return events, r.begin
}

// Bytes is how much is recorded, as console.historyBytes counts it.
func (r *Recorder) Bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// instant is a time of an entry.
func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
