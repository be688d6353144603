package jepsen

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Kind is the state of an operation, in Jepsen's words.
type Kind string

const (
	// Invoke: the operation was begun.
	Invoke Kind = "invoke"
	// OK: it took effect.
	OK Kind = "ok"
	// Fail: it certainly did not take effect.
	Fail Kind = "fail"
	// Info: it may have taken effect; or, for an event that nobody invoked (a fault, a change of a
	// client's connection), that it happened.
	Info Kind = "info"
)

// Mode is the mode in which a lock is held.
type Mode string

const (
	// Exclusive excludes every other holder.
	Exclusive Mode = "exclusive"
	// Shared excludes exclusive holders only.
	Shared Mode = "shared"
	// Lease is one of a limited number (a semaphore).
	Lease Mode = "lease"
)

// The operations of a history (Op.F).
const (
	// FAcquire and FRelease are a contender's operations on its lock.
	FAcquire = "acquire"
	FRelease = "release"
	// FLost: the recipe itself told its user that the lock is not held any more (a LeaderLatch's
	// listener, a Grant's channel).
	FLost = "lost"
	// FConnected, FSuspended, FExpired: reports of a worker's client library about its connection:
	// it has its session on Op.Member; it has lost the connection and does not know about the
	// session; the session is over.
	FConnected = "connected"
	FSuspended = "suspended"
	FExpired   = "expired"
	// FKill, FRestart: a member was killed; it serves again.
	FKill    = "kill"
	FRestart = "restart"
	// FPause, FResume: a process was stopped (SIGSTOP); it goes on.
	FPause  = "pause"
	FResume = "resume"
	// FCut, FHeal: the network between a member and the others was cut; it is whole again.
	FCut  = "cut"
	FHeal = "heal"
)

// An Op is one entry of a history. Fields that do not apply are zero.
type Op struct {
	// Time is since the start of the history, by the monotonic clock.
	Time time.Duration `json:"timeNs"`
	// Worker is the client process; empty for acts of the nemesis.
	Worker string `json:"worker,omitempty"`
	// Contender is the contender for the lock, as worker/handle; empty for events of the whole
	// worker.
	Contender string `json:"contender,omitempty"`
	Kind      Kind   `json:"kind"`
	F         string `json:"f"`
	// Lock is the path of the lock, Mode and Leases how it is taken; Leases is the limit of a
	// semaphore, else 0.
	Lock   string `json:"lock,omitempty"`
	Mode   Mode   `json:"mode,omitempty"`
	Leases int    `json:"leases,omitempty"`
	// Token is the fencing token that came with the lock, or 0 if the recipe has none.
	Token int64 `json:"token,omitempty"`
	// Member is the client address of the member concerned.
	Member string `json:"member,omitempty"`
	// Session is the client's session.
	Session string `json:"session,omitempty"`
	// ID pairs an invoke with its end where a worker has several operations under way; 0 where it
	// has one at a time.
	ID int64 `json:"id,omitempty"`
	// Path is the node concerned, Value the data written to it or read from it, Version its data
	// version then, Zxid the one of the reply or the event.
	Path    string `json:"path,omitempty"`
	Value   string `json:"value,omitempty"`
	Version int32  `json:"version,omitempty"`
	Zxid    int64  `json:"zxid,omitempty"`
	Note    string `json:"note,omitempty"`
}

// String is the entry as one line.
func (o Op) String() string {
	who := o.Contender
	if who == "" {
		who = o.Worker
	}
	if who == "" {
		who = "nemesis"
	}
	line := fmt.Sprintf("%9.3fs %-6s %-10s %s", o.Time.Seconds(), o.Kind, o.F, who)
	for _, field := range []struct{ name, value string }{
		{"lock", o.Lock}, {"mode", string(o.Mode)}, {"path", o.Path}, {"value", o.Value}, {"member", o.Member},
		{"session", o.Session}, {"note", o.Note},
	} {
		if field.value != "" {
			line += " " + field.name + "=" + field.value
		}
	}
	if o.Version != 0 {
		line += fmt.Sprintf(" version=%d", o.Version)
	}
	if o.Zxid != 0 {
		line += fmt.Sprintf(" zxid=%#x", o.Zxid)
	}
	if o.Token != 0 {
		line += fmt.Sprintf(" token=%d", o.Token)
	}
	return line
}

// A History has the events of a run, in the order in which this process learned of them. It may be
// used by several goroutines.
//
// Its order makes an overlap a proof: a contender's lock counts as held from the moment its worker
// *told* that it was acquired until the moment the worker is *about to be asked* to release it.
// Both ends lie inside the time in which the worker really held it, so two holders in the history
// are two holders in truth.
type History struct {
	clock func() time.Duration // since the start

	mu      sync.Mutex
	ops     []Op
	changed chan struct{} // closed, and replaced, when ops grows
	tee     *json.Encoder // nil: the history is written nowhere
}

// NewHistory is an empty history that starts now.
func NewHistory() *History {
	start := time.Now()
	return newHistory(func() time.Duration { return time.Since(start) })
}

// NewSharedHistory is an empty history that starts when Monotonic showed start, also in another
// process: the times of histories with one start can be compared, and their entries merged.
func NewSharedHistory(start time.Duration) *History {
	return newHistory(func() time.Duration { return Monotonic() - start })
}

func newHistory(clock func() time.Duration) *History {
	return &History{clock: clock, changed: make(chan struct{})}
}

// Merge makes one history of several with the same start, in the order of time.
func Merge(histories ...[]Op) []Op {
	merged := slices.Concat(histories...)
	slices.SortStableFunc(merged, func(a, b Op) int { return cmp.Compare(a.Time, b.Time) })
	return merged
}

// Add appends op and sets its time.
func (h *History) Add(op Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	op.Time = h.clock()
	h.ops = append(h.ops, op)
	if h.tee != nil {
		_ = h.tee.Encode(op) // it fails when the process that reads it is gone
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// Tee writes every entry that is added from now on to a pipe, as a line of JSON.
func (h *History) Tee(pipe io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tee = json.NewEncoder(pipe)
}

// Now is the time that an entry would have that was added now.
func (h *History) Now() time.Duration { return h.clock() }

// Len is the number of entries.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// Ops is the history so far. The slice must not be changed.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ops[:len(h.ops):len(h.ops)]
}

// Follow calls see for every entry from number from on, also for those that are still to come,
// until see returns true or ctx ends.
func (h *History) Follow(ctx context.Context, from int, see func(Op) (done bool)) error {
	for {
		h.mu.Lock()
		fresh, changed := h.ops[from:len(h.ops):len(h.ops)], h.changed
		h.mu.Unlock()
		for _, op := range fresh {
			if see(op) {
				return nil
			}
		}
		from += len(fresh)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WriteOps writes entries as JSON, one per line.
func WriteOps(w io.Writer, ops []Op) error {
	buffered := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffered)
	for _, op := range ops {
		if err := encoder.Encode(op); err != nil {
			return fmt.Errorf("jepsen: write history: %w", err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("jepsen: write history: %w", err)
	}
	return nil
}
