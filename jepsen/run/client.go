package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/mutant"
	"lockkeeper/jepsen/workload"
	"lockkeeper/recipes/fence"
)

// A clientSpec configures a client's process, as JSON in one line.
type clientSpec struct {
	Env       workload.Env
	Workloads []string
	N         int
	Start     time.Duration // of the history, as jepsen.Monotonic
	Fence     string        // the file of the resource that locks protect, which all clients share
	Mutation  string        // a bug that is planted in package recipes; "" for none
}

// cutLine begins a line on a client's standard input with the members that it cannot reach from now
// on, as JSON; it reaches the members of the line before again.
const cutLine = "cut "

// Client is the process of client n of some workloads, the other end of a Test: it gets a
// clientSpec on in, and lines that begin with cutLine, writes its history to out, one operation a
// line, and ends when in does.
func Client(in io.Reader, out io.Writer, log io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("run: client: read what to do: %w", err)
	}
	var spec clientSpec
	if err := json.Unmarshal(line, &spec); err != nil {
		return fmt.Errorf("run: client: %w", err)
	}
	resource, err := fence.OpenFile(spec.Fence)
	if err != nil {
		return fmt.Errorf("run: client: %w", err)
	}
	defer resource.Close()
	if err := mutant.Use(spec.Mutation); err != nil {
		return fmt.Errorf("run: client: %w", err)
	}
	env := &spec.Env
	env.Fence, env.History = resource, jepsen.NewSharedHistory(spec.Start)
	env.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	paths := new(paths)
	env.Dial = func(string) zk.Dialer { return paths.dial }
	go func() { // ends with the process, if not before: nothing interrupts a read
		paths.follow(lines)
		cancel()
	}()
	env.History.Tee(out)
	errs := make([]error, len(spec.Workloads))
	var clients sync.WaitGroup
	for i, name := range spec.Workloads {
		w, err := workload.New(name)
		if err != nil {
			errs[i] = err
			continue
		}
		clients.Go(func() {
			if err := w.Run(ctx, env, spec.N); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	clients.Wait()
	return errors.Join(errs...)
}

// A client is a client's process, seen from the Test.
type client struct {
	n       int
	workers []string // as the history knows them
	process *jepsen.Process
	stdin   io.WriteCloser
	read    chan struct{} // closed when out is read to the end

	invoked atomic.Int64
	mu      sync.Mutex
	ops     []jepsen.Op
	err     error
}

// String is the client's name on the terminal.
func (c *client) String() string { return fmt.Sprintf("client %d", c.n) }

// startClient starts the process of a client.
func startClient(command []string, spec clientSpec, dir string) (*client, error) {
	line, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("run: client: %w", err)
	}
	c := &client{n: spec.N, read: make(chan struct{})}
	for _, name := range spec.Workloads {
		c.workers = append(c.workers, workload.Worker(name, spec.N))
	}
	cmd := exec.Command(command[0], command[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("run: client: %w", err)
	}
	out, childsOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("run: client: %w", err)
	}
	cmd.Stdout = childsOut
	c.process, err = jepsen.StartProcess(fmt.Sprintf("client%d", c.n), cmd,
		filepath.Join(dir, fmt.Sprintf("client%d.log", c.n)))
	if err = errors.Join(err, childsOut.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	c.stdin = stdin
	go c.readHistory(out)
	if _, err := stdin.Write(append(line, '\n')); err != nil {
		return nil, errors.Join(fmt.Errorf("run: client: %w", err), c.kill())
	}
	return c, nil
}

// readHistory takes the client's history off its pipe, to the end.
func (c *client) readHistory(out io.ReadCloser) {
	defer close(c.read)
	defer out.Close()
	decoder := json.NewDecoder(bufio.NewReaderSize(out, 64<<10))
	for {
		var op jepsen.Op
		err := decoder.Decode(&op)
		if errors.Is(err, io.EOF) {
			return
		}
		c.mu.Lock()
		if err != nil { // also one that was killed in the middle of a line
			c.err = fmt.Errorf("run: read the history of %s: %w", c, err)
			c.mu.Unlock()
			return
		}
		c.ops = append(c.ops, op)
		c.mu.Unlock()
		if op.Kind == jepsen.Invoke {
			c.invoked.Add(1)
		}
	}
}

// history is the client's history so far.
func (c *client) history() []jepsen.Op {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops[:len(c.ops):len(c.ops)]
}

// cutOff cuts the client off from some members, by their client addresses, and from no others.
func (c *client) cutOff(members []string) error {
	line, err := json.Marshal(members)
	if err == nil {
		_, err = fmt.Fprintf(c.stdin, "%s%s\n", cutLine, line)
	}
	if err != nil {
		return fmt.Errorf("run: cut off %s: %w", c, err)
	}
	return nil
}

// stop has the client end, and waits until it has and its history is complete. When ctx ends first,
// the client is killed and that is an error.
func (c *client) stop(ctx context.Context) error {
	_ = c.stdin.Close() // the client may have ended
	select {
	case <-c.process.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("run: %s does not end: %w; its log:\n%s", c, ctx.Err(), c.process.LogTail(4<<10)),
			c.kill())
	}
	<-c.read
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.process.Err(); err != nil {
		return errors.Join(c.err, fmt.Errorf("run: %s: %w", c, c.process.ExitError()))
	}
	return c.err
}

// kill ends the client at once.
func (c *client) kill() error {
	_ = c.stdin.Close()
	err := c.process.Kill()
	<-c.read
	return err
}
