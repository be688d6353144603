package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/internal/simnet"
	"lockkeeper/quorum/model/trace"
	"lockkeeper/quorum/store"
	"lockkeeper/server"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

const (
	clientPort = 2181
	peerPort   = 2888
	syncTime   = 200 * time.Microsecond // of a disk in good health
	latency    = 300 * time.Microsecond // from machine to machine
	jitter     = 400 * time.Microsecond
)

// cluster is some members on a simulated network with simulated disks.
type cluster struct {
	t       *recorder
	shape   shape
	net     *simnet.Network
	journal *journal
	members []*member
	// spare is a machine that operators add to the cluster and remove again; nil: there is none.
	spare     *member
	torn      *rand.Rand // decides the torn writes of power cuts; used by the nemesis only
	witness   *witness
	explained *explained
	director  *director
	quiet     chan struct{} // one token, of who waits until nobody else runs
	// repaired counts the starts at which a crash had left something in the log that was to be
	// removed.
	repaired atomic.Int64
	// replaced counts the disks that were replaced, setBack those of them that got an earlier image
	// of themselves, damaged those with changed bytes, and setAside the starts at which files were
	// set aside. Only the nemesis uses them.
	replaced, setBack, damaged, setAside int
	// damagedSnapshots counts snapshots of which bytes were changed, imports the disks with
	// imported data that came to the cluster.
	damagedSnapshots, imports int
	// exchanged reports whether addresses are exchanged with another cluster; nil: there is none.
	exchanged func() bool
	// redirect says where a connection to a host leads, if not there; nil: nowhere else.
	redirect atomic.Pointer[map[string]string]
	// marginTimeout is the session timeout of the client that margin looks at.
	marginTimeout time.Duration
	ending        sync.WaitGroup // programs of dead members that are being stopped
}

// member is one machine: its disk and its wall clock outlive the programs that
// run on it.
type member struct {
	c    *cluster
	id   uint8
	name string // of its host

	observer bool
	// used: it is the spare machine, and was started since it was last removed.
	used bool

	clock   atomic.Int64
	machine *machine
	prog    atomic.Pointer[program] // nil while it is down

	// turn holds one token while the program is started or ended, which takes
	// virtual time. It is a channel because who waits for a mutex stops the
	// bubble's time.
	turn      chan struct{}
	disk      *simdisk.Disk
	diskFault error // why all writes to it fail; nil if they do not
	// starts counts the starts of programs, and their ends by force.
	starts atomic.Int32
	// cutAtValue is the write of a stable value that somebody waits for; nil: nobody does.
	cutAtValue atomic.Pointer[valueWrite]
	// spare are whole disks that others have replaced; the newest is last.
	spare []*simdisk.Disk
	// file has the members of its configuration file; nil: the cluster's. alone: it has no server
	// lines.
	file  []server.Member
	alone bool
	// aside: files were set aside on this machine.
	aside bool
	// damaged is a snapshot of which bytes were changed.
	damaged damagedSnapshot
	// imported is a disk with imported data that the member is not to keep.
	imported *simdisk.Disk
	// harmed: bytes of the disk were changed, or it is an old one; only then its files may be set
	// aside.
	harmed bool
}

// newCluster starts three members, as the directed scenarios want them: with so much of the log
// left that nobody who was away needs a snapshot, which ends connections.
func newCluster(t *testing.T, seed uint64, j *journal) *cluster {
	return newClusterOf(&recorder{T: t}, directedShape, seed, j)
}

var directedShape = shape{voters: 3, tick: 2 * time.Second, snapCount: 300, trailing: 10_000, rest: 1}

func newClusterOf(t *recorder, s shape, seed uint64, j *journal) *cluster {
	c := clusterOn(t, newNetwork(seed), "10.0.0.", s, seed, j)
	c.firstStart(rand.New(rand.NewPCG(seed, 1<<34)))
	return c
}

func newNetwork(seed uint64) *simnet.Network {
	return simnet.New(simnet.Config{
		Seed: seed, Latency: latency, Jitter: jitter,
		RTO: 200 * time.Millisecond, KeepAlive: 15 * time.Second, BufferBytes: 256 << 10,
	})
}

