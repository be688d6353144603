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
)

// An Order is the first line that a client's process reads: its part.
type Order struct {
	Way      string        `json:"way"`
	Name     string        `json:"name"` // A, B, C
	Node     string        `json:"node"` // for lock.Config
	Servers  []string      `json:"servers"`
	Ledger   string        `json:"ledger"`
	Lease    time.Duration `json:"lease"`
	Resource string        `json:"resource"`
}

// A Command is every other line: a step.
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

// A client is the process of one client.
type client struct {
	Order
	locks  lock.Client
	ledger *ledger.Client
	held   lock.Held
	watch  context.CancelFunc // ends the goroutine that waits for Lost
	bases  map[ledger.Rule]int64
	base   int64 // of lock.Store
	loaded error // why it could not be loaded

	mu  sync.Mutex // of out
	out *json.Encoder
}

// Client is the program of a client's process: it reads an Order and Commands, one JSON object to a
// line, and prints Events. It ends with its input.
func Client(ways []lock.Way, stdin io.Reader, stdout io.Writer) error {
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 1<<20)
	c := &client{out: json.NewEncoder(stdout)}
	if !lines.Scan() {
		return errors.Join(errors.New("play: no order"), lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &c.Order); err != nil {
		return fmt.Errorf("play: order: %w", err)
	}
	i := slices.IndexFunc(ways, func(w lock.Way) bool { return w.Name == c.Way })
	if i < 0 {
		return fmt.Errorf("play: there is no way %q", c.Way)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var err error
	if c.ledger, err = ledger.Dial(c.Ledger); err == nil {
		c.locks, err = ways[i].Open(ctx, lock.Config{Servers: c.Servers, Node: c.Node, Lease: c.Lease})
	}
	if err != nil {
		c.say(Event{What: Failed, Text: err.Error()})
		return err
	}
	defer c.locks.Close()
	c.say(Event{What: Ready})
	for lines.Scan() {
		var step Command
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			return fmt.Errorf("play: command: %w", err)
		}
		c.do(ctx, step)
	}
	return lines.Err()
}

// say prints an event of now.
func (c *client) say(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.At, e.Who = jepsen.Monotonic(), c.Name
	_ = c.out.Encode(e) // if the lab has gone, this process is dying too
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
	select {
	case <-c.held.Lost(): // never, if the library never tells
		c.say(Event{What: GaveUp})
		return false
	default:
		c.say(Event{What: Checked})
		return true
	}
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
	c.say(Event{What: Written, Books: books})
	c.save(ctx)
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
