package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
	"lockkeeper/recipes"
)

// libraryWarmUp is how long locks of libraries are taken before it counts; Java needs it.
const libraryWarmUp = 3 * time.Second

// lockPath is a path that no other measurement uses.
func lockPath() string { return fmt.Sprintf("/compare-%d", time.Now().UnixNano()) }

// mutexClient is a client, with a session of its own, that takes and gives back a recipes.Mutex.
func mutexClient(servers []string) func(ctx context.Context, n int, done func(time.Duration)) error {
	path := lockPath()
	return func(ctx context.Context, _ int, done func(time.Duration)) error {
		s, err := recipes.Connect(recipes.Config{Servers: servers})
		if err != nil {
			return err
		}
		defer s.Close()
		m := recipes.NewMutex(s, path, recipes.MutexOptions{})
		for ctx.Err() == nil {
			start := time.Now()
			g, err := m.Lock(ctx)
			if err == nil {
				err = g.Unlock(ctx)
			}
			if err != nil {
				return err
			}
			done(time.Since(start))
		}
		return nil
	}
}

// measureCurator has Curator's InterProcessMutex taken and given back, by all clients in one JVM.
// Only the throughput is measured.
func measureCurator(ctx context.Context, cfg bench.Config, source string) (*bench.Result, error) {
	program, err := jepsen.CuratorProgram(source)
	if err != nil {
		return nil, err
	}
	cmd := program(strings.Join(cfg.Servers, ","), lockPath(), strconv.Itoa(cfg.Clients),
		strconv.FormatInt(cfg.WarmUp.Milliseconds(), 10), strconv.FormatInt(cfg.Duration.Milliseconds(), 10))
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	if err = cmd.Start(); err == nil {
		defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("curator: %w", err)
	}
	count, err := strconv.ParseUint(strings.TrimSpace(printed.String()), 10, 64)
	return &bench.Result{
		Workload: locks, Servers: cfg.Servers, Clients: cfg.Clients,
		Seconds: cfg.Duration.Seconds(), Ops: count, PerSecond: float64(count) / cfg.Duration.Seconds(),
	}, err
}
