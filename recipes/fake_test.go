package recipes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// fakeCluster is a ZooKeeper in memory, as far as the recipes use one: nodes,
// ephemerals, sequence numbers, one-shot data watches, sessions that end.
type fakeCluster struct {
	mu       sync.Mutex
	zxid     int64
	sessions int64
	nodes    map[string]*fakeNode
	conns    []*fakeConn
}

type fakeNode struct {
	czxid, mzxid int64
	owner        int64
	creates      int64 // children ever made
	container    bool
	data         []byte
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{zxid: 100, nodes: map[string]*fakeNode{"": {}}}
}

// paths lists all nodes but the root and the containers.
func (c *fakeCluster) paths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, p := range slices.Sorted(maps.Keys(c.nodes)) {
		if p != "" && !c.nodes[p].container {
			out = append(out, p)
		}
	}
	return out
}

func (c *fakeCluster) createLocked(path string, data []byte, flags int32, owner int64) (string, error) {
	dir, _ := split(path)
	parent := c.nodes[dir]
	if parent == nil {
		return "", zk.ErrNoNode
	}
	if flags == zk.FlagEphemeralSequential {
		path = fmt.Sprintf("%s%010d", path, parent.creates)
	} else {
		owner = 0
	}
	if c.nodes[path] != nil {
		return "", zk.ErrNodeExists
	}
	if parent.owner != 0 {
		return "", zk.ErrNoChildrenForEphemerals
	}
	c.zxid++
	parent.creates = min(parent.creates+1, maxSequence)
	c.nodes[path] = &fakeNode{
		czxid: c.zxid, mzxid: c.zxid, owner: owner, data: data,
		container: flags == zk.FlagContainer,
	}
	return path, nil
}

func (c *fakeCluster) deleteLocked(path string) error {
	if c.nodes[path] == nil {
		return zk.ErrNoNode
	}
	for p := range c.nodes {
		if strings.HasPrefix(p, path+"/") {
			return zk.ErrNotEmpty
		}
	}
	c.zxid++
	delete(c.nodes, path)
	c.fireLocked(path, zk.EventNodeDeleted)
	return nil
}

func (c *fakeCluster) setLocked(path string, data []byte) error {
	n := c.nodes[path]
	if n == nil {
		return zk.ErrNoNode
	}
	c.zxid++
	n.data, n.mzxid = data, c.zxid
	c.fireLocked(path, zk.EventNodeDataChanged)
	return nil
}

func (c *fakeCluster) fireLocked(path string, typ zk.EventType) {
	for _, conn := range c.conns {
		if conn.state == zk.StateHasSession {
			conn.fireLocked(path, typ)
		}
	}
}

func (c *fakeCluster) endSessionLocked(id int64) {
	for _, p := range slices.Sorted(maps.Keys(c.nodes)) {
		if n := c.nodes[p]; n != nil && n.owner == id {
			c.deleteLocked(p)
		}
	}
}

// with runs f with the mutex held.
func (c *fakeCluster) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// delete is what an operator would do.
func (c *fakeCluster) delete(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleteLocked(path)
}

// fault is what happens to one call.
type fault int

const (
	faultNone        fault = iota
	faultCutBefore         // the connection breaks, the request is lost
	faultCutAfter          // the connection breaks, the reply is lost
	faultCutLate           // the connection breaks; the request arrives later, when the session's next write does
	faultNetError          // as faultCutBefore, with the error that a socket gives
	faultExpire            // the session ends before the request arrives
	faultExpireAfter       // the request has its effect, then the session ends
	faultStrange           // refused with an error that nobody knows
	faults
)

func (f fault) String() string {
	return [...]string{"none", "cut-before", "cut-after", "cut-late", "net-error", "expire", "expire-after", "strange"}[f]
}

// fakeConn is a session's connection. It behaves as *zk.Conn does: calls wait
// for a connection, it reconnects by itself, and makes a new session when the
// old one has expired.
type fakeConn struct {
	c         *fakeCluster
	events    chan zk.Event
	reconnect time.Duration

	// hook is asked about every call that reaches the wire; n counts them from 0.
	// It may block: that is the request's way to the server. reply may block
	// too, on the way back. arrived is called with c.mu held when a request is
	// carried out. All may be nil; c.mu guards them.
	hook    func(n int, op, path string) fault
	reply   func(op string)
	arrived func()

	// Guarded by c.mu.
	calls   int
	id      int64
	state   zk.State
	closed  bool
	up      chan struct{} // closed when there is a connection, or never will be
	watches map[string][]fakeWatch
	late    []func() // requests under way on an older connection
}

type fakeWatch struct {
	ch   chan zk.Event
	zxid int64
}

func (c *fakeCluster) connect() *fakeConn {
	f := &fakeConn{
		c:         c,
		events:    make(chan zk.Event, 6),
		reconnect: 20 * time.Millisecond,
		up:        make(chan struct{}),
		watches:   make(map[string][]fakeWatch),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, f)
	f.connectLocked()
	return f
}

func (f *fakeConn) connectLocked() {
	if f.closed || f.state == zk.StateHasSession {
		return
	}
	if f.id == 0 {
		f.c.sessions++
		f.id = f.c.sessions
	}
	f.setStateLocked(zk.StateHasSession)
	close(f.up)
	for _, path := range slices.Sorted(maps.Keys(f.watches)) { // setWatches
		n := f.c.nodes[path]
		switch {
		case n == nil:
			f.fireLocked(path, zk.EventNodeDeleted)
		case n.mzxid > f.watches[path][0].zxid:
			f.fireLocked(path, zk.EventNodeDataChanged)
		}
	}
}

func (f *fakeConn) setStateLocked(s zk.State) {
	f.state = s
	select {
	case f.events <- zk.Event{Type: zk.EventSession, State: s}:
	default:
	}
}

