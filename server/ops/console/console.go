package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Console answers the API of docs/api.md.
type Console struct {
	*ops.Shared
	version  string // of the program
	recorder *Recorder
	page     http.Handler
	index    *index
	hub      *hub
	reports  *door.Pace // of the reports on the client port

	listings chan struct{} // has an element for each listing of children that is under way
	replays  chan struct{} // has an element for the history that is being replayed

	mu         sync.Mutex
	reconnects map[string]*reconnects // by session, see trouble.go
}

// listingsAtOnce bounds the directories that are listed at a time.
const listingsAtOnce = 2

// New returns a Console with the history of a recorder. page serves the files of the page; nil:
// there is none. The Console has to be closed.
func New(shared *ops.Shared, version string, recorder *Recorder, page http.Handler) *Console {
	c := &Console{Shared: shared, version: version, recorder: recorder, page: page,
		index: newIndex(shared.View, recorder, shared.Config().Console.IndexBytes), reports: door.NewPace(3),
		listings: make(chan struct{}, listingsAtOnce), replays: make(chan struct{}, 1),
		reconnects: map[string]*reconnects{}}
	c.hub = newHub(c)
	return c
}

// Close ends the event streams and the Console's goroutine.
func (c *Console) Close() { c.hub.close() }

// IndexRefused counts how often the locks did not fit into console.indexBytes.
func (c *Console) IndexRefused() int64 { return c.index.refused.Load() }

// views are the answers, by the names of their endpoints. They are made from a request's parameters
// for a viewer, with now as the present time.
var views = map[string]func(*Console, url.Values, *viewer, time.Time) (any, error){
	"cluster": (*Console).cluster, "locks": (*Console).locks, "lock": (*Console).lock,
	"history": (*Console).history, "trouble": (*Console).trouble, "sessions": (*Console).sessions,
	"session": (*Console).session, "node": (*Console).node, "children": (*Console).children,
	"whoami": (*Console).whoami, "queues": (*Console).queues,
}

// reports are the views that clients may read on their own port: of locks. They show what ACLs
// permit.
var reports = map[string]bool{"locks": true, "lock": true, "queues": true, "history": true}

// codes are the clients' error codes for the statuses of failures.
var codes = map[int]wire.Code{
	http.StatusBadRequest: wire.CodeBadArguments, http.StatusForbidden: wire.CodeNoAuth,
	http.StatusNotFound: wire.CodeNoNode, http.StatusServiceUnavailable: wire.CodeThrottledOp,
}

// reportWait is how long a client's report waits for the reports of others: meanwhile no other
// request of its session is answered.
const reportWait = time.Second

// Report answers a view to a client with these identities: its name and parameters, as they follow
// api/v1/ in an address of HTTP. Codes: NoNode for other views and missing nodes, BadArguments,
// NoAuth, ThrottledOp when there is no memory for it.
func (c *Console) Report(ctx context.Context, text string, ids []znode.Identity) ([]byte, wire.Code) {
	name, query, _ := strings.Cut(text, "?")
	if !reports[name] {
		return nil, wire.CodeNoNode
	}
	over, ok := c.reports.Turn(ctx, reportWait)
	if !ok {
		return nil, wire.CodeThrottledOp
	}
	defer over()
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, wire.CodeBadArguments
	}
	defer c.hub.wake() // the index may have been built for this
	v := &viewer{ctx: ctx, ids: ids, super: znode.IsSuper(ids), isClient: true}
	answer, err := c.answer(name, q, v, time.Now())
	var f *failure
	switch {
	case errors.As(err, &f):
		return nil, cmp.Or(codes[f.status], wire.CodeThrottledOp)
	case err != nil:
		return nil, wire.CodeThrottledOp
	}
	release, ok := c.hold(answer)
	if !ok {
		return nil, wire.CodeThrottledOp
	}
	defer release()
	return door.Encode(answer), wire.CodeOK
}

// live are the views that an event stream may show.
var live = map[string]bool{"cluster": true, "locks": true, "lock": true, "history": true, "trouble": true,
	"sessions": true, "session": true}

// Register adds the console's handlers to mux.
func (c *Console) Register(mux door.Mux) {
	for name := range views {
		mux.HandleFunc("GET /api/v1/"+name, func(w http.ResponseWriter, r *http.Request) { c.serveView(w, r, name) })
	}
	mux.HandleFunc("GET /api/v1/events", c.serveEvents)
	mux.HandleFunc("POST /api/v1/act", c.serveAct)
	if c.page != nil {
		mux.Handle("/", c.page) // with any method, because of /commands/
	}
}

func (c *Console) viewer(r *http.Request) *viewer {
	caller := door.CallerOf(r)
	return &viewer{ctx: r.Context(), ids: caller.Identities, super: caller.IsSuper()}
}

