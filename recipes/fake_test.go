package recipes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// fakeCluster is a ZooKeeper in memory, as far as the recipes use one: nodes,
// ephemerals, sequence numbers, one-shot watches, multi, sessions that end.
type fakeCluster struct {
	mu       sync.Mutex
	zxid     int64
	multi    bool     // in a multi: one zxid for all, and events wait for its end
	events   []func() // of the multi under way
	sessions int64
	nodes    map[string]*fakeNode
	conns    []*fakeConn
	// gets every event as it happens, if it is not nil; see model_test.go
	fired func(path string, typ zk.EventType)
	// It does not say that its sync is linearizable, and its counters go below zero at their end,
	// as those of ZooKeeper may.
	zookeeper bool
}

type fakeNode struct {
	czxid, mzxid, pzxid int64
	ctime, mtime        int64 // ms
	version             int32
	owner               int64
	creates             int64 // children ever made
	container           bool
	data                []byte
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

// nextZxidLocked is the zxid of the change that is made now.
func (c *fakeCluster) nextZxidLocked() int64 {
	if !c.multi {
		c.zxid++
	}
	return c.zxid
}

func (c *fakeCluster) createLocked(path string, data []byte, flags int32, owner int64) (string, error) {
	dir, _ := split(path)
	parent := c.nodes[dir]
	if parent == nil {
		return "", zk.ErrNoNode
	}
	if flags == zk.FlagEphemeralSequential || flags == zk.FlagSequence {
		path = fmt.Sprintf("%s%010d", path, int32(parent.creates))
	}
	if flags != zk.FlagEphemeralSequential && flags != zk.FlagEphemeral {
		owner = 0
	}
	if c.nodes[path] != nil {
		return "", zk.ErrNodeExists
	}
	if parent.owner != 0 {
		return "", zk.ErrNoChildrenForEphemerals
	}
	zxid := c.nextZxidLocked()
	parent.creates, parent.pzxid = parent.creates+1, zxid
	if !c.zookeeper {
		parent.creates = min(parent.creates, locknode.MaxSequence)
	}
	c.nodes[path] = &fakeNode{
		czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: time.Now().UnixMilli(), mtime: time.Now().UnixMilli(), owner: owner, data: data,
		container: flags == zk.FlagContainer,
	}
	c.fireLocked(path, zk.EventNodeCreated)
	c.fireLocked(dir, zk.EventNodeChildrenChanged)
	return path, nil
}

func (c *fakeCluster) deleteLocked(path string, version int32) error {
	n := c.nodes[path]
	if n == nil {
		return zk.ErrNoNode
	}
	if version >= 0 && version != n.version {
		return zk.ErrBadVersion
	}
	for p := range c.nodes {
		if strings.HasPrefix(p, path+"/") {
			return zk.ErrNotEmpty
		}
	}
	dir, _ := split(path)
	c.nodes[dir].pzxid = c.nextZxidLocked()
	delete(c.nodes, path)
	c.fireLocked(path, zk.EventNodeDeleted)
	c.fireLocked(dir, zk.EventNodeChildrenChanged)
	return nil
}

func (c *fakeCluster) setLocked(path string, data []byte, version int32) error {
	if err := c.checkLocked(path, version); err != nil {
		return err
	}
	n := c.nodes[path]
	n.data, n.mzxid, n.version, n.mtime = data, c.nextZxidLocked(), n.version+1, time.Now().UnixMilli()
	c.fireLocked(path, zk.EventNodeDataChanged)
	return nil
}

func (c *fakeCluster) checkLocked(path string, version int32) error {
	n := c.nodes[path]
	if n == nil {
		return zk.ErrNoNode
	}
	if version >= 0 && version != n.version {
		return zk.ErrBadVersion
	}
	return nil
}

// multiLocked does all operations, or none.
func (c *fakeCluster) multiLocked(ops []any, owner int64) (results []zk.MultiResponse, err error) {
	before, zxid := make(map[string]*fakeNode, len(c.nodes)), c.zxid
	for p, n := range c.nodes {
		before[p] = new(*n)
	}
	c.zxid, c.multi, c.events = zxid+1, true, nil
	for _, op := range ops {
		var r zk.MultiResponse
		switch op := op.(type) {
		case *zk.CreateRequest:
			r.String, err = c.createLocked(op.Path, op.Data, op.Flags, owner)
		case *zk.SetDataRequest:
			if err = c.setLocked(op.Path, op.Data, op.Version); err == nil {
				r.Stat = c.statLocked(op.Path)
			}
		case *zk.DeleteRequest:
			err = c.deleteLocked(op.Path, op.Version)
		case *zk.CheckVersionRequest:
			err = c.checkLocked(op.Path, op.Version)
		default:
			err = fmt.Errorf("unknown operation type %T", op)
		}
		if err != nil {
			c.nodes, c.zxid, c.multi, c.events = before, zxid, false, nil
			// The successful operations are undone and have no error of their own.
			clear(results)
			results = append(results, zk.MultiResponse{Error: err})
			for len(results) < len(ops) {
				results = append(results, zk.MultiResponse{Error: errNotReached})
			}
			return results, err
		}
		results = append(results, r)
	}
	c.multi = false
	for _, fire := range c.events {
		fire()
	}
	return results, nil
}

// errNotReached is the answer to the operations behind one that fails.
var errNotReached = errors.New("unknown error: -2")

func (c *fakeCluster) statLocked(path string) *zk.Stat {
	n := c.nodes[path]
	s := &zk.Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: n.pzxid, Version: n.version, Ctime: n.ctime, Mtime: n.mtime,
		EphemeralOwner: n.owner, DataLength: int32(len(n.data)), Cversion: int32(n.creates),
	}
	for p := range c.nodes {
		if dir, _ := split(p); dir == path && p != "" {
			s.NumChildren++
		}
	}
	return s
}

