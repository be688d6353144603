package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"lockkeeper/wire"
)

const bootRounds = 5

// boot starts a server again and again. An operation is a start: from the command to the first node
// created.
func boot(ctx context.Context, r *run) error {
	r.Rounds = cmp.Or(r.Rounds, bootRounds)
	r.enter("measure")
	for round := range r.Rounds {
		began := time.Now()
		p, err := startServer(r.Start)
		if err != nil {
			return err
		}
		err = p.await(ctx, r.route(), r.server(0), func(c *conn) error {
			path, err := c.create(fmt.Sprintf("/bench-boot-%d-%d-", os.Getpid(), round), wire.ModePersistentSequential)
			if err != nil {
				return err
			}
			took := time.Since(began)
			r.opened(took)
			r.elapsed += took
			return c.remove(path)
		})
		if u, err := UsageOf(p.cmd.Process.Pid); err == nil {
			r.figures["resident bytes after the start"] = float64(u.Resident)
		}
		p.kill()
		if err != nil {
			return err
		}
	}
	return nil
}

// server is a process that this package has started.
type server struct {
	cmd    *exec.Cmd
	output *os.File // a file and no pipe: the server may outlive this process
	done   chan struct{}
}

func startServer(command []string) (*server, error) {
	output, err := os.CreateTemp("", "lockkeeper-bench-")
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	_ = os.Remove(output.Name()) // it stays for as long as a process has it open
	p := &server{cmd: exec.Command(command[0], command[1:]...), output: output, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	if err := p.cmd.Start(); err != nil {
		_ = output.Close()
		return nil, fmt.Errorf("start a server: %w", err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

func (p *server) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// lastLines are the last lines that a server has printed.
func (p *server) lastLines() string {
	const lines, most = 5, 1 << 20
	text, _ := io.ReadAll(io.NewSectionReader(p.output, 0, most))
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

const (
	// awaitPatience is how long a server may take to serve.
	awaitPatience = 2 * time.Minute
	// firstPatience is how long it may take to answer one client meanwhile; the next one waits
	// twice as long, up to lastPatience. A ZooKeeper that is starting takes the first connections
	// and forgets them.
	firstPatience, lastPatience = 50 * time.Millisecond, 5 * time.Second
)

// await tries until f has succeeded on a connection to addr.
func (p *server) await(ctx context.Context, via route, addr string, f func(c *conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, awaitPatience)
	defer cancel()
	for patience := firstPatience; ; {
		c, err := dial(ctx, via, addr, 10*time.Second, patience)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			patience = min(2*patience, lastPatience)
		}
		if err == nil {
			err = f(c)
			c.end()
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the server has ended: %s", p.lastLines())
		case <-ctx.Done():
			return fmt.Errorf("the server does not serve: %w (%w)", err, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// restart kills the first server and starts it again; it is over when a client of it reads a node.
// The server goes on running when this process has ended.
func (r *run) restart(ctx context.Context) (time.Duration, error) {
	if err := killProcess(r.PIDs[0]); err != nil {
		return 0, err
	}
	began := time.Now()
	p, err := startServer(r.Start)
	if err != nil {
		return 0, err
	}
	r.PIDs[0] = p.cmd.Process.Pid
	var took time.Duration
	err = p.await(ctx, r.route(), r.server(0), func(c *conn) error {
		_, err := c.call(wire.OpGetData, &wire.PathWatchRequest{Path: r.dir + "/d0/node-000000"})
		took = time.Since(began)
		return err
	})
	return took, err
}

// killProcess ends a process with SIGKILL and waits until it has gone.
func killProcess(pid int) error {
	if pid <= 0 { // to the kernel that would be a group of processes
		return errors.New("kill a server: its process is not known")
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	for start := time.Now(); time.Since(start) < patience; time.Sleep(time.Millisecond) {
		if gone(pid) {
			return nil
		}
	}
	return fmt.Errorf("process %d does not go", pid)
}

// failover kills the leader while clients write. The servers must answer the four-letter word srvr.
func failover(ctx context.Context, r *run) error {
	leader := slices.IndexFunc(r.Servers, func(addr string) bool { return mode(r.route(), addr) == "leader" })
	if leader < 0 {
		return errors.New("no server says that it leads")
	}
	if r.PIDs[leader] == 0 {
		return fmt.Errorf("the process of the leader, %s, is not known", r.Servers[leader])
	}
	if err := r.makeKeys(ctx); err != nil {
		return err
	}
	f := &leaderKill{run: r, leader: leader}
	stop := time.AfterFunc(r.WarmUp+r.Duration/2, f.kill)
	defer stop.Stop()
	err := r.clients(ctx, f.client)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = errors.Join(err, f.err); err != nil {
		return err
	}
	if f.gap == 0 {
		return errors.New("no write succeeded after the leader was killed: make it last longer")
	}
	r.figures["gap without a write ms"] = ms(f.gap)
	r.figures["connections lost on survivors"] = float64(f.lost)
	r.figures["connections on survivors"] = float64(f.bystanders)
	return nil
}

// leaderKill records a kill of the leader as the clients of failover see it.
type leaderKill struct {
	run    *run
	leader int

	mu         sync.Mutex
	armed      bool          // the leader is dead
	last       time.Time     // the last write that succeeded, at first the kill
	gap        time.Duration // the longest without one since the kill
	lost       int           // connections to other servers that broke
	bystanders int           // connections to other servers
	err        error         // of the kill
}

// kill kills the leader, and clients go on meanwhile.
func (f *leaderKill) kill() {
	f.mu.Lock()
	f.armed, f.last = true, time.Now()
	f.mu.Unlock()
	err := killProcess(f.run.PIDs[f.leader])
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
}

// written counts a write that succeeded.
func (f *leaderKill) written(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed {
		f.gap = max(f.gap, at.Sub(f.last))
	}
	f.last = at
}

// client writes one request at a time.
func (f *leaderKill) client(n int) work {
	r := f.run
	survivor := n%len(r.Servers) != f.leader
	count := func(n *int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		*n++
	}
	if survivor {
		count(&f.bystanders)
	}
	first := true
	return func(ctx context.Context, c *conn, done func(time.Duration)) error {
		mine := first && survivor // its first connection, to a server that stays
		first = false
		for i := 0; ctx.Err() == nil; i++ {
			start := time.Now()
			if err := c.set(r.key(n, i%keysPerClient), r.Size); err != nil {
				if mine && ctx.Err() == nil {
					count(&f.lost)
				}
				return err
			}
			now := time.Now()
			f.written(now)
			done(now.Sub(start))
		}
		return ctx.Err()
	}
}