// answer makes the answer of a view.
func (c *Console) answer(name string, q url.Values, v *viewer, now time.Time) (any, error) {
	seeing := *v
	seeing.remotes = map[wire.SessionID]netip.AddrPort{}
	for _, at := range c.Connections() {
		if at.Session != nil && !at.Session.Ended() {
			seeing.remotes[at.Session.ID()] = at.Remote
		}
	}
	return views[name](c, q, &seeing, now)
}

func (c *Console) serveView(w http.ResponseWriter, r *http.Request, name string) {
	defer c.hub.wake() // the index may have been built for this
	v := c.viewer(r)
	q := r.URL.Query()
	if name == "whoami" {
		q = url.Values{"acts": {c.actsRefused(r, v)}}
	}
	answer, err := c.answer(name, q, v, time.Now())
	if err != nil {
		writeFailure(w, err)
		return
	}
	release, ok := c.hold(answer)
	if !ok {
		w.Header().Set("Retry-After", "1")
		writeFailure(w, errNoMemory)
		return
	}
	defer release()
	door.WriteJSON(w, http.StatusOK, answer)
}

var errNoMemory = failf(http.StatusServiceUnavailable,
	"there is no memory for this answer (maxClientMemory); ask for less of it, or try again")

// hold reserves the memory that sending an answer takes; false if there is not enough.
func (c *Console) hold(answer any) (release func(), ok bool) {
	n := encodedTimes * jsonBytes(reflect.ValueOf(answer))
	if !c.Door.Hold(n) {
		return nil, false
	}
	return func() { c.Door.Release(n) }, true
}

// encodedTimes is how often an answer is in memory while encoding/json grows its buffer.
const encodedTimes = 2

func writeFailure(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	if f, ok := err.(*failure); ok {
		status = f.status
	}
	door.WriteJSON(w, status, map[string]string{"error": err.Error()})
}

func validJSON(data []byte) bool { return json.Valid(data) }

// head is the head of an answer that shows the state at a zxid.
func (c *Console) head(now time.Time) head {
	h := head{Member: int(c.Config().Cluster.ID), At: stamp(now)}
	m := c.Standing()
	if h.Serving = m.LeaderSeen; !h.Serving {
		h.StaleMs = now.Sub(m.Since).Milliseconds()
	}
	c.View(func(store *znode.Store) { h.Zxid = ops.Hex(store.Zxid()) })
	return h
}

type whoami struct {
	head
	Version     string   `json:"version"`
	Identities  []string `json:"identities"`
	Super       bool     `json:"super"`
	Acts        bool     `json:"acts"`
	ActsRefused string   `json:"actsRefused"`
}

func (c *Console) whoami(q url.Values, v *viewer, now time.Time) (any, error) {
	w := whoami{head: c.head(now), Version: c.version, Super: v.super, Identities: identityTexts(v.ids),
		ActsRefused: q.Get("acts")}
	w.Acts = w.ActsRefused == ""
	return w, nil
}

// identityTexts are identities as text; a digest has no password.
func identityTexts(ids []znode.Identity) []string {
	list := []string{}
	for _, id := range ids {
		name := id.ID
		if id.Scheme == "digest" {
			name, _, _ = strings.Cut(name, ":")
		}
		list = append(list, id.Scheme+":"+name)
	}
	return list
}

func (c *Console) cluster(_ url.Values, _ *viewer, now time.Time) (any, error) {
	return struct {
		head
		*ops.Cluster
	}{c.head(now), c.Cluster()}, nil
}

// number returns a parameter that is a number, at most most.
func number(q url.Values, name string, def, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, failf(http.StatusBadRequest, "%s is %q, and should be a number of at least 0", name, text)
	}
	return min(n, most), nil
}

// page are offset and limit.
func page(q url.Values, def, most int) (offset, limit int, err error) {
	if offset, err = number(q, "offset", 0, 1<<30); err == nil {
		limit, err = number(q, "limit", def, most)
	}
	return offset, limit, err
}

// oneOf returns a parameter that is one of some words, "" if it is not given.
func oneOf(q url.Values, name string, words ...string) (string, error) {
	text := q.Get(name)
	for _, w := range words {
		if text == w {
			return text, nil
		}
	}
	if text == "" {
		return "", nil
	}
	return "", failf(http.StatusBadRequest, "%s is %q, and should be one of %s", name, text, strings.Join(words, ", "))
}

// sessionID reads a session as the API has it.
func sessionID(text string) (int64, bool) {
	digits, ok := strings.CutPrefix(text, "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	return int64(n), ok && err == nil
}

// lockAt returns the path of the lock that a node belongs to.
func (x *index) lockAt(path string) string {
	if l := x.where[path]; l != nil {
		return l.path
	}
	at, _ := locknode.Place(path, x.isSemaphore)
	return at
}
