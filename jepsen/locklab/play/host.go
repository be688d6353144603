package play

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/system"
)

// A host is a process of clients: of one client, or of the clients of one name in several rounds
// (Config.Share). A fault that hits a process hits it when all of its clients that still play have
// come to that point.
type host struct {
	name    string
	process *jepsen.Process
	clock   *system.Clock // if a story sets it
	reading sync.WaitGroup

	writing sync.Mutex // of lines to stdin
	stdin   io.WriteCloser

	mu      sync.Mutex
	agents  map[string]*agent // all, by node
	playing map[*agent]bool   // those that take part in the next act
	open    int               // agents that are not closed
	paused  bool
	next    *act
}

// An act is something that is done to the process of a host.
type act struct {
	asked map[*agent]bool
	do    func() (time.Duration, error)
	at    time.Duration // when it was done
	err   error
	done  chan struct{}
}

// hosts are the processes of clients of a batch of rounds.
type hosts struct {
	command []string
	dir     string
	mu      sync.Mutex
	all     map[string]*host
}

// get returns the host of that name, and starts it if it does not run.
func (s *hosts) get(name string, clock func() *system.Clock) (*host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.all[name]; h != nil {
		return h, nil
	}
	h := &host{name: name, agents: make(map[string]*agent), playing: make(map[*agent]bool), clock: clock()}
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Env = append(os.Environ(), h.clock.Env()...)
	// Not StdoutPipe, which is closed when the process ends, whatever is still to be read.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd.Stdout = in
	if h.stdin, err = cmd.StdinPipe(); err == nil {
		h.process, err = jepsen.StartProcess("client "+name, cmd, filepath.Join(s.dir, name+".log"))
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	h.reading.Go(func() {
		defer out.Close()
		h.read(out)
	})
	if s.all == nil {
		s.all = make(map[string]*host)
	}
	s.all[name] = h
	return h, nil
}

// read takes the clients' events into their histories, until the process ends.
func (h *host) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		h.mu.Lock()
		a := h.agents[e.Node]
		h.mu.Unlock()
		if a != nil {
			e.Node = ""
			a.history.Add(e)
		}
	}
}

// enter adds an agent.
func (h *host) enter(a *agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agents[a.node], h.playing[a] = a, true
	h.open++
}

// leave says that an agent takes part in no more acts.
func (h *host) leave(a *agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.playing, a)
	h.actLocked()
}

// together does something to the process when all agents that play have asked for it. It returns
// the time when it was done.
func (h *host) together(a *agent, do func() (time.Duration, error)) (time.Duration, error) {
	h.mu.Lock()
	if h.next == nil {
		h.next = &act{asked: make(map[*agent]bool), do: do, done: make(chan struct{})}
	}
	next := h.next
	next.asked[a] = true
	h.actLocked()
	h.mu.Unlock()
	<-next.done
	return next.at, next.err
}

// actLocked does the next act if nobody is missing.
func (h *host) actLocked() {
	if h.next == nil {
		return
	}
	for a := range h.playing {
		if !h.next.asked[a] {
			return
		}
	}
	next := h.next
	h.next = nil
	next.at, next.err = next.do()
	close(next.done)
}

// send gives the process a line of input.
func (h *host) send(line Line) error {
	text, err := json.Marshal(line)
	if err == nil {
		h.writing.Lock()
		_, err = h.stdin.Write(append(text, '\n'))
		h.writing.Unlock()
	}
	if err != nil {
		return fmt.Errorf("play: client %s: %w", h.name, err)
	}
	return nil
}

// family are the process and its descendants: a way may have its library in a process of its own.
func (h *host) family() []int {
	parents := make(map[int][]int)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid ...; the name may hold blanks and brackets.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, err1 := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if len(fields) < 2 || err1 != nil {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			parents[parent] = append(parents[parent], pid)
		}
	}
	all := []int{h.process.Pid()}
	for i := 0; i < len(all); i++ {
		all = append(all, parents[all[i]]...)
	}
	return all
}

// signal sends a signal to the family.
func (h *host) signal(sig syscall.Signal) error {
	if !h.process.Running() {
		return nil
	}
	var errs []error
	for _, pid := range h.family() {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("play: signal %v to client %s: %w", sig, h.name, err))
		}
	}
	return errors.Join(errs...)
}

// pause, resume and kill are acts.
func (h *host) pause(ctx context.Context) (time.Duration, error) {
	h.paused = true
	err := errors.Join(h.process.Pause(ctx), h.signal(syscall.SIGSTOP))
	return jepsen.Monotonic(), err
}

func (h *host) resume() (time.Duration, error) {
	at := jepsen.Monotonic()
	if !h.paused {
		return at, nil
	}
	h.paused = false
	return at, h.signal(syscall.SIGCONT)
}

// The time of a death is from before it: a lock that goes with a connection may be another's before
// this process runs again.
func (h *host) kill() (time.Duration, error) {
	at := jepsen.Monotonic()
	return at, h.signal(syscall.SIGKILL)
}

// exit says that an agent is closed. With the last one the process ends: in good order, if it can
// within a moment.
func (h *host) exit() error {
	h.mu.Lock()
	h.open--
	last := h.open == 0
	if last {
		_, _ = h.resume() // it is ended all the same
	}
	h.mu.Unlock()
	if !last {
		return nil
	}
	var errs []error
	if err := h.stdin.Close(); !errors.Is(err, os.ErrClosed) { // it is, if the client has ended
		errs = append(errs, err)
	}
	select {
	case <-h.process.Done():
	case <-time.After(200 * time.Millisecond):
		errs = append(errs, h.signal(syscall.SIGKILL), h.process.Kill())
	}
	h.reading.Wait()
	return errors.Join(errs...)
}
