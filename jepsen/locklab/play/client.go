package play

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/store"
	"lockkeeper/recipes/fence"
)

// An Order is the part of a client.
type Order struct {
	Way      string        `json:"way"`
	Name     string        `json:"name"` // A, B, C
	Node     string        `json:"node"` // for lock.Config
	Servers  []string      `json:"servers"`
	Ledger   string        `json:"ledger"`
	Lease    time.Duration `json:"lease"`
	Resource string        `json:"resource"`
	// Place is where a counter under a real fence is; nil if there is none.
	Place *lock.Place `json:"place,omitempty"`
}

// A Command is a step of a client.
type Command struct {
	// Do is "lock", "read", "check", "write", "send" (a write without waiting for the answer),
	// "unlock", or "loop": all of it, again and again.
	Do string `json:"do"`
	// Wait is for how long "lock" and "unlock" may wait, and how long "loop" goes on.
	Wait time.Duration `json:"wait,omitempty"`
	// Check has "write" look first whether the lock is still held; if not, nothing is written.
	Check bool `json:"check,omitempty"`
	// Times is how often "loop" does it at most; 0 for no bound.
	Times int `json:"times,omitempty"`
}

// A Line is a line of a process's input: the part of a new client, or a step of one.
type Line struct {
	Node    string   `json:"node"` // the client's
	Order   *Order   `json:"order,omitempty"`
	Command *Command `json:"command,omitempty"`
}

// A client is one client.
type client struct {
	Order
	locks   lock.Client
	ledger  *ledger.Client
	counter lock.Counter // of Order.Place; nil if there is none
	held    lock.Held
	watch   context.CancelFunc // ends the goroutine that waits for Lost
	bases   map[ledger.Rule]int64
	base    int64 // of lock.Store
	loaded  error // why it could not be loaded
	count   int64 // of counter
	counted error // why it could not be read
	out     *output
}

// output is the output of all clients of a process.
type output struct {
	mu  sync.Mutex
	out *json.Encoder
}

// Client is the program of clients: it reads Lines, one JSON object each, and prints Events. Each
// client executes its steps one after the other, beside the others. All end with the input.
func Client(ways []lock.Way, stdin io.Reader, stdout io.Writer) error {
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 1<<20)
	out := &output{out: json.NewEncoder(stdout)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clients := make(map[string]chan Command)
	var running sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for lines.Scan() {
		var line Line
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("play: input: %w", err)
		}
		steps, ok := clients[line.Node]
		switch {
		case line.Order != nil && !ok:
			c := &client{Order: *line.Order, out: out}
			steps = make(chan Command, 8)
			clients[line.Node] = steps
			running.Go(func() {
				err := c.run(ctx, ways, steps)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		case line.Command != nil && ok:
			steps <- *line.Command
		default:
			return fmt.Errorf("play: no client for %s", lines.Text())
		}
	}
	for _, steps := range clients {
		close(steps)
	}
	running.Wait()
	return errors.Join(append(errs, lines.Err())...)
}

// run opens the client and executes its steps.
func (c *client) run(ctx context.Context, ways []lock.Way, steps <-chan Command) error {
	if err := c.open(ctx, ways); err != nil {
		c.say(Event{What: Failed, Text: err.Error()})
		for range steps { // nobody waits for them
		}
		return err
	}
	defer c.locks.Close()
	c.say(Event{What: Ready})
	for step := range steps {
		c.do(ctx, step)
	}
	return nil
}

func (c *client) open(ctx context.Context, ways []lock.Way) error {
	i := slices.IndexFunc(ways, func(w lock.Way) bool { return w.Name == c.Way })
	if i < 0 {
		return fmt.Errorf("play: there is no way %q", c.Way)
	}
	var err error
	if c.ledger, err = ledger.Dial(c.Ledger); err != nil {
		return err
	}
	if c.locks, err = ways[i].Open(ctx, lock.Config{Servers: c.Servers, Node: c.Node, Lease: c.Lease}); err != nil {
		return err
	}
	if c.Place == nil || !ways[i].Fenced {
		return nil
	}
	if own, ok := c.locks.(lock.Counting); ok {
		c.counter, err = own.Counter(*c.Place)
	} else {
		c.counter, err = store.Open(*c.Place)
	}
	return err
}

// say prints an event of now.
func (c *client) say(e Event) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	e.At, e.Who, e.Node = jepsen.Monotonic(), c.Name, c.Node
	_ = c.out.out.Encode(e) // if the lab has gone, this process is dying too
}

// do executes one command. An error is an event.
func (c *client) do(ctx context.Context, step Command) {
	switch step.Do {
	case "lock":
		c.lock(ctx, step.Wait)
	case "read":
		c.read(ctx)
	case "check":
		c.check()
	case "write", "send":
		if !step.Check || c.check() {
			c.write(ctx, step.Do == "write")
		}
	case "unlock":
		c.unlock(ctx, step.Wait)
	case "loop":
		for start, n := time.Now(), 0; time.Since(start) < step.Wait && (step.Times == 0 || n < step.Times); n++ {
			if !c.lock(ctx, step.Wait) {
				continue
			}
			c.read(ctx)
			if c.check() {
				c.write(ctx, true)
			}
			c.unlock(ctx, step.Wait)
		}
		c.say(Event{What: Looped})
	default:
		c.say(Event{What: Failed, Text: "there is no step " + step.Do})
	}
}

