package simdisk_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/internal/simnet"
	"lockkeeper/quorum/wal"
)

// The raft library with its own TCP transport, on simulated networks and disks,
// through ten minutes of partitions and crashes: nothing that was acknowledged
// is lost, and nothing real is waited for. This is what the simulation of whole
// members stands on.
func TestRaftInABubble(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	started := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c := newRaftCluster(t, seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		acked := uint64(0)
		for range 12 {
			victim := c.leader(t)
			for range 20 {
				acked = c.apply(t, acked+1)
			}
			switch rng.IntN(3) {
			case 0:
				c.net.Isolate(c.name(victim))
			case 1:
				other := (victim + 1 + rng.IntN(2)) % 3
				c.net.Cut(c.name(victim), c.name(other))
			case 2:
				c.crash(t, victim)
			}
			time.Sleep(time.Duration(rng.IntN(40)) * time.Second)
			c.net.HealAll()
			time.Sleep(20 * time.Second)
		}
		c.leader(t)
		time.Sleep(time.Minute)
		for i, n := range c.nodes {
			got := n.values()
			if !slices.Equal(got, c.nodes[0].values()) {
				t.Errorf("members %d and 0 differ", i)
			}
			// What was tried again may be there twice.
			if distinct := slices.Compact(slices.Sorted(slices.Values(got))); uint64(len(distinct)) != acked {
				t.Errorf("member %d has %d numbers, but %d were acknowledged", i, len(distinct), acked)
			}
		}
		for i, n := range c.nodes {
			c.net.Kill(c.name(i)) // the library closes only what it has dialled
			n.stop(t)
		}
	})
	t.Logf("took %v", time.Since(started))
}

type raftCluster struct {
	net   *simnet.Network
	torn  *rand.Rand
	nodes []*raftNode
}

// raftNode is a state machine that remembers the numbers it was given.
type raftNode struct {
	raft      *raft.Raft
	transport *raft.NetworkTransport
	disk      *simdisk.Disk
	log       *wal.Log

	mu      sync.Mutex
	numbers []uint64
}

func newRaftCluster(t *testing.T, seed uint64) *raftCluster {
	c := &raftCluster{torn: rand.New(rand.NewPCG(seed, 1)), net: simnet.New(simnet.Config{Seed: seed, Latency: time.Millisecond, Jitter: time.Millisecond, RTO: 200 * time.Millisecond, KeepAlive: 15 * time.Second})}
	for i := range 3 {
		c.net.Host(c.name(i))
		disk := simdisk.New()
		disk.SetSyncTime(time.Millisecond)
		c.nodes = append(c.nodes, &raftNode{disk: disk})
	}
	for i := range c.nodes {
		c.start(t, i, c.nodes[i].disk)
	}
	return c
}

func (c *raftCluster) name(i int) string { return fmt.Sprintf("10.0.0.%d", i+1) }

func (c *raftCluster) start(t *testing.T, i int, disk *simdisk.Disk) {
	t.Helper()
	host := c.net.Host(c.name(i))
	l, err := host.Listen("tcp", c.name(i)+":2888")
	if err != nil {
		t.Fatal(err)
	}
	n := &raftNode{disk: disk}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: streams{l, host}, MaxPool: 3, Timeout: 5 * time.Second, Logger: hclog.NewNullLogger(),
	})
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(c.name(i))
	cfg.Logger = hclog.NewNullLogger()
	cfg.SnapshotInterval, cfg.SnapshotThreshold, cfg.TrailingLogs = time.Minute, 50, 20
	if n.log, err = openLog(disk); err != nil {
		t.Fatal(err)
	}
	if known, _ := raft.HasExistingState(n.log, disk, disk); !known {
		var servers []raft.Server
		for j := range 3 {
			servers = append(servers, raft.Server{ID: raft.ServerID(c.name(j)), Address: raft.ServerAddress(c.name(j) + ":2888")})
		}
		if err := raft.BootstrapCluster(cfg, n.log, disk, disk, n.transport, raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
	}
	if n.raft, err = raft.NewRaft(cfg, n, n.log, disk, disk, n.transport); err != nil {
		t.Fatal(err)
	}
	c.nodes[i] = n
}

// crash cuts a member's power and starts it again from what was durable.
func (c *raftCluster) crash(t *testing.T, i int) {
	t.Helper()
	old := c.nodes[i]
	c.net.Reset(c.name(i))
	disk := old.disk.CrashTorn(c.torn)
	old.stop(t)
	c.start(t, i, disk)
}

func (n *raftNode) stop(t *testing.T) {
	t.Helper()
	if err := n.raft.Shutdown().Error(); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	n.transport.CloseStreams()
	n.transport.Close()
	if err := n.log.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// openLog opens the log on a disk, which has the manifest of it as a stable value.
func openLog(d *simdisk.Disk) (*wal.Log, error) {
	key := []byte("lockkeeper/manifest")
	o := wal.Options{Dir: "log", FS: d.Files(), SegmentBytes: 8 << 10, Save: func(m wal.Manifest) error { return d.Set(key, m.Append(nil)) }}
	manifest, err := d.Get(key)
	if err != nil {
		return wal.Create(o, 1, 0)
	}
	m, _ := wal.DecodeManifest(manifest)
	l, _, err := wal.Open(o, m)
	return l, err
}

// leader waits for a member that can prove that it leads.
func (c *raftCluster) leader(t *testing.T) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		for i, n := range c.nodes {
			if n.raft.State() == raft.Leader && n.raft.VerifyLeader().Error() == nil {
				return i
			}
		}
	}
	t.Fatal("no leader within a minute")
	return -1
}

// apply has a number committed, and returns it.
func (c *raftCluster) apply(t *testing.T, number uint64) uint64 {
	t.Helper()
	for range 100 {
		leader := c.nodes[c.leader(t)]
		if leader.raft.Apply(binary.BigEndian.AppendUint64(nil, number), 0).Error() == nil {
			return number
		}
	}
	t.Fatalf("number %d was not applied", number)
	return 0
}

type streams struct {
	net.Listener
	host *simnet.Host
}

func (s streams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.host.Dial(ctx, "tcp", string(addr))
}

// Apply implements raft.FSM.
func (n *raftNode) Apply(l *raft.Log) any {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.numbers = append(n.numbers, binary.BigEndian.Uint64(l.Data))
	return nil
}

func (n *raftNode) values() []uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.numbers)
}

// Snapshot implements raft.FSM.
func (n *raftNode) Snapshot() (raft.FSMSnapshot, error) { return numbersSnapshot(n.values()), nil }

// Restore implements raft.FSM.
func (n *raftNode) Restore(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.numbers = nil
	for ; len(b) >= 8; b = b[8:] {
		n.numbers = append(n.numbers, binary.BigEndian.Uint64(b))
	}
	return nil
}

type numbersSnapshot []uint64

func (s numbersSnapshot) Persist(sink raft.SnapshotSink) error {
	var b []byte
	for _, v := range s {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	if _, err := sink.Write(b); err != nil {
		return err
	}
	return sink.Close()
}

func (numbersSnapshot) Release() {}
