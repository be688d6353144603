package recipes

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// model is a cluster of three servers in memory that does whatever ZooKeeper may do to its clients,
// as its seed chooses. Requests and replies take their time, and are lost with their connection.
// Servers apply commits late, and answer reads from their own state. Sessions move between servers.
// Watches are lost in a move. A server may be cut off from the two others: it answers reads and
// syncs then, and no write, while the majority expires the sessions of its clients and goes on.
// lockkeeper may do the same but for the sync of a server that is cut off, which it does not
// answer.
//
// The events depend on the seed alone, but for the order of goroutines that run in the same
// nanosecond of virtual time: few do, as all delays differ.
type model struct {
	truth    *fakeCluster // the committed state; its mu guards everything here
	history  []modelEntry // of truth; the first is its beginning
	servers  [3]modelServer
	conns    []*modelConn
	sessions map[int64]*modelSession
	rnd      *rand.Rand
	quiet    bool                 // no more faults
	cut      int                  // the server that is cut off; -1: none
	vanished map[string]time.Time // when nodes went with their sessions

	began time.Time
	trace []string // the events so far
}

// noteLocked adds a line to the trace.
func (m *model) noteLocked(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf("%v ", time.Since(m.began))+fmt.Sprintf(format, args...))
}

// modelEntry is the state behind one change.
type modelEntry struct {
	view   *fakeCluster
	events []zk.Event
	at     time.Time
}

type modelServer struct{ at int } // the newest entry that it has applied

type modelSession struct {
	alive bool
	begun int // index of the entry from which on servers know of it
	ended int // and of the one from which on they know that it is over, unless it is alive
	gen   int // counts when it was heard of again
}

func newModel(seed uint64, lockkeeper bool) *model {
	m := &model{truth: newFakeCluster(), sessions: make(map[int64]*modelSession), rnd: rand.New(rand.NewPCG(seed, 39)), cut: -1, began: time.Now(), vanished: make(map[string]time.Time)}
	m.truth.zookeeper = !lockkeeper
	m.appendLocked(nil)
	return m
}

func (m *model) lock() func() {
	m.truth.mu.Lock()
	return m.truth.mu.Unlock
}

// upToLocked draws a time; one in rare is long.
func (m *model) upToLocked(usual, long time.Duration, rare int) time.Duration {
	if !m.quiet && m.rnd.IntN(rare) == 0 {
		return time.Duration(1 + m.rnd.Int64N(int64(long)))
	}
	return time.Duration(1 + m.rnd.Int64N(int64(usual)))
}

func (m *model) oneInLocked(n int) bool { return !m.quiet && m.rnd.IntN(n) == 0 }

// appendLocked notes the state of the truth as an entry.
func (m *model) appendLocked(events []zk.Event) {
	view := &fakeCluster{nodes: make(map[string]*fakeNode, len(m.truth.nodes)), zxid: m.truth.zxid}
	for path, n := range m.truth.nodes {
		view.nodes[path] = new(*n)
	}
	m.history = append(m.history, modelEntry{view, events, time.Now()})
}

// commitLocked makes a change, which the servers apply one after the other.
func (m *model) commitLocked(change func()) {
	var events []zk.Event
	m.truth.fired = func(path string, typ zk.EventType) {
		events = append(events, zk.Event{Type: typ, State: zk.StateSyncConnected, Path: path})
	}
	change()
	m.truth.fired = nil
	if len(events) == 0 {
		return
	}
	m.appendLocked(events)
	m.noteLocked("%d committed: %v", m.truth.zxid, events)
	at := len(m.history) - 1
	for k := range m.servers {
		if k != m.cut {
			time.AfterFunc(m.upToLocked(5*time.Millisecond, 2*time.Second, 6), func() {
				defer m.lock()()
				if k != m.cut {
					m.applyLocked(k, at)
				}
			})
		}
	}
}

// applyLocked has a server apply the entries up to one, and fire its clients' watches.
func (m *model) applyLocked(k, to int) {
	for s := &m.servers[k]; s.at < to; {
		s.at++
		for _, ev := range m.history[s.at].events {
			for _, c := range m.conns {
				if c.server == k && c.state == zk.StateHasSession {
					c.fireLocked(ev.Path, ev.Type)
				}
			}
		}
	}
}

