package jepsen

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Clients that hold locks at a ZooKeeper do not notice, but for a pause, that all of its servers
// end and lockkeeper starts on their directories and ports: each has its session and its lock, who
// waits goes on waiting, acknowledged updates are there, no node and no field of a Stat is another
// one, and watches fire, also for changes while their client was away. Of three servers one had
// ended before, and its directory lacks later updates.
func TestImport(t *testing.T) {
	t.Run("1, SIGTERM", func(t *testing.T) { testImport(t, 1, func(l *lab, m *Member) error { return m.Stop(l.ctx) }) })
	t.Run("3, SIGKILL", func(t *testing.T) { testImport(t, 3, func(_ *lab, m *Member) error { return m.Kill() }) })
}

// movedRecipes are held and waited for while the servers are replaced: library, recipe of the
// holder, recipe of who waits.
var movedRecipes = [][3]string{
	{"kazoo", "lock", "lock"}, {"kazoo", "write", "read"}, {"kazoo", "semaphore", "semaphore"}, {"kazoo", "election", "election"},
	{"curator", "mutex", "mutex"}, {"curator", "write", "read"}, {"curator", "semaphore", "semaphore"}, {"curator", "latch", "latch"},
	{"gozk", "mutex", "mutex"}, {"gozk", "zklock", "zklock"},
}

// movedLock is one of them.
type movedLock struct {
	handle         string // and the name of the thread
	holder, waiter *Worker
	waits          <-chan Reply
}

// holdAll has a worker of each library hold all of its recipes, and another one wait for them.
func (l *lab) holdAll(c *zk.Conn) (locks []movedLock) {
	l.t.Helper()
	workers := map[string][]*Worker{}
	for _, r := range movedRecipes {
		if workers[r[0]] == nil {
			workers[r[0]] = l.start(r[0], 2)
		}
		w := workers[r[0]]
		m := movedLock{handle: r[1], holder: w[0], waiter: w[1]}
		path := "/" + r[0] + "-" + r[1]
		for i, one := range w {
			words := []string{"open", m.handle, r[1+i], path}
			if r[1] == "semaphore" {
				words = append(words, "leases=1")
			}
			l.mustDo(one, "main", words...)
		}
		free := len(l.ephemeralsSeen(c))
		l.mustDo(m.holder, m.handle, "acquire", m.handle, "-1")
		m.waits = l.later(m.waiter, m.handle, "acquire", m.handle, "-1")
		l.waitFor("queued", func() string { // one node of the holder, one of who waits
			if found := len(l.ephemeralsSeen(c)) - free; found < 2 {
				return fmt.Sprint(path, " has ", found, " nodes")
			}
			return "queued"
		})
		locks = append(locks, m)
	}
	return locks
}

// giveOn has each holder release, after which who waited holds, and not before.
func (l *lab) giveOn(locks []movedLock) {
	l.t.Helper()
	for _, m := range locks {
		select {
		case r := <-m.waits:
			l.t.Errorf("%s: who waits for %s got %s while another one holds it", m.waiter.name, m.handle, r)
			continue
		default:
		}
		l.mustDo(m.holder, m.handle, "release", m.handle)
		if r := <-m.waits; r.Kind != OK {
			l.t.Errorf("%s: who waits for %s got %s", m.waiter.name, m.handle, r)
		}
	}
}

// gatedClient is a client in the test that connects to the cluster when it is let, and only then.
func (l *lab) gatedClient() (c *zk.Conn, gate *atomic.Bool) {
	l.t.Helper()
	gate = new(atomic.Bool)
	gate.Store(true)
	c, _, err := zk.Connect(strings.Split(l.cluster.Servers(), ","), l.sessionTimeout, zk.WithLogger(silentLogger{}),
		zk.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
			if !gate.Load() {
				return nil, errors.New("not yet")
			}
			return net.DialTimeout(network, addr, timeout)
		}))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	return c, gate
}