// retryPause is how long a client waits after an error before it asks for the lock again.
const retryPause = 20 * time.Millisecond

func (c *client) lock(ctx context.Context, wait time.Duration) bool {
	c.say(Event{What: Lock})
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	held, err := c.locks.Lock(ctx, c.Resource)
	for err != nil && ctx.Err() == nil { // a session may have expired while it waited
		jepsen.Sleep(ctx, retryPause)
		held, err = c.locks.Lock(ctx, c.Resource)
	}
	if err != nil {
		c.say(Event{What: Refused, Text: err.Error()})
		return false
	}
	c.held = held
	c.say(Event{What: Locked, Token: held.Token()})
	if lost := held.Lost(); lost != nil {
		watching, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() {
			select {
			case <-lost:
				c.say(Event{What: Lost})
			case <-watching.Done():
			}
		})
		c.watch = func() { cancel(); ended.Wait() }
	}
	return true
}

// check says whether the lock is held, as far as the library tells.
func (c *client) check() bool {
	if c.held == nil {
		c.say(Event{What: GaveUp, Text: "it holds nothing"})
		return false
	}
	looker, ok := c.held.(lock.Looker)
	holds := !ok || looker.Holds()
	select {
	case <-c.held.Lost(): // never, if the library never tells
		holds = false
	default:
	}
	if !holds {
		c.say(Event{What: GaveUp})
		return false
	}
	c.say(Event{What: Checked})
	return true
}

func (c *client) token() uint64 {
	if c.held == nil {
		return 0
	}
	return c.held.Token()
}

func (c *client) read(ctx context.Context) {
	c.load(ctx)
	books, err := c.ledger.Read(c.Resource, c.Name, c.token())
	if err != nil {
		c.say(Event{What: Failed, Text: err.Error()})
		return
	}
	c.bases = books
	c.readCount(ctx)
	c.say(Event{What: Read, Books: maps.Clone(books)})
}

// storePatience is how long the system itself may take to load or save data, in leases.
const storePatience = 0.5

// load loads the data that the system itself has, if it has any.
func (c *client) load(ctx context.Context) {
	store, ok := c.held.(lock.Store)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(storePatience*float64(c.Lease)))
	defer cancel()
	c.base, c.loaded = store.Load(ctx)
}

// save writes them, made of the loaded ones.
func (c *client) save(ctx context.Context) {
	store, ok := c.held.(lock.Store)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(storePatience*float64(c.Lease)))
	defer cancel()
	e := &ledger.Entry{Resource: c.Resource, Rule: ledger.Inside, Write: true, Holder: c.Name, Base: c.base}
	err := c.loaded
	if err == nil {
		e.Before, err = store.Save(ctx, c.base)
	}
	if err != nil {
		e.Refused = err.Error()
	}
	e.At = jepsen.Monotonic()
	c.say(Event{What: Stored, Entry: e})
}

func (c *client) write(ctx context.Context, wait bool) {
	c.say(Event{What: Write})
	if !wait {
		if err := c.ledger.Send(c.Resource, c.Name, c.token(), c.bases); err != nil {
			c.say(Event{What: Failed, Text: err.Error()})
			return
		}
		c.say(Event{What: Sent})
		return
	}
	books, err := c.ledger.Write(c.Resource, c.Name, c.token(), c.bases)
	if err != nil {
		c.say(Event{What: Failed, Text: err.Error()})
		return
	}
	c.writeCount(ctx)
	c.say(Event{What: Written, Books: books})
	c.save(ctx)
}

// countPatience is how long a counter under a real fence may take, in leases: another holder may be
// stopped within a transaction.
const countPatience = 6

// readCount reads the counter under a real fence, which shows the token to the fence.
func (c *client) readCount(ctx context.Context) {
	if c.counter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, countPatience*c.Lease)
	defer cancel()
	c.count, c.counted = c.counter.Read(ctx, c.Resource, int64(c.token()))
}

// writeCount writes one more than was read.
func (c *client) writeCount(ctx context.Context) {
	if c.counter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, countPatience*c.Lease)
	defer cancel()
	e := &ledger.Entry{Resource: c.Resource, Rule: ledger.Place, Write: true, Holder: c.Name, Token: c.token(), Base: c.count}
	err := c.counted
	if err == nil {
		err = c.counter.Write(ctx, c.Resource, int64(c.token()), c.count+1)
		e.Doubt = err != nil && !errors.Is(err, fence.ErrStale)
	}
	if err != nil {
		e.Refused = err.Error()
	}
	e.At = jepsen.Monotonic()
	c.say(Event{What: Counted, Entry: e})
}

func (c *client) unlock(ctx context.Context, wait time.Duration) {
	if c.held == nil {
		return
	}
	c.say(Event{What: Unlock})
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if c.watch != nil {
		c.watch()
		c.watch = nil
	}
	text := ""
	if err := c.held.Unlock(ctx); err != nil {
		text = err.Error()
	}
	c.held = nil
	c.say(Event{What: Unlocked, Text: text})
}