func (c *fakeCluster) fireLocked(path string, typ zk.EventType) {
	if c.multi {
		c.events = append(c.events, func() { c.fireLocked(path, typ) })
		return
	}
	if c.fired != nil {
		c.fired(path, typ)
	}
	for _, conn := range c.conns {
		if conn.state == zk.StateHasSession {
			conn.fireLocked(path, typ)
		}
	}
}

func (c *fakeCluster) endSessionLocked(id int64) {
	for _, p := range slices.Sorted(maps.Keys(c.nodes)) {
		if n := c.nodes[p]; n != nil && n.owner == id {
			c.deleteLocked(p, -1)
		}
	}
}

// with runs f with the mutex held.
func (c *fakeCluster) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// delete deletes a node, as an operator would.
func (c *fakeCluster) delete(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleteLocked(path, -1)
}

// fault is the fate of one call.
type fault int

const (
	faultNone      fault = iota
	faultCutBefore       // the connection breaks, the request is lost
	faultCutAfter        // the connection breaks, the reply is lost
	// the connection breaks; the request arrives later, when the session's next write does
	faultCutLate
	faultNetError    // as faultCutBefore, with the error that a socket gives
	faultExpire      // the session ends before the request arrives
	faultExpireAfter // the request has its effect, then the session ends
	faultStrange     // refused with an error that nobody knows
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
	watches map[fakeWatchKey][]fakeWatch
	late    []func() // requests under way on an older connection
}

// fakeWatchKey: as go-zookeeper does, a path is watched for its data, for coming
// to exist, or for its children.
type fakeWatchKey struct {
	path string
	kind watchKind
}

type watchKind int

const (
	watchData watchKind = iota
	watchExist
	watchChild
)

// fires tells which watches an event is for.
var fires = map[zk.EventType][]watchKind{
	zk.EventNodeCreated:         {watchExist},
	zk.EventNodeDataChanged:     {watchExist, watchData},
	zk.EventNodeChildrenChanged: {watchChild},
	zk.EventNodeDeleted:         {watchExist, watchData, watchChild},
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
		watches:   make(map[fakeWatchKey][]fakeWatch),
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
	for _, key := range f.watchedLocked() { // setWatches
		n := f.c.nodes[key.path]
		zxid := int64(0)
		if w := f.watches[key]; len(w) > 0 { // else it fired just now
			zxid = w[0].zxid
		}
		switch {
		case zxid == 0:
		case key.kind == watchExist && n != nil:
			f.fireLocked(key.path, zk.EventNodeCreated)
		case key.kind == watchExist:
		case n == nil:
			f.fireLocked(key.path, zk.EventNodeDeleted)
		case key.kind == watchData && n.mzxid > zxid:
			f.fireLocked(key.path, zk.EventNodeDataChanged)
		case key.kind == watchChild && n.pzxid > zxid:
			f.fireLocked(key.path, zk.EventNodeChildrenChanged)
		}
	}
}

// watchedLocked lists the watches, in an order that does not change.
func (f *fakeConn) watchedLocked() []fakeWatchKey {
	return slices.SortedFunc(maps.Keys(f.watches), func(a, b fakeWatchKey) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.kind, b.kind))
	})
}

func (f *fakeConn) setStateLocked(s zk.State) {
	f.state = s
	select {
	case f.events <- zk.Event{Type: zk.EventSession, State: s}:
	default:
	}
}

func (f *fakeConn) fireLocked(path string, typ zk.EventType) {
	for _, kind := range fires[typ] {
		key := fakeWatchKey{path, kind}
		for _, w := range f.watches[key] {
			w.ch <- zk.Event{Type: typ, State: zk.StateSyncConnected, Path: path}
			close(w.ch)
		}
		delete(f.watches, key)
	}
}

