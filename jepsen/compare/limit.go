package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"lockkeeper/bench"
	"lockkeeper/internal/freeport"
	"lockkeeper/internal/zkconn"
	"lockkeeper/jepsen"
	"lockkeeper/jepsen/compare/floor"
	"lockkeeper/wire"
)

// limit is a cluster of package floor.
type limit struct {
	servers []string // the leader first
	members []*jepsen.Process
	pids    []int
}

// limitMember is the first argument of this program as a member of package floor.
const limitMember = "member-of-the-limit"

// runLimitMember is the process of a member.
func runLimitMember(args []string) error {
	var cfg floor.Config
	fs := flag.NewFlagSet(limitMember, flag.ContinueOnError)
	fs.StringVar(&cfg.Clients, "clients", "", "`host:port` where clients connect")
	fs.StringVar(&cfg.Leader, "leader", "", "`host:port` where the followers find the leader")
	fs.BoolVar(&cfg.Leads, "leads", false, "this is the leader")
	fs.StringVar(&cfg.File, "file", "", "the log")
	if err := fs.Parse(args); err != nil {
		return err
	}
	return floor.Member(cfg)
}

func startLimit(ctx context.Context, dir string) (_ *limit, err error) {
	ports, err := freeport.Take(1 + members)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &limit{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for i := range members {
		addr, name := fmt.Sprintf("127.0.0.1:%d", ports[1+i]), fmt.Sprintf("m%d", i)
		cmd := exec.Command(self, limitMember, "-clients", addr, "-leader", fmt.Sprintf("127.0.0.1:%d", ports[0]),
			fmt.Sprintf("-leads=%v", i == 0), "-file", filepath.Join(dir, name))
		cmd.Env = append(os.Environ(), "GOGC=400") // the limit is without garbage collection
		p, err := jepsen.StartProcess("limit "+name, cmd, filepath.Join(dir, name+".log"))
		if err != nil {
			return nil, err
		}
		l.servers, l.members, l.pids = append(l.servers, addr), append(l.members, p), append(l.pids, cmd.Process.Pid)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, addr := range l.servers {
		for {
			if err = greet(addr); err == nil {
				break
			}
			if !jepsen.Sleep(ctx, 20*time.Millisecond) {
				return nil, fmt.Errorf("the limit does not serve: %w", err)
			}
		}
	}
	return l, nil
}

// greet opens a session and drops it.
func greet(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, err = zkconn.New(conn).Handshake(wire.ConnectRequest{TimeoutMs: 6000, Password: make([]byte, wire.PasswordLen)})
	return err
}

func (l *limit) measure(ctx context.Context, do load, duration time.Duration) (*bench.Result, error) {
	return bench.Run(ctx, bench.Config{Workload: do.workload, Servers: inOrder(l.servers, l.servers[0], do.first),
		PIDs: l.pids, Clients: do.clients, InFlight: do.inFlight, Rate: do.rate, Duration: duration})
}

func (l *limit) close() error {
	var errs []error
	for _, p := range l.members {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}
