package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/lock"
)

const keeperMembers = 3

// keeper is a cluster of ZooKeeper or lockkeeper.
type keeper struct {
	*jepsen.Cluster
	tools   *jepsen.Toolbox
	servers []Server
}

func needsZooKeeper() error { _, err := jepsen.ZooKeeper(); return err }

func startZooKeeper(ctx context.Context, dir string, lease time.Duration) (System, error) {
	return startKeeper(ctx, dir, lease, false, func(*jepsen.Toolbox) (jepsen.Target, error) { return jepsen.ZooKeeper() })
}

func startLockkeeper(ctx context.Context, dir string, lease time.Duration) (System, error) {
	return startKeeper(ctx, dir, lease, true, func(*jepsen.Toolbox) (jepsen.Target, error) { return buildLockkeeper(ctx, dir) })
}

// buildLockkeeper builds the server of the source tree that this module is in.
func buildLockkeeper(ctx context.Context, dir string) (jepsen.Target, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "lockkeeper").Output()
	if err != nil {
		return jepsen.Target{}, fmt.Errorf("system: where are the sources of lockkeeper? %w", err)
	}
	binary := filepath.Join(dir, "lockkeeper")
	build := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-o", binary, "./cmd/lockkeeper")
	if out, err := build.CombinedOutput(); err != nil {
		return jepsen.Target{}, fmt.Errorf("system: build lockkeeper: %w\n%s", err, out)
	}
	return jepsen.Lockkeeper(binary), nil
}

// startKeeper starts three members and builds the clients in other languages, which the processes
// of the lab's clients find by lock.ClientsEnv. Sessions have between 2 and 20 ticks, and clients
// ask for a lease.
func startKeeper(ctx context.Context, dir string, lease time.Duration, testClocks bool,
	find func(*jepsen.Toolbox) (jepsen.Target, error)) (_ System, err error) {
	k := &keeper{}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	if k.tools, err = jepsen.NewToolbox(false); err != nil {
		return nil, err
	}
	target, err := find(k.tools)
	if err != nil {
		return nil, err
	}
	if err := k.provide(dir); err != nil {
		return nil, err
	}
	if lease <= 0 {
		lease = 2 * time.Second
	}
	cfg := jepsen.ClusterConfig{Target: target, Members: keeperMembers, Dir: dir, TickTime: lease / 2, TestClocks: testClocks}
	var clocks []*clock
	for i := range keeperMembers {
		clocks = append(clocks, newClock(dir, fmt.Sprintf("m%d", i+1)))
	}
	if !testClocks {
		cfg.Env = func(id int) []string { return clocks[id-1].env() }
	}
	if k.Cluster, err = jepsen.StartCluster(ctx, cfg); err != nil {
		return nil, err
	}
	for i, m := range k.Members() {
		set := clocks[i].set
		if testClocks {
			set = m.SetClock
		}
		k.servers = append(k.servers, &keeperServer{m, set})
	}
	return k, k.Failover(ctx)
}

// provide writes down the command lines of the clients that can be built.
func (k *keeper) provide(dir string) error {
	for _, find := range []func() (jepsen.Client, error){k.tools.Curator, k.tools.Kazoo} {
		c, err := find()
		if errors.Is(err, jepsen.ErrMissing) {
			continue
		}
		text, e := json.Marshal(c)
		if err = errors.Join(err, e); err == nil {
			err = os.WriteFile(filepath.Join(dir, c.Name+".json"), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("system: %w", err)
		}
	}
	return os.Setenv(lock.ClientsEnv, dir)
}

// Servers implements System.
func (k *keeper) Servers() []Server { return k.servers }

// Primary implements System.
func (k *keeper) Primary(ctx context.Context) (int, error) {
	for i, m := range k.Members() {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		mode, err := m.Mode(ctx)
		cancel()
		if err == nil && mode == "leader" {
			return i, nil
		}
	}
	return 0, errors.New("system: no member says that it leads")
}

// Failover implements System: the others elect a leader by themselves.
func (k *keeper) Failover(ctx context.Context) error {
	return jepsen.Poll(ctx, 50*time.Millisecond, func() error { _, err := k.Primary(ctx); return err })
}

// Requests implements System. What clients send includes pings.
func (k *keeper) Requests(ctx context.Context) (sum int64) {
	for _, m := range k.Members() {
		text, err := jepsen.FourLetter(ctx, m.ClientAddr, "srvr")
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "Received: "); ok {
				v, _ := strconv.ParseInt(n, 10, 64)
				sum += v
			}
		}
	}
	return sum
}

// Close implements System.
func (k *keeper) Close() error {
	var errs []error
	if k.Cluster != nil {
		errs = append(errs, k.Cluster.Close())
	}
	if k.tools != nil {
		errs = append(errs, k.tools.Close())
	}
	return errors.Join(errs...)
}

// keeperServer is a member.
type keeperServer struct {
	*jepsen.Member
	setClock func(time.Duration) error
}

// Name implements Server.
func (s *keeperServer) Name() string { return s.String() }

// Addr implements Server.
func (s *keeperServer) Addr() string { return s.ClientAddr }

// Pause implements Server.
func (s *keeperServer) Pause() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.Member.Pause(ctx)
}

// Start implements Server.
func (s *keeperServer) Start(ctx context.Context) error {
	if err := s.Member.Start(); err != nil {
		return err
	}
	return s.AwaitServing(ctx)
}

// SetClock implements Server.
func (s *keeperServer) SetClock(ahead time.Duration) error { return s.setClock(ahead) }
