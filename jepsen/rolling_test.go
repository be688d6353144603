package jepsen

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/freeport"
)

// TestRollingMembers restarts all members of a cluster in turn, and then replaces all of them by
// others, while every member has clients that count and take locks. Nothing is lost or done twice,
// no lock has two holders, and only the clients of the member that is down see their connection
// end.
//
// Defends: C5.
func TestRollingMembers(t *testing.T) {
	rounds := 1
	if *longFlag {
		rounds = 8
	}
	target := findTarget(t, *targetFlag)
	sum := sha1.Sum([]byte("super:pw"))
	cfg := ClusterConfig{Target: target, Members: 3, TickTime: time.Second,
		Extra: []string{"reconfigEnabled=true", "minSessionTimeout=1000",
			"DigestAuthenticationProvider.superDigest=super:" + base64.StdEncoding.EncodeToString(sum[:])}}
	if target.Name == "zookeeper" {
		t.Skip("every restart of its leader disconnects all of its clients, and a removed leader takes the answer " +
			"along: there is nothing to compare")
	}
	l := newLabWith(t, time.Duration(rounds)*2*time.Minute, cfg)
	r := &rolling{t: t, ctx: l.ctx, present: append([]*Member(nil), l.cluster.Members()...)}
	for i, m := range r.present {
		r.clients = append(r.clients, r.pin(i, m))
		r.lockers = append(r.lockers, r.pin(i, m))
	}
	defer r.close()
	if _, err := r.clients[0].conn().Create("/rolling", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	for i := range r.clients {
		r.wg.Add(2)
		go r.clients[i].count()
		go r.lockers[i].lock()
	}
	for range rounds {
		for i := range r.present {
			r.restart(i)
		}
		for i := range r.present {
			r.replace(l.cluster, i)
		}
	}
	r.stop.Store(true)
	r.wg.Wait()
	r.check()
}

// rolling is a cluster of members that come and go, with two clients for each of its places.
type rolling struct {
	t       *testing.T
	ctx     context.Context
	present []*Member // by place
	clients []*pinned // they count
	lockers []*pinned

	stop    atomic.Bool
	wg      sync.WaitGroup
	holders atomic.Int32
	locked  atomic.Int32
}

// pinned is a client that knows one member only, and follows to its successor.
type pinned struct {
	r     *rolling
	place int
	addr  atomic.Pointer[string]
	down  atomic.Bool  // its member is, or may be, down
	downs atomic.Int32 // how often it was
	lost  atomic.Int32 // how often the connection ended
	drops atomic.Int32 // and how often of those while the member was up

	mu      sync.Mutex
	current *zk.Conn

	before        int32 // lost, when the member went down
	done, unknown int   // of count
}

// provider gives go-zookeeper the one member that the client knows.
type provider struct{ addr *atomic.Pointer[string] }

func (provider) Init([]string) error    { return nil }
func (provider) Len() int               { return 1 }
func (provider) Connected()             {}
func (p provider) Next() (string, bool) { return *p.addr.Load(), false }

func (r *rolling) pin(place int, m *Member) *pinned {
	c := &pinned{r: r, place: place}
	c.addr.Store(&m.ClientAddr)
	c.open()
	return c
}

// open connects anew.
func (c *pinned) open() {
	conn, events, err := zk.Connect([]string{"unused:1"}, 10*time.Second, zk.WithHostProvider(provider{&c.addr}),
		zk.WithLogger(silentLogger{}))
	if err != nil {
		c.r.t.Error(err)
		return
	}
	c.mu.Lock()
	c.current = conn
	c.mu.Unlock()
	_ = conn.AddAuth("digest", []byte("super:pw"))
	go func() {
		for e := range events { // ends with Close
			if e.State != zk.StateDisconnected {
				continue
			}
			c.lost.Add(1)
			c.mu.Lock()
			mine := c.current == conn
			c.mu.Unlock()
			if mine && !c.down.Load() && !c.r.stop.Load() {
				c.drops.Add(1)
			}
		}
	}()
}

func (c *pinned) conn() *zk.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// setDown says that the member of both clients of a place is about to go down, or that it and they
// are back.
func (r *rolling) setDown(place int, down bool) {
	for _, c := range []*pinned{r.clients[place], r.lockers[place]} {
		if down {
			c.downs.Add(1)
			c.before = c.lost.Load()
		} else {
			c.awaitSession()
		}
		c.down.Store(down)
	}
}

// up returns a function that says whether the member has been up since.
func (c *pinned) up() func() bool {
	was, downs := c.down.Load(), c.downs.Load()
	return func() bool { return !was && !c.down.Load() && c.downs.Load() == downs }
}

// count creates one node after the other.
func (c *pinned) count() {
	defer c.r.wg.Done()
	for !c.r.stop.Load() {
		up := c.up()
		_, err := c.conn().Create(fmt.Sprintf("/rolling/c%d-", c.place), nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		switch {
		case err == nil:
			c.done++
		case up():
			c.r.t.Errorf("client %d, whose member is up: %v", c.place, err)
			return
		default:
			c.unknown++
			// A client that has lost its member must not use the CPU that the others need.
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond) // load, and no overload: the machine is busy enough
	}
}

// lock takes a lock that the clients of all members want.
func (c *pinned) lock() {
	defer c.r.wg.Done()
	for !c.r.stop.Load() {
		up := c.up()
		lock := zk.NewLock(c.conn(), "/rolling-lock", zk.WorldACL(zk.PermAll))
		if err := lock.Lock(); err != nil {
			if c.r.stop.Load() {
				return
			}
			if up() {
				c.r.t.Errorf("client %d, whose member is up, wants a lock: %v", c.place, err)
				return
			}
			old := c.conn()
			c.open()    // first, so that the end of the old connection counts for nothing
			old.Close() // its node in the queue goes with its session
			continue
		}
		if n := c.r.holders.Add(1); n != 1 {
			c.r.t.Errorf("%d clients hold one lock", n)
		}
		time.Sleep(5 * time.Millisecond) // hold it for a while
		c.r.locked.Add(1)
		c.r.holders.Add(-1)
		for lock.Unlock() != nil && !c.r.stop.Load() && c.r.ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond) // as above
		}
	}
}

