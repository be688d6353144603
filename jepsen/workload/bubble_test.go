package workload

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/simdisk"
	"lockkeeper/internal/simnet"
	"lockkeeper/jepsen"
	"lockkeeper/quorum/store"
	"lockkeeper/server"
)

var (
	bubbleSeed = flag.Uint64("bubble.seed", 1, "seed of TestWorkloadsInABubble")
	bubbleTime = flag.Duration("bubble.time", 30*time.Second,
		"virtual time that TestWorkloadsInABubble runs each workload")
)

// TestWorkloadsInABubble runs every workload against three members on a simulated network. Members
// lose their power, one after the other and all at once; one is cut off from the others. Every
// promise is kept, and every checker saw enough to say so.
func TestWorkloadsInABubble(t *testing.T) {
	for _, name := range append(Names(), Hold) {
		t.Run(name, func(t *testing.T) {
			var ops []jepsen.Op
			synctest.Test(t, func(t *testing.T) { ops = runInBubble(t, name) })
			w, err := New(name)
			if err != nil {
				t.Fatal(err)
			}
			started := time.Now()
			v := w.Check(ops)
			t.Logf("%d entries, checked in %v\n%s %v", len(ops), time.Since(started).Round(time.Millisecond),
				verdictText(v), v.Figures)
			if v.Valid != Yes {
				t.Errorf("the verdict is %s", v.Valid)
			}
		})
	}
}

func runInBubble(t *testing.T, name string) []jepsen.Op {
	s := newStage(t)
	defer s.close()
	w, err := New(name)
	if err != nil {
		t.Fatal(err)
	}
	think := 50 * time.Millisecond
	if jepsen.Race {
		think *= 2
	}
	env := &Env{
		Servers: s.addrs(), History: jepsen.NewHistory(), Seed: *bubbleSeed, Clients: 5,
		SessionTimeout: 4 * time.Second, Think: think,
		Dial: func(client string) zk.Dialer {
			return func(network, addr string, timeout time.Duration) (net.Conn, error) {
				return s.net.Host("10.0.1."+client).DialTimeout(network, addr, timeout)
			}
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), *bubbleTime)
	defer cancel()
	var clients sync.WaitGroup
	for n := range env.Clients {
		clients.Go(func() {
			if err := w.Run(ctx, env, n); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
		})
	}
	s.trouble(ctx, env.History)
	clients.Wait()
	final, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Final(final, env); err != nil {
		t.Errorf("final: %v", err)
	}
	return env.History.Ops()
}

// stage is a cluster of three members in memory.
type stage struct {
	t       *testing.T
	net     *simnet.Network
	disks   []*simdisk.Disk
	members []*server.Server
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, disks: make([]*simdisk.Disk, 3), members: make([]*server.Server, 3)}
	s.net = simnet.New(simnet.Config{
		Seed: *bubbleSeed, Latency: 300 * time.Microsecond, Jitter: 400 * time.Microsecond,
		RTO: 200 * time.Millisecond, KeepAlive: 15 * time.Second, BufferBytes: 256 << 10,
	})
	for i := range s.members {
		s.disks[i] = simdisk.New()
		s.start(i)
	}
	return s
}

func (s *stage) host(i int) string { return fmt.Sprintf("10.0.0.%d", i+1) }

func (s *stage) addrs() []string {
	var list []string
	for i := range s.members {
		list = append(list, s.host(i)+":2181")
	}
	return list
}

func (s *stage) start(i int) {
	host := s.net.Host(s.host(i))
	stores, err := store.OpenOn(s.disks[i].Files(), 64<<10, s.disks[i], s.disks[i])
	if err != nil {
		s.t.Errorf("the disk of member %d: %v", i+1, err)
	}
	cfg := server.Config{Logger: slog.New(slog.DiscardHandler)}
	cfg.Client.Addr = s.host(i) + ":2181"
	cfg.Sessions.TickTime = 2 * time.Second
	cfg.Data.SnapCount = 300
	cfg.Cluster.ID = uint8(i + 1)
	cfg.Machine.Listen, cfg.Machine.Dial, cfg.Machine.Stores = host.Listen, host.Dial, &stores
	if os.Getenv("LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("at", i+1)
	}
	for o := range s.members {
		cfg.Cluster.Members = append(cfg.Cluster.Members, server.Member{ID: uint8(o + 1), Host: s.host(o), PeerPort: 2888,
			ElectionPort: 3888})
	}
	m, err := server.Start(cfg)
	if err != nil {
		s.t.Errorf("member %d does not start: %v", i+1, err)
	}
	s.members[i] = m
}

// powerCut takes the power from some members and gives it back after a second.
func (s *stage) powerCut(h *jepsen.History, list ...int) {
	for _, i := range list {
		h.Add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FKill, Member: s.host(i) + ":2181"})
		s.net.Reset(s.host(i))
		s.disks[i] = s.disks[i].Crash()
	}
	for _, i := range list {
		s.stop(i)
	}
	time.Sleep(time.Second)
	for _, i := range list {
		s.start(i)
		h.Add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FRestart, Member: s.host(i) + ":2181"})
	}
}

func (s *stage) stop(i int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	if err := s.members[i].Shutdown(ctx); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
}

// trouble breaks things until ctx ends, and leaves them whole.
func (s *stage) trouble(ctx context.Context, h *jepsen.History) {
	for round := 0; jepsen.Sleep(ctx, 4*time.Second); round++ {
		switch i := round / 3 % 3; round % 3 {
		case 0:
			s.powerCut(h, i)
		case 1:
			// The member is cut off from the others, but not from its clients.
			h.Add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FCut, Member: s.host(i) + ":2181"})
			s.net.Partition(s.host(i), s.host((i+1)%3))
			s.net.Partition(s.host(i), s.host((i+2)%3))
			jepsen.Sleep(ctx, 8*time.Second)
			s.net.HealAll()
			h.Add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FHeal, Member: s.host(i) + ":2181"})
		case 2:
			s.powerCut(h, 0, 1, 2)
		}
	}
	s.net.HealAll()
}

func (s *stage) close() {
	for i := range s.members {
		s.stop(i)
	}
	s.net.Close() // go-zookeeper's Close waits for nothing
}