// cutOffLocked cuts a server off from the majority, or takes it in again (-1), which closes its
// connections.
func (m *model) cutOffLocked(k int) {
	old := m.cut
	if old >= 0 {
		for _, c := range m.conns {
			if c.server == old {
				c.cutLocked()
			}
		}
	}
	m.cut = k
	m.noteLocked("server %d is cut off", k)
	if old >= 0 && old != k {
		m.applyLocked(old, len(m.history)-1)
	}
	for _, c := range m.conns {
		c.unheardLocked()
	}
}

// expireLocked ends a session.
func (m *model) expireLocked(id int64) {
	if s := m.sessions[id]; s != nil && s.alive {
		s.alive = false
		m.noteLocked("session %d expires", id)
		for path, n := range m.truth.nodes {
			if n.owner == id {
				m.vanished[path] = time.Now()
			}
		}
		m.commitLocked(func() { m.truth.endSessionLocked(id) })
		s.ended = len(m.history) - 1
	}
}

// trouble makes faults until the model is quiet.
func (m *model) trouble() {
	for {
		unlock := m.lock()
		if m.quiet {
			unlock()
			return
		}
		pause := m.upToLocked(time.Second, 5*time.Second, 4)
		switch m.rnd.IntN(6) {
		case 0, 1:
			m.conns[m.rnd.IntN(len(m.conns))].cutLocked()
		case 2:
			m.cutOffLocked(m.rnd.IntN(3))
		case 3, 4:
			m.cutOffLocked(-1)
		}
		unlock()
		time.Sleep(pause)
	}
}

// calm ends the faults.
func (m *model) calm() {
	defer m.lock()()
	m.quiet = true
	m.cutOffLocked(-1)
}

// modelConn is a client's connection, a Conn. See fakeConn for how it behaves.
type modelConn struct {
	m      *model
	events chan zk.Event

	// Guarded by m's mutex.
	id      int64
	state   zk.State
	closed  bool
	server  int
	seen    int           // index of the newest entry that it has seen
	epoch   int           // counts connections
	up      chan struct{} // closed when there is a connection, or never will be
	down    chan struct{} // closed when the connection breaks
	stuck   bool          // a write waits for a majority, and all that comes behind it
	watches map[fakeWatchKey][]chan zk.Event

	arriveAt, replyAt time.Time // of the newest request
	wrote             bool      // a write of this connection was carried out
	late              []func()  // writes of the last connection that are under way yet
	lost              bool      // one of them was lost, and so are all behind it
}

var _ Conn = (*modelConn)(nil)

func (m *model) connect() *modelConn {
	c := &modelConn{
		m: m, events: make(chan zk.Event, 6), up: make(chan struct{}), server: -1,
		watches: make(map[fakeWatchKey][]chan zk.Event),
	}
	defer m.lock()()
	m.conns = append(m.conns, c)
	c.connectLocked()
	return c
}

// connectLocked tries to connect to any of the servers.
func (c *modelConn) connectLocked() {
	m := c.m
	if c.closed || c.state == zk.StateHasSession {
		return
	}
	for _, k := range m.rnd.Perm(3) {
		s := m.sessions[c.id]
		if m.servers[k].at < c.seen || k == m.cut && (s == nil || s.begun > m.servers[k].at) {
			continue // it is behind the client, or does not know the session
		}
		if s != nil && !s.alive && (k != m.cut || s.ended <= m.servers[k].at) {
			c.expiredLocked()
			s = nil
			if k == m.cut {
				continue
			}
		}
		if s == nil {
			m.truth.sessions++
			c.id = m.truth.sessions
			m.sessions[c.id] = &modelSession{alive: true, begun: len(m.history) - 1}
		}
		c.server, c.state, c.stuck, c.wrote = k, zk.StateHasSession, false, false
		c.arriveAt, c.replyAt = time.Now(), time.Now()
		c.down = make(chan struct{})
		c.unheardLocked()
		c.tellLocked(zk.StateHasSession)
		m.noteLocked("session %d is connected to %d at %d", c.id, k, m.servers[k].at)
		c.setWatchesLocked()
		close(c.up)
		return
	}
	c.retryLocked()
}

func (c *modelConn) retryLocked() {
	time.AfterFunc(c.m.upToLocked(100*time.Millisecond, 3*time.Second, 10), func() {
		defer c.m.lock()()
		c.connectLocked()
	})
}

