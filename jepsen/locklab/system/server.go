package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"lockkeeper/jepsen"
)

// program is a server that is one process of a program in C, started by its command line.
type program struct {
	name, addr string
	place      jepsen.Place
	dir, data  string // for its log, and with its data
	command    []string
	// ready is an error until it serves; after a start it is asked until then.
	ready   func(ctx context.Context) error
	clock   *Clock
	process *jepsen.Process
}

var _ Server = (*program)(nil)

// Name implements Server.
func (p *program) Name() string { return p.name }

// Addr implements Server.
func (p *program) Addr() string { return p.addr }

// Data implements Server.
func (p *program) Data() string { return p.data }

// Start implements Server.
func (p *program) Start(ctx context.Context) error {
	cmd := p.place.Command(p.command[0], p.command[1:]...)
	cmd.Env = append(os.Environ(), p.clock.Env()...)
	var err error
	if p.process, err = jepsen.StartProcess(p.name, cmd, filepath.Join(p.dir, p.name+".log")); err != nil {
		return err
	}
	err = jepsen.Poll(ctx, 20*time.Millisecond, func() error {
		if !p.process.Running() {
			return p.process.ExitError()
		}
		return p.ready(ctx)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("system: %s does not serve: %w", p.name, err), p.process.Kill())
	}
	return nil
}

// Pause implements Server.
func (p *program) Pause() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.process.Pause(ctx)
}

// Resume implements Server.
func (p *program) Resume() error { return p.process.Resume() }

// Kill implements Server.
func (p *program) Kill() error {
	if p.process == nil {
		return nil
	}
	return p.process.Kill()
}

// SetClock implements Server.
func (p *program) SetClock(ahead time.Duration) error { return p.clock.Set(ahead) }

// needs returns an error that names the package that has a program.
func needs(pkg string, programs ...string) func() error {
	return func() error {
		for _, name := range programs {
			if _, err := exec.LookPath(name); err != nil {
				return fmt.Errorf("%s: %w (apt-get install %s)", name, jepsen.ErrMissing, pkg)
			}
		}
		return nil
	}
}

// programs is a system of them; the funcs have its abilities beyond starting and ending.
type programs struct {
	servers  []Server // for clients
	others   []Server // sentinels
	primary  func(ctx context.Context) (int, error)
	failover func(ctx context.Context) error
	requests func(ctx context.Context) int64
	cleanUp  func() error
}

var _ System = (*programs)(nil)

// Servers implements System.
func (s *programs) Servers() []Server { return s.servers }

// Primary implements System.
func (s *programs) Primary(ctx context.Context) (int, error) {
	if s.primary == nil {
		return 0, nil
	}
	return s.primary(ctx)
}

// Failover implements System.
func (s *programs) Failover(ctx context.Context) error {
	if s.failover == nil {
		return nil
	}
	return s.failover(ctx)
}

// Requests implements System.
func (s *programs) Requests(ctx context.Context) int64 {
	if s.requests == nil {
		return -1
	}
	return s.requests(ctx)
}

// Close implements System.
func (s *programs) Close() error {
	var errs []error
	for _, server := range append(s.others, s.servers...) {
		errs = append(errs, server.Kill())
	}
	if s.cleanUp != nil {
		errs = append(errs, s.cleanUp())
	}
	return errors.Join(errs...)
}

// start starts all servers, one after the other, or none.
func (s *programs) start(ctx context.Context) (System, error) {
	for _, server := range append(append([]Server{}, s.servers...), s.others...) {
		if err := server.Start(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// local is an address of the loopback interface, at an address of a host.
func local(port int) string           { return at("127.0.0.1", port) }
func at(host string, port int) string { return fmt.Sprintf("%s:%d", host, port) }