// clusterOn makes a cluster on a network, at addresses that begin with prefix. It starts nobody.
func clusterOn(t *recorder, net *simnet.Network, prefix string, s shape, seed uint64, j *journal) *cluster {
	c := &cluster{t: t, shape: s, journal: j, net: net, quiet: make(chan struct{}, 1), torn: rand.New(rand.NewPCG(seed, 1<<33))}
	machines := s.voters + s.observers
	if s.changes {
		machines++
	}
	for i := range machines {
		m := &member{
			c: c, id: uint8(i + 1), name: fmt.Sprintf("%s%d", prefix, i+1), observer: i >= s.voters,
			disk: simdisk.New(), turn: make(chan struct{}, 1), machine: newMachine(c.torn),
		}
		m.disk.SetSyncTime(syncTime)
		c.net.Host(m.name)
		if i == s.voters+s.observers {
			c.spare = m
			continue
		}
		c.members = append(c.members, m)
	}
	c.witness, c.explained, c.director = newWitness(c), newExplained(c), newDirector()
	j.see = c.witness.logged
	c.usualLatency()
	return c
}

func (c *cluster) each(f func(*member)) {
	for _, m := range c.members {
		f(m)
	}
}

// machines are the members' machines, and the spare one.
func (c *cluster) machines() []*member {
	if c.spare == nil {
		return c.members
	}
	return append(slices.Clone(c.members), c.spare)
}

func (c *cluster) servers() []string {
	var list []string
	for _, m := range c.members {
		list = append(list, m.clientAddr())
	}
	return list
}

func (m *member) clientAddr() string { return fmt.Sprintf("%s:%d", m.name, clientPort) }

// now is the member's wall clock, which jumps.
func (m *member) now() time.Time { return time.Now().Add(time.Duration(m.clock.Load())) }

func (m *member) running() *program { return m.prog.Load() }

// lock waits for the member's turn to be started or ended.
func (m *member) lock() { m.turn <- struct{}{} }

func (m *member) unlock() { <-m.turn }

// start runs the member's program on its disk, as an operator would: it must
// come up.
func (m *member) start() { m.startWithout() }

// startWithout is start with the word of the operator, that these members begin later.
func (m *member) startWithout(without ...int) {
	m.lock()
	defer m.unlock()
	if m.running() != nil || m.diskFault != nil {
		return
	}
	p, err := startProgram(m, m.disk, without...)
	m.checkRefusal(err)
	if errors.Is(err, store.ErrDamaged) {
		m.c.explained.disk(m.disk, trace.Unreadable)
	}
	if mayReplaceDisk(err) {
		m.setAside(err)
		p, err = startProgram(m, m.disk, without...)
	}
	if err != nil {
		m.c.t.Errorf("member %d does not start: %v", m.id, err)
		return
	}
	m.prog.Store(p)
	m.c.journal.printf("m%d started", m.id)
}

// powerCut ends the member as a power cut does. Nobody is told, and only durable bytes are there
// when it is started again.
func (m *member) powerCut() { m.die(m.c.net.Reset, (*simdisk.Disk).CrashTorn) }

// powerCutInWrite is powerCut while the log is written, if that happens within half a second.
func (m *member) powerCutInWrite() {
	for range 5000 {
		m.lock()
		writing := m.disk.Unsynced()
		m.unlock()
		if writing {
			break
		}
		time.Sleep(syncTime / 2)
	}
	m.powerCut()
}

// kill ends the member as kill -9 does: its connections are closed, and written bytes stay written.
func (m *member) kill() { m.die(m.c.net.Kill, (*simdisk.Disk).Killed) }

func (m *member) die(how func(string), left func(*simdisk.Disk, *rand.Rand) *simdisk.Disk) {
	m.lock()
	defer m.unlock()
	m.dieLocked(how, left)
}

func (m *member) dieLocked(how func(string), left func(*simdisk.Disk, *rand.Rand) *simdisk.Disk) {
	p := m.running()
	if p == nil {
		return
	}
	m.starts.Add(1) // later writes do not count
	p.mayRetire = m.harmed
	// First the network, then the disk: acknowledged entries are on the disk.
	how(m.name)
	old := m.disk
	m.disk = left(old, m.c.torn)
	old.Abandon()
	m.disk.Fail(m.diskFault)
	m.c.director.ended(m)
	m.c.stop(p)
	m.prog.Store(nil)
}

