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
	"sync"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/lock"
)

const keeperMembers = 3

// keeper is a cluster of ZooKeeper or lockkeeper.
type keeper struct {
	*jepsen.Cluster
	servers []Server
	clients bool // it uses the shared clients
}

func needsZooKeeper() error { _, err := jepsen.ZooKeeper(); return err }

func startZooKeeper(ctx context.Context, site Site) (System, error) {
	return startKeeper(ctx, site, false, func() (jepsen.Target, error) { return jepsen.ZooKeeper() })
}

func startLockkeeper(ctx context.Context, site Site) (System, error) {
	return startKeeper(ctx, site, true, func() (jepsen.Target, error) { return buildLockkeeper(ctx, site.Dir) })
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

// startKeeper starts members and builds the clients in other languages, which the processes
// of the lab's clients find by lock.ClientsEnv. Sessions have between 2 and 20 ticks, and clients
// ask for a lease, which is four ticks, or for a few leases.
func startKeeper(ctx context.Context, site Site, testClocks bool,
	find func() (jepsen.Target, error)) (_ System, err error) {
	k := &keeper{}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	target, err := find()
	if err != nil {
		return nil, err
	}
	if err := clients.acquire(); err != nil {
		return nil, err
	}
	k.clients = true
	lease := site.Lease
	if lease <= 0 {
		lease = 2 * time.Second
	}
	cfg := jepsen.ClusterConfig{Target: target, Members: site.size(keeperMembers), Dir: site.Dir, TickTime: lease / 4,
		TestClocks: testClocks, Places: site.Places}
	var clocks []*Clock
	for i := range cfg.Members {
		clocks = append(clocks, NewClock(site.Dir, fmt.Sprintf("m%d", i+1)))
	}
	if !testClocks {
		cfg.Env = func(id int) []string { return clocks[id-1].Env() }
	}
	if k.Cluster, err = jepsen.StartCluster(ctx, cfg); err != nil {
		return nil, err
	}
	for i, m := range k.Members() {
		set := clocks[i].Set
		if testClocks {
			set = m.SetClock
		}
		k.servers = append(k.servers, &keeperServer{m, set})
	}
	return k, k.Failover(ctx)
}

// shared are the clients in other languages, for all systems that run at the same time.
type shared struct {
	mu    sync.Mutex
	users int
	tools *jepsen.Toolbox
	dir   string // where the processes of clients look for them
}

var clients shared

// acquire builds them for the first system, as far as their requirements are installed.
func (s *shared) acquire() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users++; s.users > 1 {
		return nil
	}
	defer func() {
		if err != nil {
			s.users--
			err = errors.Join(err, s.remove())
		}
	}()
	if s.tools, err = jepsen.NewToolbox(false); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "locklab-clients-"); err != nil {
		return fmt.Errorf("system: %w", err)
	}
	for _, find := range []func() (jepsen.Client, error){s.tools.Curator, s.tools.Kazoo, s.tools.FencedCurator, s.tools.FencedKazoo} {
		c, err := find()
		if errors.Is(err, jepsen.ErrMissing) {
			continue
		}
		text, e := json.Marshal(c)
		if err = errors.Join(err, e); err == nil {
			err = os.WriteFile(filepath.Join(s.dir, c.Name+".json"), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("system: %w", err)
		}
	}
	return os.Setenv(lock.ClientsEnv, s.dir)
}

// release removes them with the last system.
func (s *shared) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	return s.remove()
}

func (s *shared) remove() error {
	var err error
	if s.tools != nil {
		err = s.tools.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
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

// Requests implements System. The clients' requests include pings.
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
	if k.clients {
		errs = append(errs, clients.release())
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

// Data implements Server.
func (s *keeperServer) Data() string { return s.DataDir() }

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
