package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"
	"sync"
	"time"

	"lockkeeper/server/ops/door"
	"lockkeeper/znode"
)

const (
	everyMs        = 500 // the least time between two answers of a stream
	beatMs         = 2000
	bytesPerSecond = 256 << 10
	// writeTimeout is how long a watcher may take to receive something.
	writeTimeout = 10 * time.Second
)

// hub has what all event streams share: while there are any, each requested answer is made once in
// everyMs for all its watchers. Each has a goroutine while it is made, so that a slow one delays no
// other.
type hub struct {
	c    *Console
	seed maphash.Seed

	mu       sync.Mutex
	watchers map[*watcher]bool
	resting  map[string]time.Time // by key, when an answer is due again; zero: it is being made
	running  bool
	closed   bool
	stop     chan struct{}
	done     sync.WaitGroup
}

// watcher is an event stream.
type watcher struct {
	key    string // of its view, parameters and identities
	view   string
	query  url.Values
	viewer *viewer
	latest chan message // capacity 1: the newest
	beats  chan []byte  // capacity 1
	sum    uint64       // of its last answer
}

type message struct {
	event string
	data  []byte
	zxid  string
}

func newHub(c *Console) *hub {
	return &hub{c: c, seed: maphash.MakeSeed(), watchers: map[*watcher]bool{}, resting: map[string]time.Time{},
		stop: make(chan struct{})}
}

func (h *hub) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
	h.mu.Unlock()
	h.done.Wait()
}

// join adds a watcher; false if there are too many.
func (h *hub) join(w *watcher) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.watchers) >= h.c.Config().Console.Watchers {
		return false
	}
	h.watchers[w] = true
	if !h.running {
		h.running = true
		h.done.Go(h.run)
	}
	return true
}

func (h *hub) leave(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
}

