package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"lockkeeper/internal/freeport"
)

// startEtcd starts a cluster of n members and waits until it takes writes.
func startEtcd(ctx context.Context, dir string, n int) (endpoints []string, stop func(), err error) {
	ports, err := freeport.Take(2 * n)
	if err != nil {
		return nil, nil, err
	}
	var initial []string
	for i := range n {
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i]))
		endpoints = append(endpoints, fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1]))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	var running []*exec.Cmd
	stop = func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // says that it was killed
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for i := range n {
		peer, client := strings.SplitN(initial[i], "=", 2)[1], endpoints[i]
		cmd := exec.Command("etcd", "--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(dir, fmt.Sprint(i)),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--initial-cluster", strings.Join(initial, ","), "--log-level", "error")
		log, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.log", i)))
		if err != nil {
			return nil, nil, err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return nil, nil, fmt.Errorf("%w (apt-get install etcd-server)", err)
		}
		running = append(running, cmd)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 20 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if _, err = c.Put(ctx, "peerbench", ""); err == nil || ctx.Err() != nil {
			return endpoints, stop, err
		}
	}
}