func (f *fakeConn) fireLocked(path string, typ zk.EventType) {
	for _, w := range f.watches[path] {
		w.ch <- zk.Event{Type: typ, State: zk.StateSyncConnected, Path: path}
		close(w.ch)
	}
	delete(f.watches, path)
}

// cutLocked breaks the connection; the session stays.
func (f *fakeConn) cutLocked() {
	if f.closed || f.state != zk.StateHasSession {
		return
	}
	f.up = make(chan struct{})
	f.setStateLocked(zk.StateDisconnected)
	time.AfterFunc(f.reconnect, func() {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		f.connectLocked()
	})
}

// expireLocked ends the session, and tells the client as go-zookeeper does.
func (f *fakeConn) expireLocked() {
	if f.closed {
		return
	}
	f.cutLocked()
	id := f.id
	f.id = 0
	f.setStateLocked(zk.StateExpired)
	f.forgetLocked(zk.ErrSessionExpired)
	f.c.endSessionLocked(id)
}

func (f *fakeConn) forgetLocked(err error) {
	for _, path := range slices.Sorted(maps.Keys(f.watches)) {
		for _, w := range f.watches[path] {
			w.ch <- zk.Event{Type: zk.EventNotWatching, State: zk.StateDisconnected, Path: path, Err: err}
			close(w.ch)
		}
	}
	clear(f.watches)
}

// do makes one call. effect runs with the cluster's mutex held.
func (f *fakeConn) do(op, path string, write bool, effect func() error) error {
	f.c.mu.Lock()
	for f.state != zk.StateHasSession && !f.closed {
		up := f.up
		f.c.mu.Unlock()
		<-up
		f.c.mu.Lock()
	}
	if f.closed {
		f.c.mu.Unlock()
		return zk.ErrClosing
	}
	n := f.calls
	f.calls++
	hook, reply := f.hook, f.reply
	f.c.mu.Unlock()
	what := faultNone
	if hook != nil {
		what = hook(n, op, path)
	}
	err := f.arrive(what, write, effect)
	if reply != nil {
		reply(op)
	}
	return err
}

func (f *fakeConn) arrive(what fault, write bool, effect func() error) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.closed || f.state != zk.StateHasSession { // broke while the hook blocked
		return zk.ErrConnectionClosed
	}
	session := f.id
	arrive := func() error {
		if f.arrived != nil {
			f.arrived()
		}
		if write {
			for _, g := range f.late {
				g()
			}
			f.late = nil
		}
		return effect()
	}
	switch what {
	case faultCutBefore:
		f.cutLocked()
		return zk.ErrConnectionClosed
	case faultCutAfter:
		arrive()
		f.cutLocked()
		return zk.ErrConnectionClosed
	case faultCutLate:
		if write {
			f.late = append(f.late, func() {
				if f.id == session {
					effect()
				}
			})
		}
		f.cutLocked()
		return zk.ErrConnectionClosed
	case faultNetError:
		f.cutLocked()
		return &netError{}
	case faultExpire:
		f.expireLocked()
		return zk.ErrSessionExpired
	case faultExpireAfter:
		arrive()
		f.expireLocked()
		return zk.ErrSessionExpired
	case faultStrange:
		return errStrange
	}
	return arrive()
}

var errStrange = errors.New("unknown error: -127")

// netError looks like what net.Conn.Write returns.
type netError struct{}

func (*netError) Error() string   { return "write tcp: broken pipe" }
func (*netError) Timeout() bool   { return false }
func (*netError) Temporary() bool { return false }

func (f *fakeConn) Create(path string, data []byte, flags int32, acl []zk.ACL) (node string, err error) {
	err = f.do("create", path, true, func() (err error) {
		node, err = f.c.createLocked(path, data, flags, f.id)
		return err
	})
	if err != nil {
		return "", err
	}
	return node, nil
}

func (f *fakeConn) CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	err := f.do("container", path, true, func() error {
		_, err := f.c.createLocked(path, data, flags, 0)
		return err
	})
	return path, err
}

func (f *fakeConn) Delete(path string, version int32) error {
	return f.do("delete", path, true, func() error { return f.c.deleteLocked(path) })
}

func (f *fakeConn) Children(path string) (names []string, _ *zk.Stat, err error) {
	err = f.do("children", path, false, func() error {
		if f.c.nodes[path] == nil {
			return zk.ErrNoNode
		}
		for p := range f.c.nodes { // in the order of a map, on purpose
			if dir, name := split(p); dir == path && p != "" {
				names = append(names, name)
			}
		}
		return nil
	})
	return names, &zk.Stat{}, err
}

func (f *fakeConn) GetW(path string) (data []byte, stat *zk.Stat, events <-chan zk.Event, err error) {
	err = f.do("get", path, false, func() error {
		n := f.c.nodes[path]
		if n == nil {
			return zk.ErrNoNode
		}
		ch := make(chan zk.Event, 1)
		f.watches[path] = append(f.watches[path], fakeWatch{ch, f.c.zxid})
		data, events = n.data, ch
		stat = &zk.Stat{Czxid: n.czxid, Mzxid: n.mzxid, EphemeralOwner: n.owner}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return data, stat, events, nil
}

func (f *fakeConn) Sync(path string) (string, error) {
	return path, f.do("sync", path, false, func() error { return nil })
}

func (f *fakeConn) SessionID() int64 {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.id
}

func (f *fakeConn) State() zk.State {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.state
}

func (f *fakeConn) Close() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	if f.state == zk.StateHasSession {
		f.c.endSessionLocked(f.id)
	} else {
		close(f.up)
	}
	f.state = zk.StateDisconnected
	f.forgetLocked(zk.ErrClosing)
	close(f.events)
}