func (c *modelConn) tellLocked(s zk.State) {
	select {
	case c.events <- zk.Event{Type: zk.EventSession, State: s}:
	default:
	}
}

// setWatchesLocked sets the watches at the next server; some are lost.
func (c *modelConn) setWatchesLocked() {
	view, before := c.m.history[c.m.servers[c.server].at].view, c.m.history[c.seen].view.zxid
	keys := slices.SortedFunc(maps.Keys(c.watches), func(a, b fakeWatchKey) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.kind, b.kind))
	})
	for _, key := range keys {
		if c.m.oneInLocked(10) {
			delete(c.watches, key)
			continue
		}
		n := view.nodes[key.path]
		switch {
		case key.kind == watchExist && n != nil:
			c.fireLocked(key.path, zk.EventNodeCreated)
		case key.kind == watchExist:
		case n == nil:
			c.fireLocked(key.path, zk.EventNodeDeleted)
		case key.kind == watchData && n.mzxid > before:
			c.fireLocked(key.path, zk.EventNodeDataChanged)
		case key.kind == watchChild && n.pzxid > before:
			c.fireLocked(key.path, zk.EventNodeChildrenChanged)
		}
	}
}

func (c *modelConn) fireLocked(path string, typ zk.EventType) {
	for _, kind := range fires[typ] {
		key := fakeWatchKey{path, kind}
		for _, ch := range c.watches[key] {
			ch <- zk.Event{Type: typ, State: zk.StateSyncConnected, Path: path}
			close(ch)
		}
		delete(c.watches, key)
	}
}

func (c *modelConn) watchLocked(path string, kind watchKind) <-chan zk.Event {
	ch, key := make(chan zk.Event, 1), fakeWatchKey{path, kind}
	c.watches[key] = append(c.watches[key], ch)
	return ch
}

// unheardLocked starts the countdown of the session, unless the majority hears of it.
func (c *modelConn) unheardLocked() {
	s, id := c.m.sessions[c.id], c.id
	heard := func() bool { return c.state == zk.StateHasSession && c.server != c.m.cut && !c.closed && c.id == id }
	if s == nil {
		return
	}
	if heard() {
		s.gen++
		return
	}
	gen := s.gen
	time.AfterFunc(testTimeout, func() {
		defer c.m.lock()()
		if s.gen == gen && !heard() {
			c.m.expireLocked(id)
		}
	})
}

// cutLocked breaks the connection.
func (c *modelConn) cutLocked() {
	if c.closed || c.state != zk.StateHasSession {
		return
	}
	c.m.noteLocked("session %d is disconnected from %d", c.id, c.server)
	c.epoch++
	c.late, c.lost = nil, c.server == c.m.cut
	c.state, c.up = zk.StateDisconnected, make(chan struct{})
	c.unheardLocked()
	c.server = -1
	close(c.down)
	c.tellLocked(zk.StateDisconnected)
	c.retryLocked()
}

// expiredLocked tells the client that its session is over.
func (c *modelConn) expiredLocked() {
	c.id, c.seen = 0, 0
	c.tellLocked(zk.StateExpired)
	c.forgetLocked(zk.ErrSessionExpired)
	c.late, c.lost = nil, true
}

func (c *modelConn) forgetLocked(err error) {
	for key, list := range c.watches {
		for _, ch := range list {
			ch <- zk.Event{Type: zk.EventNotWatching, State: zk.StateDisconnected, Path: key.path, Err: err}
			close(ch)
		}
	}
	clear(c.watches)
}

