package quorum

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/internal/simnet"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// recorder is a Listener that keeps what it hears.
type recorder struct {
	mu       sync.Mutex
	changed  *sync.Cond
	results  map[znode.Key]znode.Result
	times    map[znode.Key]int // how often a command was Done
	restored int
	leads    bool
	touched  []wire.SessionID
	refused  []znode.Key // undeliverable
	failed   func(error) // nil: panic

	mayTransfer func(proof string, occasion []byte) error // nil: everybody may

	requested requestedChanges
}

func newRecorder() *recorder {
	r := &recorder{results: map[znode.Key]znode.Result{}, times: map[znode.Key]int{}}
	r.changed = sync.NewCond(&r.mu)
	return r
}

func (r *recorder) Applied(_ *znode.Store, c *znode.Command, res *znode.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if res.Status != znode.Gap && res.Status != znode.Duplicate {
		if res.Status == znode.Done {
			r.times[c.Key()]++
		}
		r.results[c.Key()] = *res
	}
	if res.Deferred || c.Kind() >= znode.KindMembers {
		r.requested.applied(c, res)
	}
	r.changed.Broadcast()
}

func (r *recorder) Undeliverable(k znode.Key) { r.set(func() { r.refused = append(r.refused, k) }) }

func (r *recorder) Restored(*znode.Store) {
	r.set(func() { r.restored++ })
	r.requested.lost()
}
func (r *recorder) Lead(*znode.Store) { r.set(func() { r.leads = true }) }
func (r *recorder) Follow()           { r.set(func() { r.leads = false }) }

func (r *recorder) Touch(heard []wire.SessionID) []wire.SessionID {
	r.set(func() { r.touched = append(r.touched, heard...) })
	return heard
}

func (r *recorder) MembersChanged([]znode.Member, wire.Zxid) {}
func (r *recorder) Describe() Report                         { return Report{} }

func (r *recorder) Failed(err error) {
	if r.failed == nil {
		panic(err)
	}
	r.failed(err)
}

func (r *recorder) MayTransfer(proof string, occasion []byte) error {
	if r.mayTransfer == nil {
		return nil
	}
	return r.mayTransfer(proof, occasion)
}

func (r *recorder) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.changed.Broadcast()
}

// await waits until cond, called with the lock held, is true.
func (r *recorder) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.AfterFunc(30*time.Second, func() { r.changed.Broadcast() })
	defer deadline.Stop()
	start := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		if time.Since(start) > 29*time.Second {
			t.Fatalf("timed out waiting for: %s", what)
		}
		r.changed.Wait()
	}
}

func (r *recorder) result(t *testing.T, k znode.Key) znode.Result {
	t.Helper()
	r.await(t, fmt.Sprintf("result of %v", k), func() bool { _, ok := r.results[k]; return ok })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[k]
}

// cluster is a few members on a simulated network, with simulated disks, in virtual time.
type cluster struct {
	t       *testing.T
	net     *simnet.Network
	members []Member
	disks   []*simdisk.Disk
	recs    []*recorder
	reps    []*Replica // nil while stopped
	cut     map[int]bool
	files   map[int][]Member // those that have another list of members
	change  func(*Config)
	blank   map[int]int // how often a member was started on a blank disk
}

// few is n, and a quarter of it with -short: the number of rounds of a random test.
func few(n int) int {
	if testing.Short() {
		return max(1, n/4)
	}
	return n
}

// inCluster runs f on a cluster of n members inside a bubble. change may alter a member's
// configuration.
func inCluster(t *testing.T, n int, change func(*Config), f func(t *testing.T, c *cluster)) {
	t.Helper()
	inStopped(t, n, change, func(t *testing.T, c *cluster) {
		for i := range n {
			c.start(i)
		}
		f(t, c)
	})
}

// inStopped is inCluster with no member started.
func inStopped(t *testing.T, n int, change func(*Config), f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			t:      t,
			net:    simnet.New(simnet.Config{Seed: 1, Latency: 200 * time.Microsecond, Jitter: 100 * time.Microsecond}),
			recs:   make([]*recorder, n),
			reps:   make([]*Replica, n),
			cut:    map[int]bool{},
			files:  map[int][]Member{},
			blank:  map[int]int{},
			change: change,
		}
		for i := range n {
			c.members = append(c.members, Member{ID: MemberID(i + 1), Addr: hostName(i) + ":2888"})
			c.disks = append(c.disks, simdisk.New())
			c.disks[i].SetSyncTime(time.Millisecond)
		}
		t.Cleanup(func() {
			c.net.HealAll()
			for i := range n {
				c.stop(i)
			}
		})
		f(t, c)
	})
}

func hostName(i int) string { return fmt.Sprintf("10.0.0.%d", i+1) }

