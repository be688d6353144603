package jepsen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

var (
	targetFlag = flag.String("jepsen.target", "lockkeeper", "what to test: lockkeeper, or zookeeper to compare")
	keepFlag   = flag.Bool("jepsen.keep", false, "keep the logs and histories also of tests that pass")
	longFlag   = flag.Bool("jepsen.long", false, "cut networks more often, and under ZooKeeper too")
)

// tools are the programs that the tests start, built once for all of them.
var tools *Toolbox

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanDir); dir != "" {
		startOrphan(dir)
	}
	if addr := os.Getenv(testHost); addr != "" {
		beHost(addr)
	}
	flag.Parse()
	os.Exit(Main(m, &tools, Race))
}

// testTimeout bounds every single test, so that one that hangs fails with its logs and not with go
// test's own timeout.
func testTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// lab is a running cluster with client workers and one history.
type lab struct {
	t              *testing.T
	ctx            context.Context
	dir            string
	cluster        *Cluster
	history        *History
	sessionTimeout time.Duration
	workers        []*Worker
}

// newLab starts a cluster of the -jepsen.target on the loopback. Its settings are the ones that
// ZooKeeper's documentation suggests, and that people have; only that sessions may be shorter than
// two ticks.
func newLab(t *testing.T, members int) *lab {
	t.Helper()
	return newLabWith(t, time.Minute, ClusterConfig{
		Target: findTarget(t, *targetFlag), Members: members,
		TickTime: 2 * time.Second, Extra: []string{"minSessionTimeout=1000"},
	})
}

// findTarget gets a server software by its name, or ends the test.
func findTarget(t *testing.T, name string) Target {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	var target Target
	var err error
	switch name {
	case "lockkeeper":
		target, err = tools.Lockkeeper()
	case "zookeeper":
		target, err = ZooKeeper()
	default:
		err = fmt.Errorf("-jepsen.target: there is no %q", name)
	}
	Need(t, err)
	return target
}

// newLabWith starts a cluster; its directory is up to the lab.
func newLabWith(t *testing.T, patience time.Duration, cfg ClusterConfig) *lab {
	t.Helper()
	return newLabIn(t, KeptDir(t, *keepFlag), patience, cfg)
}