func testImport(t *testing.T, members int, end func(*lab, *Member) error) {
	ours := findTarget(t, "lockkeeper")
	l := newLabWith(t, 3*time.Minute, ClusterConfig{Target: findTarget(t, "zookeeper"), Members: members,
		TickTime: time.Second, Extra: []string{"import=auto", "snapCount=100", "sessionPasswords=zookeeper"}})
	l.sessionTimeout = 18 * time.Second
	c := l.connect()
	locks := l.holdAll(c)
	session := c.SessionID()
	last := l.cluster.Members()[members-1]
	if members > 1 {
		if err := last.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := Poll(l.ctx, 10*time.Millisecond, func() error { // it may have led
			_, err := c.Create("/gone", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 { // more than a snapshot's worth
		acl := zk.WorldACL(zk.PermAll)
		if i%10 == 0 {
			acl = append(zk.DigestACL(zk.PermRead, "user", fmt.Sprint(i)), acl...)
		}
		if _, err := c.Create(fmt.Sprintf("/n%d", i), fmt.Append(nil, i), 0, acl); err != nil {
			t.Fatal(err)
		}
	}
	_, _, event, err := c.GetW("/n1")
	if err != nil {
		t.Fatal(err)
	}
	away, gate := l.gatedClient()
	_, _, missed, err := away.GetW("/n2")
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, c, "/")
	ledger := l.startScribe("/scribe")
	l.writes(ledger, 20)
	gate.Store(false)
	for _, m := range l.cluster.Members() { // under load
		if m.Running() {
			if err := end(l, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	down := time.Now()
	for _, m := range l.cluster.Members() {
		m.Use(ours)
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := Poll(l.ctx, 10*time.Millisecond, func() error {
		_, err := c.Set("/n0", []byte("first"), -1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures: %d members: %v from the end of the last ZooKeeper to the first write", members, time.Since(down))
	if c.SessionID() != session {
		t.Errorf("the session was %x and is %x", session, c.SessionID())
	}
	alone, _, err := zk.Connect([]string{last.ClientAddr}, l.sessionTimeout, zk.WithLogger(silentLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if _, err := alone.Sync("/"); err != nil {
		t.Fatal(err)
	}
	l.sameTree("lockkeeper", before, tree(t, alone, "/"))
	for _, path := range []string{"/n1", "/n2"} {
		if _, err := c.Set(path, []byte("watched"), -1); err != nil {
			t.Fatal(err)
		}
	}
	gate.Store(true)
	for path, event := range map[string]<-chan zk.Event{"/n1": event, "/n2": missed} {
		select {
		case e := <-event:
			if e.Type != zk.EventNodeDataChanged || e.Path != path {
				t.Errorf("the watch of %s was told %+v", path, e)
			}
		case <-l.ctx.Done():
			t.Fatalf("the watch of %s was told nothing", path)
		}
	}
	l.giveOn(locks)
	ledger.end(l)
	alone.Close()
	l.goBack(c)
	for _, m := range locks { // they hold now, at ZooKeeper
		l.mustDo(m.waiter, m.handle, "release", m.handle)
	}
}

// sameTree compares the tree before with the present one, but for changes in between. kazoo's
// semaphore is among them: who waits for it holds a lock, and gives it up and queues anew when a
// connection breaks under its request, so when two servers end one after the other.
func (l *lab) sameTree(where string, before, after map[string]seenNode) {
	l.t.Helper()
	changing := func(path string) bool {
		return path == "/n0" || path == "/zookeeper/config" || path == "/" || strings.HasPrefix(path, "/scribe") ||
			strings.HasPrefix(path, "/kazoo-semaphore-__lock__")
	}
	for _, nodes := range []map[string]seenNode{before, after} {
		maps.DeleteFunc(nodes, func(path string, _ seenNode) bool { return changing(path) })
	}
	for path, was := range before {
		if is, ok := after[path]; !ok || !reflect.DeepEqual(is, was) {
			l.t.Errorf("at %s %s is %+v, and was %+v", where, path, is, was)
		}
	}
	if len(after) != len(before) {
		l.t.Errorf("at %s there are %d nodes, and were %d", where, len(after), len(before))
	}
}

// goBack has ZooKeeper start on lockkeeper's exports, and each server of it serve, with all that
// was acknowledged while the members stopped one after the other. Sessions go on, and with them the
// locks.
func (l *lab) goBack(c *zk.Conn) {
	t, session := l.t, c.SessionID()
	zookeeper := findTarget(t, "zookeeper")
	// A member that lags behind shows an older tree.
	if _, err := l.cluster.AwaitAgreement(l.ctx); err != nil {
		t.Fatal(err)
	}
	before := tree(t, c, "/")
	ledger := l.startScribe("/scribe-back")
	l.writes(ledger, 20)
	for _, m := range l.cluster.Members() { // under load
		if err := m.Stop(l.ctx); err != nil {
			t.Fatal(err)
		}
	}
	exports := make([]exported, len(l.cluster.Members()))
	for i, m := range l.cluster.Members() {
		exports[i] = l.export(m)
	}
	slices.SortFunc(exports, func(a, b exported) int { // the most recent first (docs/migrate.md)
		return cmp.Or(cmp.Compare(b.epoch, a.epoch), cmp.Compare(b.zxid, a.zxid))
	})
	const elects = "QuorumPeer - LOOKING"
	for i, e := range exports {
		was, err := os.ReadFile(e.of.LogPath())
		e.of.Use(zookeeper)
		if err := errors.Join(err, e.of.Start()); err != nil {
			t.Fatal(err)
		}
		if i == 0 && len(exports) > 1 {
			l.logged(e.of, elects, strings.Count(string(was), elects)+1)
		}
	}
	if err := Poll(l.ctx, 10*time.Millisecond, func() error {
		_, err := c.Set("/n0", []byte("back"), -1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if c.SessionID() != session {
		t.Errorf("at ZooKeeper the session is %x, and was %x", c.SessionID(), session)
	}
	ledger.end(l)
	for _, m := range l.cluster.Members() { // a majority would do for c
		one := openClient(t, l.sessionTimeout, m.ClientAddr)
		if err := one.AwaitSession(l.ctx); err != nil {
			t.Fatalf("ZooKeeper at %s: %v", m, err)
		}
		ledger.check(l, one.Conn)
		l.sameTree(fmt.Sprint("ZooKeeper at ", m), before, tree(t, one.Conn, "/"))
	}
}

// exported is what a member has exported.
type exported struct {
	of          *Member
	zxid, epoch uint64
}

// export has a stopped member's data replaced by its export.
func (l *lab) export(m *Member) exported {
	t := l.t
	t.Helper()
	dir := filepath.Join(filepath.Dir(m.DataDir()), "exported")
	cmd := findTarget(t, "lockkeeper").Tool("export", filepath.Join(filepath.Dir(m.DataDir()), "zoo.cfg"), dir)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || strings.Contains(string(out), "not in it") {
		t.Fatal(err)
	}
	e := exported{of: m}
	_, printed, _ := strings.Cut(string(out), "starts with: ")
	if _, err := fmt.Sscanf(printed, "zxid 0x%x, epoch %d,", &e.zxid, &e.epoch); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(m.DataDir()), os.Rename(dir, m.DataDir())); err != nil {
		t.Fatal(err)
	}
	return e
}

// seenNode is all of a node that a client can see.
type seenNode struct {
	stat zk.Stat
	data []byte
	acl  []zk.ACL
}

// tree is each node at and below a path.
func tree(t *testing.T, c *zk.Conn, name string) map[string]seenNode {
	t.Helper()
	children, _, err := c.Children(name)
	if err != nil {
		t.Fatal(name, err)
	}
	data, st, err := c.Get(name)
	if err != nil {
		t.Fatal(name, err)
	}
	acl, _, err := c.GetACL(name)
	if err != nil {
		t.Fatal(name, err)
	}
	all := map[string]seenNode{name: {*st, data, acl}}
	for _, child := range children {
		maps.Copy(all, tree(t, c, path.Join(name, child)))
	}
	return all
}
