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

// An agent is a client's process from the lab's side, with its links to servers and ledger.
type agent struct {
	name    string
	history *History
	process *jepsen.Process
	stdin   io.WriteCloser
	clock   *system.Clock // if a story sets it
	reading sync.WaitGroup
	paused  bool
	// servers is between the client (host 1) and each server (host 2 and more), book between the
	// client and the ledger (host 2).
	servers, book *jepsen.Proxies
}

// Hosts of an agent's links: the client, and the first server or the ledger.
const (
	clientHost = 1
	serverHost = 2
)

// block holds back the client's requests to a server, or the server's answers, or lets them through
// again.
func (a *agent) block(server int, out, in bool) error {
	host := serverHost + server
	set := func(from, to int, block bool) error {
		if block {
			return a.servers.Block(from, to)
		}
		return a.servers.Unblock(from, to)
	}
	return errors.Join(set(clientHost, host, out), set(host, clientHost, in))
}

// blockAll does it with all servers.
func (a *agent) blockAll(out, in bool) error {
	var errs []error
	for server := range a.servers.Size() - 1 {
		errs = append(errs, a.block(server, out, in))
	}
	return errors.Join(errs...)
}

// startAgent starts a client; it is ready when its event Ready has come.
func startAgent(command []string, order Order, servers []string, ledgerAddr, dir string, clock *system.Clock,
	h *History) (a *agent, err error) {
	a = &agent{name: order.Name, history: h, clock: clock, servers: jepsen.NewProxies(1+len(servers), 1), book: jepsen.NewProxies(2, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("play: client %s: %w", order.Name, err), a.close())
		}
	}()
	for i, server := range servers {
		addr, err := a.servers.Between(clientHost, serverHost+i, server)
		if err != nil {
			return nil, err
		}
		order.Servers = append(order.Servers, addr)
	}
	if order.Ledger, err = a.book.Between(clientHost, serverHost, ledgerAddr); err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), clock.Env()...)
	// Not StdoutPipe, which is closed when the process ends, whatever is still to be read.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd.Stdout = in
	if a.stdin, err = cmd.StdinPipe(); err == nil {
		log := filepath.Join(dir, fmt.Sprintf("%s-%s.log", order.Resource, order.Name))
		a.process, err = jepsen.StartProcess("client "+order.Name, cmd, log)
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	a.reading.Go(func() {
		defer out.Close()
		a.read(out)
	})
	return a, a.send(order)
}

// read takes the client's events into the history, until it ends.
func (a *agent) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Who == a.name {
			a.history.Add(e)
		}
	}
}

// send gives the client a line of input.
func (a *agent) send(line any) error {
	text, err := json.Marshal(line)
	if err == nil {
		_, err = a.stdin.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("play: client %s: %w", a.name, err)
	}
	return nil
}

// ends are the events that end a command.
var ends = map[string][]string{
	"lock":   {Locked, Refused},
	"read":   {Read, Failed},
	"check":  {Checked, GaveUp},
	"write":  {Written, GaveUp, Failed},
	"send":   {Sent, GaveUp, Failed},
	"unlock": {Unlocked},
	"loop":   {Looped},
}

// do has the client execute a command, and waits for its end.
func (a *agent) do(ctx context.Context, step Command) (Event, error) {
	from := a.history.len()
	if err := a.send(step); err != nil {
		return Event{}, err
	}
	return a.history.await(ctx, from, []string{a.name}, append([]string{Killed}, ends[step.Do]...))
}

// family are the process and its descendants: a way may have its library in a process of its own.
func (a *agent) family() []int {
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
	all := []int{a.process.Pid()}
	for i := 0; i < len(all); i++ {
		all = append(all, parents[all[i]]...)
	}
	return all
}

// signal sends a signal to the family.
func (a *agent) signal(sig syscall.Signal) error {
	if !a.process.Running() {
		return nil
	}
	var errs []error
	for _, pid := range a.family() {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("play: signal %v to client %s: %w", sig, a.name, err))
		}
	}
	return errors.Join(errs...)
}

// pause stops the process and its library.
func (a *agent) pause(ctx context.Context) error {
	a.paused = true
	if err := errors.Join(a.process.Pause(ctx), a.signal(syscall.SIGSTOP)); err != nil {
		return err
	}
	a.history.Note(a.name, Paused, "")
	return nil
}

func (a *agent) resume() error {
	if !a.paused {
		return nil
	}
	a.paused = false
	a.history.Note(a.name, Resumed, "")
	return a.signal(syscall.SIGCONT)
}

// kill ends the process and its library at once. Its death is noted first: a lock that goes with a
// connection may be another's before this process runs again.
func (a *agent) kill() error {
	a.history.Note(a.name, Killed, "")
	return a.signal(syscall.SIGKILL)
}

// close ends everything: the client in good order, if it can within a moment.
func (a *agent) close() error {
	var errs []error
	if a.process != nil {
		errs = append(errs, a.resume())
		if err := a.stdin.Close(); !errors.Is(err, os.ErrClosed) { // it is, if the client has ended
			errs = append(errs, err)
		}
		select {
		case <-a.process.Done():
		case <-time.After(200 * time.Millisecond):
			errs = append(errs, a.signal(syscall.SIGKILL), a.process.Kill())
		}
		a.reading.Wait()
	}
	return errors.Join(append(errs, a.servers.Close(), a.book.Close())...)
}
