package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/recipes/fence"
)

// holders is a process with programs of Curator or kazoo that have a fenced lock, and counters
// behind the fences of their language: Holder.java and holder.py, which describe the protocol.
type holders struct {
	mu      sync.Mutex
	in      io.WriteCloser
	holders map[string]*holder // all that were ever opened
	ended   error              // set when the process has
}

// processes are the holders' processes, one for each library; they end with this process.
var processes struct {
	sync.Mutex
	all map[string]*holders
}

func openHolders(library string) (*holders, error) {
	processes.Lock()
	defer processes.Unlock()
	if p := processes.all[library]; p != nil {
		return p, nil
	}
	client, err := findLibrary(library)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(client.Command[0], client.Command[1:]...)
	cmd.Stderr = os.Stderr
	p := &holders{holders: make(map[string]*holder)}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	go p.read(out)
	if processes.all == nil {
		processes.all = make(map[string]*holders)
	}
	processes.all[library] = p
	return p, nil
}

// read hands the answers to the holders, until the process ends.
func (p *holders) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		p.mu.Lock()
		h := p.holders[name]
		if h != nil && text == "lost" {
			h.loseLocked()
		}
		p.mu.Unlock()
		if h != nil && text != "lost" {
			h.answers <- text
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = errors.Join(errors.New("the process of the holders has ended"), lines.Err())
	for _, h := range p.holders {
		close(h.answers)
	}
}

// holder is one program in the process.
type holder struct {
	process *holders
	name    string
	config  lock.Config
	answers chan string // one for each step
	// resource is the one whose lock the program takes, from the first Lock on.
	resource string

	lost chan struct{} // of the lock that is held; guarded by process.mu
}

func (h *holder) loseLocked() {
	if h.lost != nil {
		close(h.lost)
		h.lost = nil
	}
}

func openHolder(library string) func(context.Context, lock.Config) (lock.Client, error) {
	return func(ctx context.Context, c lock.Config) (lock.Client, error) {
		p, err := openHolders(library)
		if err != nil {
			return nil, err
		}
		return p.add(c), nil
	}
}

// add adds a holder under a name of its own: clients of two clusters share the process, and may
// have the same node name.
func (p *holders) add(c lock.Config) *holder {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &holder{process: p, name: fmt.Sprintf("%s.%d", c.Node, len(p.holders)), config: c, answers: make(chan string, 1)}
	p.holders[h.name] = h
	return h
}

// do executes a step.
func (h *holder) do(words ...string) (string, error) {
	h.process.mu.Lock()
	err := h.process.ended
	if err == nil {
		_, err = fmt.Fprintf(h.process.in, "%s %s\n", h.name, strings.Join(words, " "))
	}
	h.process.mu.Unlock()
	if err != nil {
		return "", err
	}
	kind, text, _ := strings.Cut(<-h.answers, " ")
	switch kind {
	case "ok":
		return text, nil
	case "stale":
		return "", fmt.Errorf("%w: %s", fence.ErrStale, text)
	}
	return "", fmt.Errorf("%s: %s %s", words[0], kind, text)
}

// open connects the program, and says which lock it takes.
func (h *holder) open(resource string) error {
	switch h.resource {
	case resource:
		return nil
	case "":
		h.resource = resource
		_, err := h.do("open", strings.Join(h.config.Servers, ","),
			strconv.FormatInt(h.config.Lease.Milliseconds(), 10), path(resource))
		return err
	}
	return fmt.Errorf("the program takes the lock of %s only", h.resource)
}

// Lock implements lock.Client.
func (h *holder) Lock(ctx context.Context, resource string) (lock.Held, error) {
	if err := h.open(resource); err != nil {
		return nil, err
	}
	wait := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(time.Millisecond, time.Until(deadline))
	}
	lost := make(chan struct{})
	h.process.mu.Lock()
	h.lost = lost
	h.process.mu.Unlock()
	text, err := h.do("lock", strconv.FormatInt(wait.Milliseconds(), 10))
	if err != nil {
		return nil, err
	}
	token, err := strconv.ParseUint(text, 10, 64)
	return &heldByHolder{h, token, lost}, err
}

// Close implements lock.Client.
func (h *holder) Close() error {
	if h.resource == "" {
		return nil
	}
	_, err := h.do("close")
	return err
}

// Counter implements lock.Counting.
func (h *holder) Counter(p lock.Place) (lock.Counter, error) { return holderCounter{h, p}, nil }

// heldByHolder is a lock that a holder has.
type heldByHolder struct {
	holder *holder
	token  uint64
	lost   <-chan struct{}
}

// Token implements lock.Held.
func (h *heldByHolder) Token() uint64 { return h.token }

// Lost implements lock.Held.
func (h *heldByHolder) Lost() <-chan struct{} { return h.lost }

// Holds implements lock.Looker.
func (h *heldByHolder) Holds() bool {
	text, err := h.holder.do("held")
	return err == nil && text == "true"
}

// Unlock implements lock.Held.
func (h *heldByHolder) Unlock(context.Context) error {
	_, err := h.holder.do("unlock")
	h.holder.process.mu.Lock()
	defer h.holder.process.mu.Unlock()
	h.holder.lost = nil
	return err
}

// holderCounter is the counters of a store, behind the fence of the holder's language.
type holderCounter struct {
	holder *holder
	place  lock.Place
}

// Read implements lock.Counter.
func (c holderCounter) Read(_ context.Context, resource string, token int64) (int64, error) {
	text, err := c.holder.do("read", c.place.Kind, c.place.At, resource, strconv.FormatInt(token, 10))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// Write implements lock.Counter.
func (c holderCounter) Write(_ context.Context, resource string, token, count int64) error {
	_, err := c.holder.do("write", c.place.Kind, c.place.At, resource, strconv.FormatInt(token, 10), strconv.FormatInt(count, 10))
	return err
}