// newLabIn is newLabWith in a directory that the test has made.
func newLabIn(t *testing.T, dir string, patience time.Duration, cfg ClusterConfig) *lab {
	t.Helper()
	l := &lab{t: t, ctx: testTimeout(t, patience), dir: dir, history: NewHistory(), sessionTimeout: 6 * time.Second}
	var err error
	cfg.Dir = l.dir
	l.cluster, err = StartCluster(l.ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// close ends every process, and prints their output if the test failed.
func (l *lab) close() {
	complaints, err := l.cluster.Complaints()
	if err != nil {
		l.t.Error(err)
	}
	for _, w := range l.workers {
		if err := w.Kill(); err != nil {
			l.t.Error(err)
		}
		found, err := w.Complaints()
		if err != nil {
			l.t.Error(err)
		}
		complaints = append(complaints, found...)
	}
	for _, c := range complaints {
		l.t.Error(c)
	}
	if err := l.cluster.Close(); err != nil {
		l.t.Error(err)
	}
	if l.t.Failed() || *keepFlag {
		l.writeHistory()
	}
	if !l.t.Failed() {
		return
	}
	l.t.Logf("the end of the members' logs:\n%s", l.cluster.Logs())
	for _, w := range l.workers {
		l.t.Logf("the end of the log of %s:\n%s", w.name, w.process.LogTail(4<<10))
	}
	ops := l.history.Ops()
	var last strings.Builder
	for _, op := range ops[max(0, len(ops)-60):] {
		fmt.Fprintln(&last, op)
	}
	l.t.Logf("the end of the history:\n%s", last.String())
}

// writeHistory leaves the whole history among the logs.
func (l *lab) writeHistory() {
	file, err := os.Create(filepath.Join(l.dir, "history.jsonl"))
	if err == nil {
		err = errors.Join(WriteOps(file, l.history.Ops()), file.Close())
	}
	if err != nil {
		l.t.Error(err)
	}
}

// client gets a client library from the toolbox, or ends the test.
func client(t *testing.T, name string) Client {
	t.Helper()
	var c Client
	var err error
	switch name {
	case "kazoo":
		c, err = tools.Kazoo()
	case "curator":
		c, err = tools.Curator()
	case "gozk":
		c, err = tools.Gozk()
	default:
		t.Fatalf("no client %q", name)
	}
	Need(t, err)
	return c
}

// start starts n workers of a client library. They are called as the library with a number.
func (l *lab) start(library string, n int) []*Worker {
	l.t.Helper()
	return l.startAt(l.cluster.Servers(), library, n)
}

// startAt starts workers that know only some of the members.
func (l *lab) startAt(servers, library string, n int) []*Worker {
	l.t.Helper()
	c := client(l.t, library)
	var started []*Worker
	for range n {
		w, err := StartWorker(l.ctx, WorkerConfig{
			Name:           fmt.Sprintf("%s%d", library, len(l.workers)+1),
			Client:         c,
			Servers:        servers,
			SessionTimeout: l.sessionTimeout,
			Dir:            l.dir,
			History:        l.history,
		})
		if err != nil {
			l.t.Fatal(err)
		}
		l.workers = append(l.workers, w)
		started = append(started, w)
	}
	return started
}

// stopWorkers has all workers close their sessions and end.
func (l *lab) stopWorkers() {
	l.t.Helper()
	for _, w := range l.workers {
		if err := w.Close(l.ctx); err != nil {
			l.t.Error(err)
		}
	}
}

// do has a worker run a command that must be answered.
func (l *lab) do(w *Worker, thread string, words ...string) Reply {
	l.t.Helper()
	reply, err := w.Do(l.ctx, thread, words...)
	if err != nil {
		l.t.Fatal(err)
	}
	return reply
}

// mustDo has a worker run a command that must succeed, and returns the result.
func (l *lab) mustDo(w *Worker, thread string, words ...string) string {
	l.t.Helper()
	reply := l.do(w, thread, words...)
	if reply.Kind != OK {
		l.t.Fatalf("%s: %s: %s", w.name, strings.Join(words, " "), reply)
	}
	return reply.Text
}

// connect makes a client in the test itself, to look at the tree.
func (l *lab) connect() *zk.Conn {
	l.t.Helper()
	servers := strings.Split(l.cluster.Servers(), ",")
	client := openClient(l.t, l.sessionTimeout, servers...)
	if err := client.AwaitSession(l.ctx); err != nil {
		l.t.Fatal(err)
	}
	return client.Conn
}

// openClient starts a client in the test itself, which closes it at its end.
func openClient(t *testing.T, timeout time.Duration, servers ...string) *GoClient {
	t.Helper()
	client, _, err := OpenGoClient(GoClientConfig{Servers: servers, SessionTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// checkNothingLeft fails the test for every ephemeral node in the tree. It is for when all workers
// have closed their sessions.
func (l *lab) checkNothingLeft() {
	l.t.Helper()
	for _, left := range l.ephemerals() {
		l.t.Errorf("left behind: %s", left)
	}
}

// ephemerals are all ephemeral nodes in the tree, with their sessions.
func (l *lab) ephemerals() []string {
	l.t.Helper()
	return l.ephemeralsSeen(l.connect())
}

// ephemeralsSeen is ephemerals, over a connection.
func (l *lab) ephemeralsSeen(conn *zk.Conn) []string {
	l.t.Helper()
	if _, err := conn.Sync("/"); err != nil {
		l.t.Fatal(err)
	}
	var found []string
	var walk func(path string)
	walk = func(path string) {
		children, stat, err := conn.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return // a container that the server has just removed
		}
		if err != nil {
			l.t.Fatalf("children of %s: %v", path, err)
		}
		if stat.EphemeralOwner != 0 {
			found = append(found, fmt.Sprintf("%s of session 0x%x", path, uint64(stat.EphemeralOwner)))
		}
		slices.Sort(children)
		for _, child := range children {
			walk(strings.TrimSuffix(path, "/") + "/" + child)
		}
	}
	walk("/")
	return found
}