// stop ends the member in an orderly way and waits for that. If its disk hangs, nobody waits.
func (m *member) stop() {
	if m.disk.Hangs() {
		m.kill()
		return
	}
	m.lock()
	defer m.unlock()
	if p := m.prog.Swap(nil); p != nil {
		p.mayRetire = m.harmed
		m.c.wind(p)
	}
}

// stop has a program that is cut off from everything wind up.
func (c *cluster) stop(p *program) {
	c.ending.Go(func() { c.wind(p) })
}

// wind stops a program and checks that it does not take long.
func (c *cluster) wind(p *program) {
	const limit = time.Minute
	late := time.AfterFunc(limit, func() {
		// Nothing can be waited for any more; the panic shows where it hangs.
		debug.SetTraceback("all")
		panic(fmt.Sprintf("member %s has not stopped after %v", p.name, limit))
	})
	defer late.Stop()
	if err := p.failure(); err != nil && !p.mayFail && !(p.mayRetire && mayReplaceDisk(err)) {
		c.t.Errorf("a member had given up: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil && !p.mayFail {
		c.t.Errorf("shutdown: %v", err)
	}
}

// shutdown stops everything.
func (c *cluster) shutdown() {
	c.net.HealAll()
	for _, m := range c.machines() {
		m.stop()
	}
	c.ending.Wait()
	c.explained.end()
	c.net.Close() // go-zookeeper's Close waits for nothing
}

// leader is the member that leads and is believed by a majority, nil if there is
// none.
func (c *cluster) leader() *member {
	votes := map[uint8]int{}
	for _, m := range c.members {
		if p := m.running(); p != nil && !m.observer {
			votes[p.leader()]++
		}
	}
	for _, m := range c.machines() {
		if votes[m.id] > c.shape.voters/2 {
			return m
		}
	}
	return nil
}

// replica is the state of one member.
type replica struct {
	zxid   wire.Zxid
	timeMs int64
	digest uint64
	fault  error // of Check
}

func (m *member) replica() (r replica, up bool) {
	p := m.running()
	if p == nil {
		return replica{}, false
	}
	p.view(func(s *znode.Store) {
		r = replica{zxid: s.Zxid(), timeMs: s.TimeMs(), digest: s.Digest(), fault: s.Check()}
	})
	return r, true
}

// settled waits, up to limit, until all members are up and hold the same. Nobody
// may be changing anything.
func (c *cluster) settled(limit time.Duration) {
	c.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		var all []replica
		same := c.leader() != nil
		for _, m := range c.members {
			r, up := m.replica()
			if r.fault != nil {
				c.t.Errorf("member %d: %v", m.id, r.fault)
				return
			}
			if up && m.has(importedPath) {
				c.t.Errorf("m%d has data that were imported beside the cluster", m.id)
				return
			}
			all = append(all, r)
			// Equal zxids do not make equal states: some commands change a session
			// and use no zxid.
			same = same && up && r == all[0]
		}
		apart := c.uncounted()
		same = same && apart == ""
		if same {
			c.timely(all[0])
			return
		}
		if time.Now().After(deadline) {
			c.t.Errorf("after %v: the members do not hold the same %v after the last change: %+v %s", c.journal.age(), limit, all, apart)
			return
		}
	}
}

// timely checks that the time of the newest update is not ahead of all clocks: the time of a clock
// before it was set back is over.
func (c *cluster) timely(r replica) {
	c.t.Helper()
	latest := c.members[0].now()
	for _, m := range c.machines() {
		if now := m.now(); now.After(latest) {
			latest = now
		}
	}
	if at := time.UnixMilli(r.timeMs); at.After(latest) {
		c.t.Errorf("after %v: the newest update is of %v, the clock that is ahead of all others says %v", c.journal.age(), at, latest)
	}
}

// watchProgress checks that no member's state ever runs backwards while it runs.
func (c *cluster) watchProgress(over <-chan struct{}) {
	newest := map[*program]wire.Zxid{}
	for {
		select {
		case <-over:
			return
		case <-time.After(250 * time.Millisecond):
		}
		for _, m := range c.machines() {
			p := m.running()
			if p == nil {
				continue
			}
			p.view(func(s *znode.Store) {
				if s.Zxid() < newest[p] {
					c.t.Errorf("after %v: the state of m%d went back from zxid %v to %v", c.journal.age(), m.id, newest[p], s.Zxid())
				}
				newest[p] = s.Zxid()
			})
		}
	}
}
