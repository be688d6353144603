package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"lockkeeper/bench"
	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

// etcd is a cluster of etcd.
type etcd struct {
	endpoints []string // host:port
	members   []*jepsen.Process
	pids      []int
}

// startEtcd starts members of a program of etcd's, and waits until they take writes.
func startEtcd(ctx context.Context, program, dir string, members int, with settings) (_ *etcd, err error) {
	ports, err := freeport.Take(2 * members)
	if err != nil {
		return nil, err
	}
	e := &etcd{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	var cluster []string
	for i := range members {
		cluster = append(cluster, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i]))
	}
	for i := range members {
		name, peer, _ := strings.Cut(cluster[i], "=")
		addr := fmt.Sprintf("127.0.0.1:%d", ports[2*i+1])
		line := append(with.etcd(program, filepath.Join(dir, name)), "--name", name,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
			"--initial-cluster", strings.Join(cluster, ","), "--log-level", "error")
		cmd := exec.Command(line[0], line[1:]...)
		p, err := jepsen.StartProcess("etcd "+name, cmd, filepath.Join(dir, name+".log"))
		if err != nil {
			return nil, fmt.Errorf("%w (apt-get install etcd-server)", err)
		}
		e.endpoints, e.members, e.pids = append(e.endpoints, addr), append(e.members, p),
			append(e.pids, cmd.Process.Pid)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, endpoint := range e.endpoints {
		c, err := dialEtcd(endpoint)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		for {
			if _, err = c.Put(ctx, "compare", ""); err == nil {
				break
			}
			if !jepsen.Sleep(ctx, 50*time.Millisecond) {
				return nil, fmt.Errorf("etcd does not serve: %w", err)
			}
		}
	}
	return e, nil
}

func dialEtcd(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second,
		Logger: zap.NewNop()})
}

func (e *etcd) close() error {
	var errs []error
	for _, p := range e.members {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}

// leader is the endpoint of the member that leads.
func (e *etcd) leader(ctx context.Context) (addr string, err error) {
	for _, endpoint := range e.endpoints {
		c, err := dialEtcd(endpoint)
		if err != nil {
			return "", err
		}
		s, err := c.Status(ctx, endpoint)
		if err = errors.Join(err, c.Close()); err != nil {
			return "", fmt.Errorf("etcd: status: %w", err)
		}
		if s.Leader == s.Header.MemberId {
			return endpoint, nil
		}
	}
	return "", errors.New("etcd: no member says that it leads")
}

func (e *etcd) measure(ctx context.Context, l load, duration time.Duration) (*bench.Result, error) {
	if l.workload == idle {
		return rest(ctx, e.pids)
	}
	leads, err := e.leader(ctx)
	if err != nil {
		return nil, err
	}
	w := &etcdLoad{clients: l.clients, prefix: lockPath()}
	client := map[string]etcdClient{"write": w.write, "lock-cycle": w.cycle, "lock-contended": w.contend,
		locks: w.share}[l.workload]
	if client == nil {
		return nil, fmt.Errorf("etcd has no workload %s", l.workload)
	}
	r, err := w.run(ctx, e, inOrder(e.endpoints, leads, l.first), client, l.rate, duration)
	if err != nil {
		return nil, fmt.Errorf("etcd: %s: %w", l.workload, err)
	}
	r.Workload = l.workload
	return r, nil
}

// etcdVersion asks the program.
func etcdVersion(program string) string {
	return strings.ReplaceAll(output(program, "--version"), "etcd Version:", "etcd")
}

// buildEtcd builds the etcd of the module etcdserver, newer than Debian's.
func buildEtcd(ctx context.Context, sources, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "go.etcd.io/etcd/server/v3")
	cmd.Dir = filepath.Join(sources, "jepsen", "compare", "etcdserver")
	cmd.Env = append(os.Environ(), "GOWORK=off") // its dependencies are its own
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build etcd 3.7: %w (leave etcd37 out of -systems)\n%s", err, out)
	}
	return nil
}
