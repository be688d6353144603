package jepsen

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Clients that hold locks at a ZooKeeper do not notice, but for a pause, that all of its servers
// are killed and lockkeeper starts on their directories and ports: each has its session and its
// lock, who waits goes on waiting, no node and no field of a Stat is another one, and watches fire.
// Of three servers one had ended before, and its directory lacks what came after.
func TestImport(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) { testImport(t, members) })
	}
}

func testImport(t *testing.T, members int) {
	ours := findTarget(t, "lockkeeper")
	l := newLabWith(t, 3*time.Minute, ClusterConfig{Target: findTarget(t, "zookeeper"), Members: members,
		TickTime: time.Second, Extra: []string{"import=auto", "snapCount=100"}})
	l.sessionTimeout = 18 * time.Second
	holders, waiters := map[*Worker]string{}, map[string]<-chan Reply{}
	for library, recipe := range map[string]string{"kazoo": "lock", "curator": "mutex", "gozk": "mutex"} {
		w := l.start(library, 2)
		for _, one := range w {
			l.mustDo(one, "main", "open", "it", recipe, "/lock-"+library)
		}
		l.mustDo(w[0], "main", "acquire", "it", "-1")
		holders[w[0]] = library
		waiters[library] = l.later(w[1], "main", "acquire", "it", "-1")
		l.awaitQueue("/lock-"+library, 2)
	}
	c := l.connect()
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
		if _, err := c.Create(fmt.Sprintf("/n%d", i), []byte("data"), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	_, _, event, err := c.GetW("/n1")
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, c, "/")
	for _, m := range l.cluster.Members() {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
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
	after := tree(t, alone, "/")
	for _, changed := range []string{"/n0", "/zookeeper/config"} {
		delete(before, changed)
		delete(after, changed)
	}
	for name, st := range before {
		if after[name] != st {
			t.Errorf("%s: was %+v, is %+v", name, st, after[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("there were %d nodes, and are %d", len(before), len(after))
	}
	if _, err := c.Set("/n1", []byte("watched"), -1); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-event:
		if e.Type != zk.EventNodeDataChanged {
			t.Errorf("the watch was told %+v", e)
		}
	case <-l.ctx.Done():
		t.Error("the watch was told nothing")
	}
	for w, library := range holders {
		select {
		case r := <-waiters[library]:
			t.Errorf("%s: who waits got %s while another one holds the lock", library, r)
		default:
		}
		l.mustDo(w, "main", "release", "it")
		if r := <-waiters[library]; r.Kind != OK {
			t.Errorf("%s: who waits got %s", library, r)
		}
	}
	alone.Close()
	l.goBack(c)
}

// goBack has ZooKeeper start on what lockkeeper exports. Its sessions were ZooKeeper's before, so
// they go on, and with them the locks.
func (l *lab) goBack(c *zk.Conn) {
	t, session := l.t, c.SessionID()
	zookeeper := findTarget(t, "zookeeper")
	before := tree(t, c, "/")
	for _, m := range l.cluster.Members() {
		if err := m.Stop(l.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range l.cluster.Members() {
		exported := filepath.Join(filepath.Dir(m.DataDir()), "exported")
		cmd := findTarget(t, "lockkeeper").Tool("export", filepath.Join(filepath.Dir(m.DataDir()), "zoo.cfg"), exported)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil || strings.Contains(string(out), "not in it") {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(m.DataDir()), os.Rename(exported, m.DataDir())); err != nil {
			t.Fatal(err)
		}
		m.Use(zookeeper)
		if err := m.Start(); err != nil {
			t.Fatal(err)
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
	after := tree(t, c, "/")
	for name, st := range before {
		if after[name] != st && name != "/n0" && name != "/zookeeper/config" {
			t.Errorf("at ZooKeeper %s is %+v, and was %+v", name, after[name], st)
		}
	}
	if len(after) != len(before) {
		t.Errorf("at ZooKeeper there are %d nodes, and were %d", len(after), len(before))
	}
}

// tree is the Stat of each node at and below a path.
func tree(t *testing.T, c *zk.Conn, name string) map[string]zk.Stat {
	t.Helper()
	children, st, err := c.Children(name)
	if err != nil {
		t.Fatal(name, err)
	}
	all := map[string]zk.Stat{name: *st}
	for _, child := range children {
		for name, st := range tree(t, c, path.Join(name, child)) {
			all[name] = st
		}
	}
	return all
}