func (c *cluster) start(i int) {
	c.t.Helper()
	host := c.net.Host(hostName(i))
	c.recs[i] = newRecorder()
	cfg := Config{
		ID:       MemberID(i + 1),
		Members:  c.members,
		Tick:     2 * time.Second,
		Stores:   simStores(c.t, c.disks[i]),
		Listener: c.recs[i],
		Peers:    peer.Config{Listen: host.Listen, Dial: host.Dial},
		Logger:   testLogger().With("member", i+1),
	}
	if list := c.files[i]; list != nil {
		cfg.Members = list
	}
	if c.change != nil {
		c.change(&cfg)
	}
	if cfg.ConfigText == "" && len(cfg.Members) > 1 {
		cfg.ConfigText = configText(cfg.Members)
	}
	c.giveIdentity(i, &cfg.Stores)
	r, err := Open(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.reps[i] = r
}

// configText is the text of /zookeeper/config for members of a cluster.
func configText(members []Member) string {
	var lines []znode.Member
	for _, m := range members {
		lines = append(lines, line(int(m.ID)-1, m.Observer))
	}
	return znode.ConfigText(lines, 0)
}

// aboveOf is a replica as another transport that passes for its own knows it.
func aboveOf(r *Replica) *above {
	up := newAbove(&r.cfg)
	up.connect(r)
	return up
}

// serverOf is raft's name of member i with its first disk.
func serverOf(i int) raft.ServerID { return raftnet.ServerID(MemberID(i+1), peer.DiskID(i+1)) }

// giveIdentity has blank stores of member i get a disk id that tests know: its number for the first
// disk, and another one for each that follows.
func (c *cluster) giveIdentity(i int, s *store.Stores) {
	c.t.Helper()
	if id, err := s.Identity(); err != nil || id.Disk != 0 {
		return
	}
	c.blank[i]++
	if err := s.SetIdentity(store.Identity{Owner: uint64(i + 1), Disk: uint64(i + 1 + 1000*(c.blank[i]-1))}); err != nil {
		c.t.Fatal(err)
	}
}

// simStores are the stores of a member on a simulated disk.
func simStores(t *testing.T, d *simdisk.Disk) store.Stores {
	t.Helper()
	s, err := store.OpenOn(d.Files(), 64<<10, d, d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testLogger() *slog.Logger {
	out := io.Discard
	if os.Getenv("LOG") != "" {
		out = os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (c *cluster) stop(i int) {
	if c.reps[i] != nil {
		if err := c.reps[i].Close(); err != nil {
			c.t.Errorf("close member %d: %v", i+1, err)
		}
		c.reps[i] = nil
	}
}

// crash is a power cut: the member is gone in the middle of whatever it did, and its disk holds
// what was durable.
func (c *cluster) crash(i int) {
	c.disks[i] = c.disks[i].Crash()
	c.net.Reset(hostName(i))
	c.stop(i) // what is left of the old program reaches neither the network nor the disk
}

func (c *cluster) isolate(i int) {
	c.cut[i] = true
	c.net.Isolate(hostName(i))
}

func (c *cluster) heal() {
	clear(c.cut)
	c.net.HealAll()
}

// leader waits for a member that leads and that every member that runs and is not isolated follows.
func (c *cluster) leader() int {
	c.t.Helper()
	for range 60_000 { // a minute
		votes := map[MemberID]int{}
		running := 0
		for i, r := range c.reps {
			if r != nil && !c.cut[i] && r.Counted() {
				running++
				votes[r.Leader()]++
			}
		}
		for id, n := range votes {
			if id != NoMember && n == running && c.reps[id-1] != nil && !c.cut[int(id)-1] {
				return int(id) - 1
			}
		}
		time.Sleep(time.Millisecond) // virtual
	}
	for i, r := range c.reps {
		if r != nil {
			c.t.Logf("member %d: %+v, raft counts %v, cut off: %v", i+1, r.Status(), r.Servers(), c.cut[i])
		}
	}
	c.t.Fatal("no leader for a minute")
	return -1
}

func createSession(id wire.SessionID) *znode.Command {
	return &znode.Command{Session: id, Seq: 1<<63 | 1, Body: &znode.CreateSession{Connection: znode.Connection{TimeoutMs: 10_000, Addr: "127.0.0.1"}}}
}

func sequential(id wire.SessionID, seq uint64, path string) *znode.Command {
	body := wire.CreateRequest{Path: path, Data: []byte{}, ACL: wire.OpenACL, Mode: wire.ModePersistentSequential}.Append(nil)
	return &znode.Command{Session: id, Generation: 1, Seq: seq, Body: &znode.Request{Op: wire.OpCreate, Body: body}}
}

func (c *cluster) propose(i int, cmd *znode.Command) znode.Key {
	c.t.Helper()
	if err := c.reps[i].Propose(c.t.Context(), cmd); err != nil {
		c.t.Fatal(err)
	}
	return cmd.Key()
}

func (c *cluster) digest(i int) (d uint64) {
	c.reps[i].View(func(s *znode.Store) {
		if err := s.Check(); err != nil {
			c.t.Errorf("member %d: %v", i+1, err)
		}
		d = s.Digest()
	})
	return d
}

// agree waits until all running members that are not isolated have the same state.
func (c *cluster) agree() {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		same, first := true, -1
		for i, r := range c.reps {
			if r == nil || c.cut[i] {
				continue
			}
			if first < 0 {
				first = i
			} else if c.digest(i) != c.digest(first) {
				same = false
			}
		}
		if same {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatal("replicas differ")
		}
		time.Sleep(time.Millisecond) // virtual
	}
}
