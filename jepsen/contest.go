package jepsen

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Contender is one who takes a lock again and again: one handle of a worker,
// on a thread of its own.
type Contender struct {
	Worker *Worker
	// Handle is the contender's name within its worker.
	Handle string
	// Recipe is what the worker opens; which there are depends on its Client.
	Recipe string
	// Lock is the path that the contenders fight for.
	Lock string
	// Mode is how the recipe holds it; Exclusive if empty.
	Mode Mode
	// Leases is a semaphore's limit, with Mode Lease.
	Leases int
	// Options are passed to the recipe as they are (name=value).
	Options []string
	// Timeout bounds one attempt to acquire; 0 means none.
	Timeout time.Duration
}

// Name is the contender's name in the history: worker/handle.
func (c *Contender) Name() string { return c.Worker.Name() + "/" + c.Handle }

// op is an entry of the history about this contender.
func (c *Contender) op(kind Kind, f string, note string) Op {
	mode := c.Mode
	if mode == "" {
		mode = Exclusive
	}
	return Op{
		Worker: c.Worker.Name(), Contender: c.Name(),
		Kind: kind, F: f, Lock: c.Lock, Mode: mode, Leases: c.Leases, Note: note,
	}
}

// Open opens the contender's recipe.
func (c *Contender) Open(ctx context.Context) error {
	words := append([]string{"open", c.Handle, c.Recipe, c.Lock}, c.Options...)
	if c.Leases > 0 {
		words = append(words, fmt.Sprintf("leases=%d", c.Leases))
	}
	reply, err := c.Worker.Do(ctx, c.Handle, words...)
	if err == nil && reply.Kind != OK {
		err = fmt.Errorf("jepsen: %s: open: %s", c.Name(), reply)
	}
	return err
}

// Acquire has the contender take its lock, and says whether it did.
func (c *Contender) Acquire(ctx context.Context, h *History) (bool, error) {
	timeout := "-1"
	if c.Timeout > 0 {
		timeout = strconv.FormatInt(c.Timeout.Milliseconds(), 10)
	}
	h.Add(c.op(Invoke, FAcquire, ""))
	acquired := false
	_, err := c.Worker.do(ctx, func(r Reply) {
		op := c.op(r.Kind, FAcquire, "")
		if r.Kind == OK {
			acquired = true
			// A recipe without tokens answers nothing or 0.
			op.Token, _ = strconv.ParseInt(r.Text, 10, 64)
		} else {
			op.Note = r.Text
		}
		h.Add(op)
	}, c.Handle, "acquire", c.Handle, timeout)
	if err != nil {
		h.Add(c.op(Info, FAcquire, err.Error()))
		return false, err
	}
	return acquired, nil
}

// Release has the contender give its lock back.
func (c *Contender) Release(ctx context.Context, h *History) (Reply, error) {
	// Before the command is sent: see History.
	h.Add(c.op(Invoke, FRelease, ""))
	reply, err := c.Worker.do(ctx, func(r Reply) {
		h.Add(c.op(r.Kind, FRelease, r.Text))
	}, c.Handle, "release", c.Handle)
	if err != nil {
		h.Add(c.op(Info, FRelease, err.Error()))
	}
	return reply, err
}

// A Contest lets contenders fight for their locks, each as fast as it can:
// acquire, hold, release, again.
type Contest struct {
	Contenders []*Contender
	History    *History
	// Hold is how long a lock is kept.
	Hold time.Duration

	stopping chan struct{}
	done     sync.WaitGroup
	mu       sync.Mutex
	errs     []error
}

// Start opens all recipes and begins. The contenders' goroutines end with Stop
// or with ctx.
func (c *Contest) Start(ctx context.Context) error {
	for _, contender := range c.Contenders {
		if err := contender.Open(ctx); err != nil {
			return err
		}
	}
	c.stopping = make(chan struct{})
	for _, contender := range c.Contenders {
		c.done.Go(func() {
			if err := c.contend(ctx, contender); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.errs = append(c.errs, err)
			}
		})
	}
	return nil
}

// contend is the life of one contender.
func (c *Contest) contend(ctx context.Context, contender *Contender) error {
	for {
		select {
		case <-c.stopping:
			return nil
		default:
		}
		acquired, err := contender.Acquire(ctx, c.History)
		if err != nil {
			return err
		}
		if !acquired {
			// A refusal that comes at once must not become a storm of attempts.
			if err := pauseFor(ctx, 10*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if err := pauseFor(ctx, c.Hold); err != nil {
			return err
		}
		if _, err := contender.Release(ctx, c.History); err != nil {
			return err
		}
	}
}

// pauseFor waits for d, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AwaitRounds waits until every contender has acquired its lock n more times,
// counted from entry number from of the history.
func (c *Contest) AwaitRounds(ctx context.Context, from, n int) error {
	missing := make(map[string]int)
	for _, contender := range c.Contenders {
		missing[contender.Name()] = n
	}
	err := c.History.Follow(ctx, from, func(op Op) bool {
		if op.F == FAcquire && op.Kind == OK {
			if missing[op.Contender]--; missing[op.Contender] <= 0 {
				delete(missing, op.Contender)
			}
		}
		return len(missing) == 0
	})
	if err != nil {
		var who []string
		for name, rounds := range missing {
			who = append(who, fmt.Sprintf("%s (%d of %d)", name, n-rounds, n))
		}
		return fmt.Errorf("jepsen: these did not get their lock %d times: %s: %w", n, strings.Join(who, ", "), err)
	}
	return nil
}

// Stop lets every contender finish its round: who waits for a lock gets it
// once more. A contender that does not finish before ctx ends is an error, as
// is a worker that broke.
func (c *Contest) Stop(ctx context.Context) error {
	close(c.stopping)
	finished := make(chan struct{})
	go func() {
		c.done.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
		return fmt.Errorf("jepsen: a contender does not get its lock any more: %w", ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}