// run makes answers until nobody has watched for a while and the index is dropped.
func (h *hub) run() {
	timer := time.NewTimer(everyMs * time.Millisecond)
	defer timer.Stop()
	var beaten time.Time
	for {
		select {
		case <-h.stop:
			return
		case <-timer.C:
		}
		begin := time.Now()
		beat := begin.Sub(beaten) >= (beatMs-everyMs/2)*time.Millisecond
		if beat {
			beaten = begin
		}
		h.tick(beat)
		// A rest in proportion: however much is looked at, it takes a small part of one core.
		timer.Reset(max(everyMs*time.Millisecond, restAfter*time.Since(begin)))
		h.mu.Lock()
		if len(h.watchers) == 0 && h.c.index.dropUnused(time.Now()) {
			h.running = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
}

// wake starts run, which drops the index when it is not used any more.
func (h *hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.running && !h.closed {
		h.running = true
		h.done.Go(h.run)
	}
}

// tick makes the answers that are wanted.
func (h *hub) tick(beat bool) {
	h.mu.Lock()
	byKey := map[string][]*watcher{}
	for w := range h.watchers {
		byKey[w.key] = append(byKey[w.key], w)
	}
	h.mu.Unlock()
	if len(byKey) == 0 {
		return
	}
	for key, list := range byKey {
		if list[0].view != "" && h.begin(key) {
			h.done.Go(func() {
				begin := time.Now()
				h.answer(list)
				h.end(key, time.Now().Add(restAfter*time.Since(begin)))
			})
		}
	}
	if !beat {
		return
	}
	for _, list := range byKey {
		text := h.beat(list[0].viewer)
		for _, w := range list {
			put(w.beats, text)
		}
	}
}

// begin reports whether the answer of a key is due and is not being made.
func (h *hub) begin(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for k, until := range h.resting {
		if !until.IsZero() && now.After(until) {
			delete(h.resting, k)
		}
	}
	if _, rests := h.resting[key]; rests || h.closed {
		return false
	}
	h.resting[key] = time.Time{}
	return true
}

func (h *hub) end(key string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resting[key] = until
}

func put[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	select {
	case c <- v:
	default:
	}
}

// fixedTime is taken for the present when only that is looked for whether an answer has changed.
var fixedTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// answer makes the answer of watchers that want the same, and sends it to watchers that have
// another one. Answers are compared at a fixed time, so that ages do not count as changes.
func (h *hub) answer(list []*watcher) {
	w := list[0]
	body, err := h.c.answer(w.view, w.query, w.viewer, fixedTime)
	if w.viewer.ctx.Err() != nil {
		return // the next tick asks for another watcher
	}
	m := message{event: "view"}
	if err != nil {
		m.event = "error"
		status := http.StatusServiceUnavailable
		if f, ok := err.(*failure); ok {
			status = f.status
		}
		m.data, _ = json.Marshal(map[string]any{"status": status, "error": err.Error()})
	} else {
		release, ok := h.c.hold(body)
		if !ok {
			return // the next tick tries again
		}
		defer release()
		m.data = door.Encode(body)
	}
	sum := maphash.Bytes(h.seed, withoutZxid(m.data))
	var due []*watcher
	for _, w := range list {
		if w.sum != sum {
			w.sum = sum
			due = append(due, w)
		}
	}
	if len(due) == 0 {
		return
	}
	if err == nil {
		if body, err = h.c.answer(w.view, w.query, w.viewer, time.Now()); err != nil {
			return // it has gone in between; the next tick says so
		}
		m.data = door.Encode(body)
	}
	for _, w := range due {
		put(w.latest, m)
	}
}

// withoutZxid cuts the head off an answer: that something else has changed is no change of it.
func withoutZxid(data []byte) []byte {
	if i := bytes.Index(data, []byte(`"serving"`)); i >= 0 {
		return data[i:]
	}
	return data
}

type beatAnswer struct {
	head
	Leader  int            `json:"leader"`
	Locks   int            `json:"locks"`
	Waiting int            `json:"waiting"`
	Trouble map[string]int `json:"trouble"`
	Error   string         `json:"error,omitempty"` // why locks and trouble are not known
}

func (h *hub) beat(of *viewer) []byte {
	c, own := h.c, *of // others may read of meanwhile
	v := &own
	b := beatAnswer{head: c.head(time.Now()), Leader: c.Standing().Leader, Trouble: map[string]int{}}
	if err := c.index.with(func() {
		b.Trouble["deadlock"] = len(c.index.showDeadlocks(v))
		seen := c.index.seenBy(v)
		b.Locks = len(seen)
		for _, l := range seen {
			b.Waiting += l.waiting
			for _, kind := range c.index.troubleOf(l, v) {
				if kind != "deadlock" {
					b.Trouble[kind]++
				}
			}
		}
	}); err != nil {
		b.Error = err.Error()
	}
	return door.Encode(b)
}

// serveEvents answers GET api/v1/events.
func (c *Console) serveEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	view := q.Get("view")
	if view != "" && !live[view] {
		writeFailure(w, failf(http.StatusBadRequest, "there is no view %q to watch", view))
		return
	}
	v := c.viewer(r)
	me := &watcher{view: view, query: q, viewer: v, latest: make(chan message, 1), beats: make(chan []byte, 1),
		key: fmt.Sprintf("%s %t %q", q.Encode(), v.super, viewerKey(v))}
	if !c.hub.join(me) {
		writeFailure(w, failf(http.StatusTooManyRequests, "too many watch this member (console.watchers), or it stops"))
		return
	}
	defer c.hub.leave(me)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := stream{w: w, c: http.NewResponseController(w)}
	hello, _ := json.Marshal(map[string]any{"member": int(c.Config().Cluster.ID), "version": c.version,
		"beatMs":  beatMs,
		"everyMs": everyMs, "bytesPerSecond": bytesPerSecond})
	ok := s.send("hello", "", hello)
	if ok && view != "" {
		ok = c.sendFirst(&s, me)
	}
	if ok {
		ok = s.send("beat", "", c.hub.beat(v))
	}
	if ok {
		c.follow(&s, me, r)
	}
}

func viewerKey(v *viewer) []znode.Identity {
	if v.super {
		return nil // all of these see the same
	}
	return v.ids
}

// sendFirst sends the view at once.
func (c *Console) sendFirst(s *stream, me *watcher) bool {
	body, err := c.answer(me.view, me.query, me.viewer, time.Now())
	if err != nil {
		status := http.StatusServiceUnavailable
		if f, ok := err.(*failure); ok {
			status = f.status
		}
		data, _ := json.Marshal(map[string]any{"status": status, "error": err.Error()})
		return s.send("error", "", data)
	}
	release, ok := c.hold(body)
	if !ok {
		data, _ := json.Marshal(map[string]any{"status": errNoMemory.status, "error": errNoMemory.text})
		return s.send("error", "", data)
	}
	defer release()
	return s.send("view", "", door.Encode(body))
}

// follow sends the changes until the client has gone.
func (c *Console) follow(s *stream, me *watcher, r *http.Request) {
	for {
		latest := me.latest
		var wait <-chan time.Time
		if d := time.Until(s.quietUntil); d > 0 {
			latest, wait = nil, time.After(d) // it has had its bytes for now
		}
		ok := true
		select {
		case <-r.Context().Done():
			return
		case <-c.hub.stop:
			s.send("bye", "", []byte(`{"error":"this member stops"}`))
			return
		case m := <-latest:
			n := len(m.data)
			if !c.Door.Hold(n) {
				return // its client connects again
			}
			ok = s.send(m.event, m.zxid, m.data)
			c.Door.Release(n)
		case b := <-me.beats:
			ok = s.send("beat", "", b)
		case <-wait:
		}
		if !ok {
			return
		}
	}
}

// stream writes server-sent events.
type stream struct {
	w          http.ResponseWriter
	c          *http.ResponseController
	quietUntil time.Time // so that it takes no more than bytesPerSecond
}

func (s *stream) send(event, id string, data []byte) bool {
	_ = s.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", event)
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	n, err := s.w.Write(b.Bytes())
	took := time.Duration(n) * time.Second / bytesPerSecond
	s.quietUntil = time.Now().Add(took)
	return err == nil && s.c.Flush() == nil
}