// do makes one call. Requests arrive in the order of the calls, and so do replies. effect runs on
// the truth if it is a write, else on the view of the server.
func (c *modelConn) do(write bool, effect func(on *fakeCluster) error) error {
	m := c.m
	m.truth.mu.Lock()
	defer func() { m.truth.mu.Unlock() }()
	for c.state != zk.StateHasSession && !c.closed {
		up := c.up
		m.truth.mu.Unlock()
		<-up
		m.truth.mu.Lock()
	}
	if c.closed {
		return zk.ErrClosing
	}
	epoch, session := c.epoch, c.id
	c.arriveAt = behind(c.arriveAt, m.upToLocked(time.Millisecond, time.Second, 30))
	c.sleepLocked(c.arriveAt)
	if c.epoch != epoch || c.closed {
		c.lateLocked(write, session, effect)
		return zk.ErrConnectionClosed
	}
	if m.oneInLocked(60) { // the connection breaks with the request in it
		c.cutLocked()
		c.lateLocked(write, session, effect)
		return zk.ErrConnectionClosed
	}
	err := c.arriveLocked(write, epoch, effect)
	if c.epoch != epoch || c.closed {
		return err
	}
	at := m.servers[c.server].at
	if m.oneInLocked(60) { // the reply is lost
		c.cutLocked()
		return zk.ErrConnectionClosed
	}
	c.replyAt = behind(c.replyAt, m.upToLocked(time.Millisecond, time.Second, 30))
	c.sleepLocked(c.replyAt)
	if c.epoch != epoch || c.closed {
		return zk.ErrConnectionClosed
	}
	c.seen = max(c.seen, at)
	return err
}

// behind is d from now, and not before the last one.
func behind(last time.Time, d time.Duration) time.Time {
	t := time.Now().Add(d)
	if !t.After(last) {
		t = last.Add(1)
	}
	return t
}

func (c *modelConn) sleepLocked(until time.Time) {
	c.m.truth.mu.Unlock()
	time.Sleep(time.Until(until))
	c.m.truth.mu.Lock()
}

// arriveLocked is the request at its server.
func (c *modelConn) arriveLocked(write bool, epoch int, effect func(on *fakeCluster) error) error {
	m := c.m
	if write && c.server == m.cut || c.stuck {
		if !c.stuck {
			c.stuck = true
			time.AfterFunc(testTimeout/3, func() { // the client's patience
				defer m.lock()()
				if c.epoch == epoch {
					c.cutLocked()
				}
			})
		}
		down := c.down
		m.truth.mu.Unlock()
		<-down
		m.truth.mu.Lock()
		return zk.ErrConnectionClosed
	}
	var err error
	if write {
		if !m.sessions[c.id].alive {
			c.cutLocked()
			return zk.ErrSessionExpired
		}
		if !c.wrote { // requests under way on the last connection come before, or never
			for _, f := range c.late {
				if m.rnd.IntN(2) == 0 {
					break
				}
				f()
			}
			c.wrote, c.late, c.lost = true, nil, true
		}
		m.commitLocked(func() { err = effect(m.truth) })
		m.applyLocked(c.server, len(m.history)-1)
	} else {
		err = effect(m.history[m.servers[c.server].at].view)
	}
	return err
}

// between calls f with all that was true between two times, the oldest first, until it returns
// true.
func (m *model) between(from, to time.Time, f func(view *fakeCluster) bool) bool {
	defer m.lock()()
	for i, e := range m.history {
		last := i+1 == len(m.history)
		if (last || !m.history[i+1].at.Before(from)) && !e.at.After(to) && f(e.view) {
			return true
		}
	}
	return false
}

// children are the names of a node's children.
func (c *fakeCluster) children(path string) (names []string) {
	for p := range c.nodes {
		if dir, name := split(p); dir == path && p != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lateLocked is a request that had not arrived when its connection broke. It may arrive all the
// same, if no request before it was lost, and until a write of the next connection is carried out.
func (c *modelConn) lateLocked(write bool, session int64, effect func(on *fakeCluster) error) {
	if !write || c.lost || c.id != session || c.closed {
		return
	}
	if c.m.rnd.IntN(2) == 0 {
		c.lost = true
		return
	}
	f := func() {
		if s := c.m.sessions[session]; s.alive {
			c.m.commitLocked(func() { effect(c.m.truth) })
		}
	}
	c.late = append(c.late, f)
	time.AfterFunc(c.m.upToLocked(50*time.Millisecond, 3*time.Second, 3), func() {
		defer c.m.lock()()
		if len(c.late) > 0 {
			first := c.late[0]
			c.late = c.late[1:]
			first()
		}
	})
}

func (c *modelConn) Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	var node string
	err := c.do(true, func(on *fakeCluster) (err error) {
		node, err = on.createLocked(path, data, flags, c.id)
		return err
	})
	if err != nil {
		return "", err
	}
	return node, nil
}

func (c *modelConn) CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	return path, c.do(true, func(on *fakeCluster) error {
		_, err := on.createLocked(path, data, flags, 0)
		return err
	})
}

