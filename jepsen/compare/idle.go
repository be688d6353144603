package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"lockkeeper/bench"
)

// idleClients is the first argument of this program as a process that has idle sessions: a process
// may have no more open files than the system lets it.
const idleClients = "idle-clients"

// idleEach is the number of sessions of such a process. Each process has a source address of its
// own: the kernel looks long for a free port of one address when half of them (14,000) are taken.
const idleEach = 10_000

// runIdleClients is that process. It prints a line when its sessions are open, then it reads one
// that says how they end: close or abandon.
func runIdleClients(args []string, in io.Reader, out io.Writer) error {
	cfg := bench.Config{}
	fs := flag.NewFlagSet(idleClients, flag.ContinueOnError)
	servers := fs.String("servers", "", "`host:port,...`")
	fs.IntVar(&cfg.Clients, "sessions", 1, "their number")
	fs.DurationVar(&cfg.Session, "timeout", 0, "of each session")
	fs.TextVar(&cfg.Source, "source", netip.Addr{}, "local `address` of the connections")
	if err := fs.Parse(args); err != nil {
		return err
	}
	cfg.Servers = strings.Split(*servers, ",")
	idle, err := bench.OpenIdle(context.Background(), cfg)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "open")
	end, _ := bufio.NewReader(in).ReadString('\n')
	if strings.TrimSpace(end) == "close" {
		return idle.Close()
	}
	return idle.Abandon()
}

// idleSessions are open sessions, in processes of their own.
type idleSessions struct {
	took  time.Duration // to open them
	parts []*idlePart
}

// idlePart is one such process.
type idlePart struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// openIdle opens n sessions, spread over servers. No two openings have a source address in common:
// the ports of connections that were closed are not free for a minute, and the kernel takes most of
// the processor to look for one among 10,000 of them.
func (r *ownRun) openIdle(ctx context.Context, servers string, n int, timeout time.Duration) (_ *idleSessions,
	err error) {
	r.openings++
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &idleSessions{}
	defer func() {
		if err != nil {
			_ = s.end("abandon")
		}
	}()
	began := time.Now()
	for ; n > 0; n -= idleEach {
		cmd := exec.CommandContext(ctx, self, idleClients, "-servers", servers, "-sessions", fmt.Sprint(min(n, idleEach)),
			"-timeout", timeout.String(), "-source", fmt.Sprintf("127.0.%d.%d", r.openings, 1+len(s.parts)))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		s.parts = append(s.parts, &idlePart{cmd, in, bufio.NewReader(out)})
	}
	for _, p := range s.parts {
		if _, err := p.out.ReadString('\n'); err != nil {
			return nil, fmt.Errorf("open idle sessions: %w", err)
		}
	}
	s.took = time.Since(began)
	return s, nil
}

// end has the sessions closed or abandoned, and waits for the processes.
func (s *idleSessions) end(how string) error {
	var errs []error
	for _, p := range s.parts {
		fmt.Fprintln(p.in, how) // a process that has ended says why below
	}
	for _, p := range s.parts {
		errs = append(errs, p.cmd.Wait())
	}
	return errors.Join(errs...)
}