// awaitSession waits until the client has lost its member and has a session again.
func (c *pinned) awaitSession() {
	c.r.t.Helper()
	if err := Poll(c.r.ctx, 10*time.Millisecond, func() error {
		if s := c.conn().State(); s != zk.StateHasSession || c.lost.Load() == c.before {
			return fmt.Errorf("client %d: %v", c.place, s)
		}
		return nil
	}); err != nil {
		c.r.t.Fatal(err)
	}
}

// restart stops the member at a place, as an operator does, and starts it again.
func (r *rolling) restart(place int) {
	r.t.Helper()
	m := r.present[place]
	r.setDown(place, true)
	if err := errors.Join(m.Stop(r.ctx), m.Restart(r.ctx)); err != nil {
		r.t.Fatal(err)
	}
	r.setDown(place, false)
}

// replace puts a new member in the place of another.
func (r *rolling) replace(cluster *Cluster, place int) {
	r.t.Helper()
	old := r.present[place]
	next, err := cluster.join(false, r.present...)
	if err != nil {
		r.t.Fatal(err)
	}
	admin := r.clients[(place+1)%len(r.clients)].conn()
	if _, err := admin.IncrementalReconfig([]string{next.Line()}, nil, -1); err != nil {
		r.t.Fatalf("add %s: %v", next, err)
	}
	if err := next.AwaitServing(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	r.setDown(place, true)
	r.clients[place].addr.Store(&next.ClientAddr)
	r.lockers[place].addr.Store(&next.ClientAddr)
	if _, err := admin.IncrementalReconfig(nil, []string{fmt.Sprint(old.ID)}, -1); err != nil {
		r.t.Fatalf("remove %s: %v", old, err)
	}
	if err := old.Stop(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	r.present[place] = next
	r.setDown(place, false)
}

func (r *rolling) close() {
	r.stop.Store(true)
	for _, c := range append(r.clients, r.lockers...) {
		c.conn().Close()
	}
}

func (r *rolling) check() {
	var configs []string
	for i, c := range r.clients {
		conn := c.conn()
		if _, err := conn.Sync("/rolling"); err != nil {
			r.t.Fatal(err)
		}
		nodes, _, err := conn.Children("/rolling")
		if err != nil {
			r.t.Fatal(err)
		}
		made := 0
		for _, n := range nodes {
			if strings.HasPrefix(n, fmt.Sprintf("c%d-", i)) {
				made++
			}
		}
		if made < c.done || made > c.done+c.unknown {
			r.t.Errorf("client %d: %d nodes of %d creates that were answered and %d that may have happened", i, made,
				c.done, c.unknown)
		}
		if n := c.drops.Load() + r.lockers[i].drops.Load(); n != 0 {
			r.t.Errorf("the clients of place %d were disconnected %d times while their member was up", i, n)
		}
		r.t.Logf("figures: client %d: %d creates answered, %d without an answer while its member was down", i, c.done,
			c.unknown)
		data, _, err := conn.Get("/zookeeper/config")
		if err != nil {
			r.t.Fatal(err)
		}
		configs = append(configs, string(data))
	}
	r.t.Logf("figures: the lock was held %d times", r.locked.Load())
	want := ""
	for _, m := range r.present {
		want += m.Line() + "\n"
	}
	for i, text := range configs {
		if text != configs[0] || !strings.HasPrefix(text, want+"version=") {
			r.t.Errorf("client %d finds the members\n%s\nwant\n%s", i, text, want)
		}
	}
	if r.locked.Load() == 0 {
		r.t.Error("nobody ever had the lock: the test shows nothing")
	}
}

// join starts a new member, with the server lines of the present members and its own in zoo.cfg. It
// serves nobody until it is made a member, by its Line. Only for a cluster on the loopback, with
// reconfigEnabled=true and without Between.
func (c *Cluster) join(observer bool, present ...*Member) (*Member, error) {
	found, err := freeport.Take(3)
	if err != nil {
		return nil, err
	}
	id := len(c.members) + 1
	m := &Member{ID: id, ClientAddr: fmt.Sprintf("127.0.0.1:%d", found[0]), target: c.cfg.Target,
		dir: filepath.Join(c.cfg.Dir, fmt.Sprintf("m%d", id))}
	m.line = serverLine(id, found, observer)
	var b strings.Builder
	b.WriteString(strings.Join(append([]string{
		fmt.Sprintf("tickTime=%d", c.cfg.TickTime.Milliseconds()), "initLimit=20", "syncLimit=10",
		"dataDir=" + filepath.Join(m.dir, "data"), "maxClientCnxns=0", "4lw.commands.whitelist=*",
		"admin.enableServer=false",
	}, c.cfg.Extra...), "\n"))
	for _, p := range append(present, m) {
		b.WriteString("\n" + p.Line())
	}
	b.WriteString("\n")
	if err := m.writeConfig(b.String(), false); err != nil {
		return nil, err
	}
	c.members = append(c.members, m)
	return m, m.Start()
}

// serverLine is a member's line on the loopback. The ports are for clients, peers and elections.
func serverLine(id int, ports []int, observer bool) string {
	role := "participant"
	if observer {
		role = "observer"
	}
	return fmt.Sprintf("server.%d=127.0.0.1:%d:%d:%s;127.0.0.1:%d", id, ports[1], ports[2], role, ports[0])
}
