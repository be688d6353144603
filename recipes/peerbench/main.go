package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"lockkeeper/jepsen"
	"lockkeeper/recipes"
)

var (
	members    = flag.Int("members", 3, "members of each cluster")
	contenders = flag.Int("contenders", 8, "contenders for the lock in the handoff test")
	duration   = flag.Duration("time", 5*time.Second, "how long each measurement takes")
	rounds     = flag.Int("rounds", 3, "how many there are; the median counts")
)

// warmUp is how long everything runs before it is measured; Java needs it.
const warmUp = 3 * time.Second

// system is one thing to measure: n contenders use it on a path, and it says how often a second the
// lock was acquired and released.
type system struct {
	name    string
	measure func(ctx context.Context, path string, n int) (float64, error)
	single  []float64 // one contender
	handoff []float64 // many
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peerbench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "lockkeeper-peerbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := filepath.Join(dir, "lockkeeper")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("..", ".."), "-o", binary, "./cmd/lockkeeper")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	lockkeeper := jepsen.Lockkeeper(binary)
	zookeeper, err := jepsen.ZooKeeper()
	if err != nil {
		return err
	}
	curator, err := jepsen.CuratorProgram("CuratorBench.java")
	if err != nil {
		return err
	}
	var systems []*system
	for _, t := range []jepsen.Target{lockkeeper, zookeeper} {
		at := filepath.Join(dir, "cluster-"+t.Name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		c, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: t, Members: *members, Dir: at})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		servers := c.Servers()
		systems = append(systems,
			&system{name: t.Name + ", recipes.Mutex", measure: ours(servers)},
			&system{name: t.Name + ", Curator", measure: curators(curator, servers)})
	}
	endpoints, stopEtcd, err := startEtcd(ctx, filepath.Join(dir, "etcd"), *members)
	if err != nil {
		return err
	}
	defer stopEtcd()
	systems = append(systems, &system{name: "etcd, concurrency.Mutex", measure: etcds(endpoints)})
	for round := range *rounds {
		for i, s := range systems {
			for _, n := range []int{1, *contenders} {
				rate, err := s.measure(ctx, fmt.Sprintf("/peerbench-%d-%d-%d", i, round, n), n)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				if n == 1 {
					s.single = append(s.single, rate)
				} else {
					s.handoff = append(s.handoff, rate)
				}
			}
		}
	}
	return report(systems)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// report prints the table; the last one of ZooKeeper, Curator's, is what the others are compared
// with.
func report(systems []*system) error {
	i := slices.IndexFunc(systems, func(s *system) bool { return s.name == "zookeeper, Curator" })
	if i < 0 {
		return errors.New("nothing to compare with")
	}
	base := systems[i]
	fmt.Printf("%d members, %v a measurement, median of %d; ratios to ZooKeeper with Curator\n", *members, *duration, *rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\tacquire and release, alone\t\t%d contenders, handoffs a second\t\n", *contenders)
	for _, s := range systems {
		one, many := median(s.single), median(s.handoff)
		fmt.Fprintf(w, "%s\t%.2f ms\tx%.2f\t%.0f\tx%.2f\n", s.name, 1000/one, one/median(base.single), many, many/median(base.handoff))
	}
	return w.Flush()
}

// loop runs work in n goroutines and says how often a second they got round after the warm-up. work
// is made for each of them.
func loop(ctx context.Context, n int, make func() (work func(context.Context) error, stop func(), err error)) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var wg sync.WaitGroup
	for range n {
		work, stop, err := make()
		if err != nil {
			return 0, err
		}
		defer stop()
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := work(ctx); err != nil && ctx.Err() == nil {
					cancel(err)
				}
				done.Add(1)
			}
		})
	}
	sleep := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	sleep(warmUp)
	before, start := done.Load(), time.Now()
	sleep(*duration)
	rate := float64(done.Load()-before) / time.Since(start).Seconds()
	err := context.Cause(ctx)
	cancel(nil)
	wg.Wait()
	return rate, err
}

// ours measures recipes.Mutex, each contender with a session of its own.
func ours(servers string) func(context.Context, string, int) (float64, error) {
	return func(ctx context.Context, path string, n int) (float64, error) {
		return loop(ctx, n, func() (func(context.Context) error, func(), error) {
			s, err := recipes.Connect(recipes.Config{Servers: strings.Split(servers, ",")})
			if err != nil {
				return nil, nil, err
			}
			m := recipes.NewMutex(s, path, recipes.MutexOptions{})
			return func(ctx context.Context) error {
				g, err := m.Lock(ctx)
				if err != nil {
					return err
				}
				return g.Unlock(ctx)
			}, s.Close, nil
		})
	}
}

// curators measures Curator's InterProcessMutex in one JVM.
func curators(program func(args ...string) *exec.Cmd, servers string) func(context.Context, string, int) (float64, error) {
	return func(ctx context.Context, path string, n int) (float64, error) {
		cmd := program(servers, path, strconv.Itoa(n), strconv.FormatInt(warmUp.Milliseconds(), 10), strconv.FormatInt(duration.Milliseconds(), 10))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, err
		}
		count, err := strconv.Atoi(strings.TrimSpace(string(out)))
		return float64(count) / duration.Seconds(), err
	}
}

// etcds measures etcd's concurrency.Mutex.
func etcds(endpoints []string) func(context.Context, string, int) (float64, error) {
	return func(ctx context.Context, path string, n int) (float64, error) {
		return loop(ctx, n, func() (func(context.Context) error, func(), error) {
			c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
			if err != nil {
				return nil, nil, err
			}
			s, err := concurrency.NewSession(c, concurrency.WithTTL(10))
			if err != nil {
				return nil, nil, errors.Join(err, c.Close())
			}
			m := concurrency.NewMutex(s, path)
			return func(ctx context.Context) error {
				if err := m.Lock(ctx); err != nil {
					return err
				}
				return m.Unlock(ctx)
			}, func() { _, _ = s.Close(), c.Close() }, nil
		})
	}
}
