package jepsen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

var updateMBFlag = flag.Int("jepsen.update", 0,
	"MB that are written while each member of TestRollingUpdate is down; 0 means a few. With 400, a member that comes back needs about 10 s. "+
		"Requests longer than 100 ms are then errors: run it on a machine that does nothing else, with TMPDIR in memory, "+
		"because three members on one disk delay each other's fsync when they write snapshots")

const (
	updateClients = 6
	updateNode    = 100 << 10 // bytes of a node of the bulk
	// updateLatency is the longest that a request may take of a client that need not move.
	updateLatency = 100 * time.Millisecond
	// busyLatency is the same where other tests run at the same time.
	busyLatency = 5 * time.Second
)

// TestRollingUpdate restarts members as a StatefulSet does: it sends one SIGTERM, waits for the end
// of the process, starts it, and goes on to the next as soon as GET /ready says 200, while clients
// hold ephemeral nodes and write, and each member has much to fetch when it comes back. The members
// run with -drain. No session is lost, no client is disconnected from a member that stays, and its
// requests take no longer than usual.
func TestRollingUpdate(t *testing.T) {
	target := findTarget(t, "lockkeeper")
	drains := target
	drains.command = func(file string) *exec.Cmd { return target.Tool("serve", "-drain", "60s", file) }
	bulk, limit := 4, busyLatency
	if *updateMBFlag > 0 {
		bulk, limit = *updateMBFlag, updateLatency
	}
	l := newLabWith(t, 2*time.Minute+time.Duration(*updateMBFlag)*time.Second, ClusterConfig{Target: drains, Members: 3,
		TickTime: 2 * time.Second, Admin: true, Extra: []string{"minSessionTimeout=1000"}})
	u := &rollingUpdate{lab: l}
	u.writer = u.connect(0)
	defer u.writer.conn.Close()
	if _, err := u.writer.conn.Create("/update", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	u.write(bulk)
	for i := range updateClients {
		c := u.connect(i + 1)
		defer c.conn.Close()
		c.hold()
		u.clients = append(u.clients, c)
		u.wg.Go(c.work)
	}
	for _, m := range slices.Backward(l.cluster.Members()) { // as a StatefulSet does
		u.restart(m, bulk)
	}
	u.stop.Store(true)
	u.wg.Wait()
	longest, requests, moved := time.Duration(0), 0, int32(0)
	for _, c := range u.clients {
		c.check()
		longest, requests, moved = max(longest, c.longest), requests+c.requests, moved+c.moved.Load()
	}
	t.Logf("%d requests of clients that stayed, the longest took %v; %d moves of clients", requests, longest, moved)
	if longest > limit {
		t.Errorf("a request of a client that stayed took %v, at most %v is right", longest, limit)
	}
	if requests == 0 || moved == 0 {
		t.Error("no client stayed, or none moved")
	}
}

// rollingUpdate is the cluster and its clients.
type rollingUpdate struct {
	*lab
	writer  *updateClient // of the bulk
	clients []*updateClient
	// going is the client address of the member that is being restarted.
	going atomic.Pointer[string]
	stop  atomic.Bool
	wg    sync.WaitGroup
}

// updateClient is a client that knows all members.
type updateClient struct {
	u      *rollingUpdate
	path   string
	conn   *zk.Conn
	server atomic.Pointer[string] // that it has a session with; nil: with none
	moved  atomic.Int32
	held   *zk.Stat // of its ephemeral node

	longest  time.Duration
	requests int
}

func (u *rollingUpdate) connect(i int) *updateClient {
	u.t.Helper()
	var servers []string
	for _, m := range u.cluster.Members() {
		servers = append(servers, m.ClientAddr)
	}
	conn, events, err := zk.Connect(servers, 6*time.Second, zk.WithLogger(silentLogger{}))
	if err != nil {
		u.t.Fatal(err)
	}
	c := &updateClient{u: u, path: fmt.Sprintf("/update/client-%d", i), conn: conn}
	first := make(chan struct{})
	go c.follow(events, sync.OnceFunc(func() { close(first) }))
	select {
	case <-first:
	case <-u.ctx.Done():
		u.t.Fatal("no session")
	}
	return c
}

// follow sees that the client loses its connection to the member only that is restarted, and its
// session never. It ends with Close.
func (c *updateClient) follow(events <-chan zk.Event, connected func()) {
	for e := range events {
		switch e.State {
		case zk.StateHasSession:
			c.server.Store(&e.Server)
			connected()
		case zk.StateExpired:
			c.u.t.Errorf("the session of %s has expired", c.path)
		case zk.StateDisconnected:
			was := c.server.Swap(nil)
			if c.u.stop.Load() || was == nil {
				continue
			}
			c.moved.Add(1)
			if !c.u.isGoing(*was) {
				c.u.t.Errorf("%s was disconnected from %s, which stays", c.path, *was)
			}
		}
	}
}

func (u *rollingUpdate) isGoing(server string) bool {
	going := u.going.Load()
	return going != nil && *going == server
}

// hold creates the ephemeral node of the client, which stands for a lock.
func (c *updateClient) hold() {
	c.u.t.Helper()
	_, err := c.conn.Create(c.path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err == nil {
		_, c.held, err = c.conn.Exists(c.path)
	}
	if err != nil {
		c.u.t.Fatal(err)
	}
}

// work writes to the node of the client, and times the requests while its member stays.
func (c *updateClient) work() {
	for !c.u.stop.Load() {
		before, start := c.server.Load(), time.Now()
		_, err := c.conn.Set(c.path, []byte(start.String()), -1)
		took, after := time.Since(start), c.server.Load()
		if before != nil && before == after && !c.u.isGoing(*before) {
			c.requests++
			c.longest = max(c.longest, took)
			if took > updateLatency {
				c.u.t.Logf("%s: a request took %v, at %s", c.path, took.Round(time.Millisecond), time.Now().Format("15:04:05.000"))
			}
			if err != nil {
				c.u.t.Errorf("%s, whose member stays: %v", c.path, err)
				return
			}
		}
		time.Sleep(10 * time.Millisecond) // load, and no overload
	}
}

// check sees that the ephemeral node is the one of the beginning.
func (c *updateClient) check() {
	c.u.t.Helper()
	err := Poll(c.u.ctx, 50*time.Millisecond, func() error {
		found, stat, err := c.conn.Exists(c.path)
		if err != nil {
			return err
		}
		if !found || stat.Czxid != c.held.Czxid || stat.EphemeralOwner != c.conn.SessionID() {
			c.u.t.Errorf("%s is lost, or is another one: %v, %+v", c.path, found, stat)
		}
		return nil
	})
	if err != nil {
		c.u.t.Error(err)
	}
}

// write changes nodes of the given MB in all, several at a time.
func (u *rollingUpdate) write(mb int) {
	u.t.Helper()
	const writers = 4
	data := make([]byte, updateNode)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < mb<<20/updateNode; i += writers {
				path := fmt.Sprintf("/update/bulk-%d", i)
				// Its member may be the one that is restarted.
				if err := Poll(u.ctx, 20*time.Millisecond, func() error {
					_, err := u.writer.conn.Set(path, data, -1)
					if errors.Is(err, zk.ErrNoNode) {
						_, err = u.writer.conn.Create(path, data, 0, zk.WorldACL(zk.PermAll))
					}
					return err
				}); err != nil {
					u.t.Errorf("%s: %v", path, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// restart restarts a member as the controller of a StatefulSet and the kubelet do.
func (u *rollingUpdate) restart(m *Member, bulk int) {
	u.t.Helper()
	u.going.Store(&m.ClientAddr)
	began := time.Now()
	if err := m.Stop(u.ctx); err != nil {
		u.t.Fatal(err)
	}
	stopped := time.Now()
	u.write(bulk)
	started := time.Now()
	if err := m.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.going.Store(nil) // from now on nobody is to be disconnected from it
	if err := Poll(u.ctx, 100*time.Millisecond, func() error { return isReady(u.ctx, m) }); err != nil {
		u.t.Fatal(err)
	}
	u.t.Logf("%s stopped within %v, and was ready %v after its start", m, stopped.Sub(began).Round(time.Millisecond),
		time.Since(started).Round(time.Millisecond))
}

// isReady returns an error unless GET /ready says 200.
func isReady(ctx context.Context, m *Member) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTPAddr+"/ready", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: GET /ready: %s", m, resp.Status)
	}
	return nil
}