func (c *modelConn) Delete(path string, version int32) error {
	return c.do(true, func(on *fakeCluster) error { return on.deleteLocked(path, version) })
}

func (c *modelConn) Set(path string, data []byte, version int32) (*zk.Stat, error) {
	var stat *zk.Stat
	err := c.do(true, func(on *fakeCluster) error {
		if err := on.setLocked(path, data, version); err != nil {
			return err
		}
		stat = on.statLocked(path)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stat, nil
}

func (c *modelConn) Multi(ops ...any) ([]zk.MultiResponse, error) {
	var results []zk.MultiResponse
	err := c.do(true, func(on *fakeCluster) (err error) {
		results, err = on.multiLocked(ops, c.id)
		return err
	})
	if fateOf(err) > fateRefused {
		return nil, err
	}
	return results, err
}

func (c *modelConn) Exists(path string) (exists bool, stat *zk.Stat, err error) {
	exists, stat, _, err = c.exists(path, false)
	return exists, stat, err
}

func (c *modelConn) ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error) {
	return c.exists(path, true)
}

func (c *modelConn) exists(path string, watch bool) (exists bool, stat *zk.Stat, events <-chan zk.Event, err error) {
	err = c.do(false, func(on *fakeCluster) error {
		exists, stat = on.nodes[path] != nil, &zk.Stat{}
		kind := watchExist
		if exists {
			stat, kind = on.statLocked(path), watchData
		}
		if watch {
			events = c.watchLocked(path, kind)
		}
		return nil
	})
	if err != nil {
		return false, nil, nil, err
	}
	return exists, stat, events, nil
}

func (c *modelConn) Children(path string) ([]string, *zk.Stat, error) {
	names, stat, _, err := c.children(path, false)
	return names, stat, err
}

func (c *modelConn) ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error) {
	return c.children(path, true)
}

func (c *modelConn) children(path string, watch bool) (names []string, stat *zk.Stat, events <-chan zk.Event, err error) {
	path = strings.TrimSuffix(path, "/")
	err = c.do(false, func(on *fakeCluster) error {
		if on.nodes[path] == nil {
			return zk.ErrNoNode
		}
		names, stat = on.children(path), on.statLocked(path)
		if watch {
			events = c.watchLocked(path, watchChild)
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return names, stat, events, nil
}

func (c *modelConn) Get(path string) ([]byte, *zk.Stat, error) {
	data, stat, _, err := c.get(path, false)
	return data, stat, err
}

func (c *modelConn) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	return c.get(path, true)
}

func (c *modelConn) get(path string, watch bool) (data []byte, stat *zk.Stat, events <-chan zk.Event, err error) {
	err = c.do(false, func(on *fakeCluster) error {
		n := on.nodes[path]
		if n == nil {
			return zk.ErrNoNode
		}
		data, stat = n.data, on.statLocked(path)
		if watch {
			events = c.watchLocked(path, watchData)
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return data, stat, events, nil
}

// Sync on lockkeeper is a write that changes nothing. On ZooKeeper the server applies what is
// committed, as far as it knows.
func (c *modelConn) Sync(path string) (string, error) {
	if !c.m.truth.zookeeper {
		if path == syncQuestion {
			path = syncLinearizable
		}
		return path, c.do(true, func(*fakeCluster) error { return nil })
	}
	return path, c.do(false, func(*fakeCluster) error {
		if c.server != c.m.cut {
			c.m.applyLocked(c.server, len(c.m.history)-1)
		}
		return nil
	})
}

func (c *modelConn) SessionID() int64 {
	defer c.m.lock()()
	return c.id
}

func (c *modelConn) State() zk.State {
	defer c.m.lock()()
	return c.state
}

func (c *modelConn) Close() {
	defer c.m.lock()()
	if c.closed {
		return
	}
	if c.state == zk.StateHasSession && c.server != c.m.cut {
		c.m.expireLocked(c.id)
	}
	if c.state == zk.StateHasSession {
		close(c.down)
	} else {
		close(c.up)
	}
	c.closed = true
	c.unheardLocked()
	c.state = zk.StateDisconnected
	c.forgetLocked(zk.ErrClosing)
	close(c.events)
}