// watchLocked adds a watch.
func (f *fakeConn) watchLocked(path string, kind watchKind) <-chan zk.Event {
	ch, key := make(chan zk.Event, 1), fakeWatchKey{path, kind}
	f.watches[key] = append(f.watches[key], fakeWatch{ch, f.c.zxid})
	return ch
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
	for _, key := range f.watchedLocked() {
		for _, w := range f.watches[key] {
			w.ch <- zk.Event{Type: zk.EventNotWatching, State: zk.StateDisconnected, Path: key.path, Err: err}
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

// netError looks like an error of net.Conn.Write.
type netError struct{}

func (*netError) Error() string   { return "write tcp: broken pipe" }
func (*netError) Timeout() bool   { return false }
func (*netError) Temporary() bool { return false }

func (f *fakeConn) Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	var node string // see Set
	err := f.do("create", path, true, func() (err error) {
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
	return f.do("delete", path, true, func() error { return f.c.deleteLocked(path, version) })
}

func (f *fakeConn) Set(path string, data []byte, version int32) (*zk.Stat, error) {
	var stat *zk.Stat // not a result: a request may arrive after its caller has returned
	err := f.do("set", path, true, func() error {
		if err := f.c.setLocked(path, data, version); err != nil {
			return err
		}
		stat = f.c.statLocked(path)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stat, nil
}

// Multi is a call with the path of its first operation; without one it is called nothing.
func (f *fakeConn) Multi(ops ...any) ([]zk.MultiResponse, error) {
	var results []zk.MultiResponse // see Set
	name, path := "nothing", ""
	for _, op := range ops[:min(1, len(ops))] {
		name = "multi"
		switch op := op.(type) {
		case *zk.CreateRequest:
			path = op.Path
		case *zk.SetDataRequest:
			path = op.Path
		case *zk.DeleteRequest:
			path = op.Path
		case *zk.CheckVersionRequest:
			path = op.Path
		}
	}
	err := f.do(name, path, true, func() (err error) {
		results, err = f.c.multiLocked(ops, f.id)
		return err
	})
	if fateOf(err) > fateRefused { // see Set
		return nil, err
	}
	return results, err
}

func (f *fakeConn) Exists(path string) (exists bool, stat *zk.Stat, err error) {
	exists, stat, _, err = f.exists(path, false)
	return exists, stat, err
}

func (f *fakeConn) ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error) {
	return f.exists(path, true)
}

func (f *fakeConn) exists(path string, watch bool) (exists bool, stat *zk.Stat, events <-chan zk.Event, err error) {
	err = f.do("exists", path, false, func() error {
		exists, stat = f.c.nodes[path] != nil, &zk.Stat{}
		kind := watchExist
		if exists {
			stat, kind = f.c.statLocked(path), watchData
		}
		if watch {
			events = f.watchLocked(path, kind)
		}
		return nil
	})
	if err != nil {
		return false, nil, nil, err
	}
	return exists, stat, events, nil
}

func (f *fakeConn) Children(path string) ([]string, *zk.Stat, error) {
	names, stat, _, err := f.children(path, false)
	return names, stat, err
}

func (f *fakeConn) ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error) {
	return f.children(path, true)
}

func (f *fakeConn) children(path string, watch bool) (names []string, stat *zk.Stat, events <-chan zk.Event, err error) {
	err = f.do("children", path, false, func() error {
		path := strings.TrimSuffix(path, "/") // the root's name is empty here
		if f.c.nodes[path] == nil {
			return zk.ErrNoNode
		}
		for p := range f.c.nodes { // in the order of a map, on purpose
			if dir, name := split(p); dir == path && p != "" {
				names = append(names, name)
			}
		}
		stat = f.c.statLocked(path)
		if watch {
			events = f.watchLocked(path, watchChild)
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return names, stat, events, nil
}

func (f *fakeConn) Get(path string) ([]byte, *zk.Stat, error) {
	data, stat, _, err := f.get(path, false)
	return data, stat, err
}

func (f *fakeConn) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	return f.get(path, true)
}

func (f *fakeConn) get(path string, watch bool) (data []byte, stat *zk.Stat, events <-chan zk.Event, err error) {
	err = f.do("get", path, false, func() error {
		n := f.c.nodes[path]
		if n == nil {
			return zk.ErrNoNode
		}
		data, stat = n.data, f.c.statLocked(path)
		if watch {
			events = f.watchLocked(path, watchData)
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return data, stat, events, nil
}

func (f *fakeConn) Sync(path string) (string, error) {
	answer := path
	if path == syncQuestion && !f.c.zookeeper {
		answer = syncLinearizable
	}
	return answer, f.do("sync", path, false, func() error { return nil })
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
