//go:build unix

package server

import (
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/freeport"
	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/store"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// heldLog is a log with writes that wait in a system call while it is held, as on a disk that
// hangs.
type heldLog struct {
	store.Log
	held    atomic.Bool
	waiting atomic.Int32
	r, w    *os.File // a pipe: a byte in it ends one write
}

func (l *heldLog) StoreLogs(logs []*raft.Log) error {
	for l.held.Load() {
		l.waiting.Add(1)
		// Fd makes it a blocking call.
		if _, err := syscall.Read(int(l.r.Fd()), make([]byte, 1)); err != nil {
			return err
		}
	}
	return l.Log.StoreLogs(logs)
}

func (l *heldLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *heldLog) release(t *testing.T) {
	l.held.Store(false)
	if _, err := l.w.Write([]byte{0}); err != nil {
		t.Error(err)
	}
}

// Members with GOMAXPROCS=1 go on while threads of them wait for the disk: they answer reads and
// pings, the leader stays the leader, since no voter has a disk that is well, and keeps the
// sessions at the followers by confirming their leases.
func TestOneProcessorGoesOnWhileAWriteIsBlocked(t *testing.T) {
	checkGoroutines(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 3
	base, err := freeport.Block(2 * n)
	if err != nil {
		t.Fatal(err)
	}
	var members []Member
	for i := range n {
		members = append(members, Member{ID: uint8(i + 1), Host: "127.0.0.1", PeerPort: base + 2*i, ElectionPort: base + 2*i + 1})
	}
	var servers []*Server
	var logs []*heldLog
	for i := range n {
		stores := diskStores(simdisk.New())
		l := &heldLog{Log: stores.Log}
		if l.r, l.w, err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
		stores.Log = l
		logs = append(logs, l)
		s, err := Start(Config{
			Cluster:  zoocfg.Cluster{ID: members[i].ID, Members: members},
			Client:   zoocfg.Client{Addr: "127.0.0.1:0"},
			Machine:  zoocfg.Machine{Stores: stores},
			Sessions: zoocfg.Sessions{TickTime: 200 * time.Millisecond},
			Logger:   testLogger().With("member", i+1),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		servers = append(servers, s)
	}
	leader := -1
	await(t, "a leader", func() bool {
		for i, s := range servers {
			if s.replica.Leader() == s.replica.ID() {
				leader = i
			}
		}
		return leader >= 0
	})
	for _, s := range servers {
		awaitServing(t, s)
	}
	const timeout = time.Second
	var readers []*rawClient
	for _, s := range servers {
		c := dialReal(t, s)
		c.connect(timeout)
		readers = append(readers, c)
	}
	writer := dialReal(t, servers[leader])
	writer.connect(10 * timeout)
	for _, l := range logs {
		l.held.Store(true)
	}
	writer.put(writer.request(wire.OpCreate, create("/held", nil, 0))...)
	await(t, "the blocked writes", func() bool {
		return !slices.ContainsFunc(logs, func(l *heldLog) bool { return l.waiting.Load() == 0 })
	})
	term := servers[leader].replica.Status().Term

	for range 40 { // twice the sessions' timeout
		for _, c := range readers {
			c.call(wire.OpExists, &wire.PathWatchRequest{Path: "/zookeeper"})
			c.call(wire.OpPing, nil)
		}
		writer.put(writer.request(wire.OpPing, nil)...) // answered behind the write
		time.Sleep(timeout / 20)                        // a client's own pace
	}
	if got := servers[leader].replica.Status().Term; got != term || servers[leader].replica.Leader() != servers[leader].replica.ID() {
		t.Errorf("in term %d member %d leads; in term %d it was member %d", got, servers[leader].replica.Leader(), term, leader+1)
	}
	for _, l := range logs {
		l.release(t)
	}
	if h, _ := writer.reply(); h.Err != 0 {
		t.Errorf("the write: %v", h.Err)
	}
}
