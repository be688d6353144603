package system

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

const etcdMembers = 3

// startEtcd starts members with etcd's defaults. It is a program in Go, so its clock cannot be set.
func startEtcd(ctx context.Context, site Site) (System, error) {
	n := site.size(etcdMembers)
	ports, err := freeport.Take(2 * n)
	if err != nil {
		return nil, err
	}
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf("etcd-%d=http://%s", i+1, at(site.place(i).PeerHost, ports[2*i])))
	}
	s := &programs{}
	for i := range n {
		name, peer, _ := strings.Cut(members[i], "=")
		p := &program{name: name, addr: at(site.place(i).ClientHost, ports[2*i+1]), place: site.place(i), dir: site.Dir,
			data: filepath.Join(site.Dir, name)}
		client := "http://" + p.addr
		p.command = []string{"etcd", "--name", name, "--data-dir", p.data, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--initial-cluster", strings.Join(members, ","), "--log-level", "error"}
		p.ready = func(ctx context.Context) error { return etcdHealthy(ctx, p.addr) }
		s.servers = append(s.servers, p)
	}
	s.primary = func(ctx context.Context) (int, error) { return etcdLeader(ctx, s.servers) }
	s.failover = func(ctx context.Context) error {
		return jepsen.Poll(ctx, 50*time.Millisecond, func() error { _, err := s.primary(ctx); return err })
	}
	s.requests = func(ctx context.Context) int64 { return etcdRequests(ctx, s.servers) }
	// No member serves before a majority has started.
	errs := make([]error, len(s.servers))
	var starting sync.WaitGroup
	for i, server := range s.servers {
		starting.Go(func() { errs[i] = server.Start(ctx) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func etcdGet(ctx context.Context, addr, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*askPatience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	context.AfterFunc(ctx, cancel)
	return resp, nil
}

func etcdHealthy(ctx context.Context, addr string) error {
	resp, err := etcdGet(ctx, addr, "/health")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("etcd: " + resp.Status)
	}
	return nil
}

// etcdLeader asks each member whether it leads.
func etcdLeader(ctx context.Context, servers []Server) (int, error) {
	for i, server := range servers {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, DialTimeout: askPatience, Logger: zap.NewNop()})
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		st, err := c.Status(ctx, server.Addr())
		cancel()
		_ = c.Close()
		if err == nil && st.Leader == st.Header.MemberId {
			return i, nil
		}
	}
	return 0, errors.New("system: no member of etcd says that it leads")
}

// etcdRequests adds up the requests that were answered.
func etcdRequests(ctx context.Context, servers []Server) (sum int64) {
	for _, server := range servers {
		resp, err := etcdGet(ctx, server.Addr(), "/metrics")
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if line := lines.Text(); strings.HasPrefix(line, "grpc_server_msg_received_total{") {
				value, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				sum += int64(value)
			}
		}
		_ = resp.Body.Close()
	}
	return sum
}
