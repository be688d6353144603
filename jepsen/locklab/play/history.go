package play

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/ledger"
)

// Values of Event.What. The first part comes from clients.
const (
	Ready    = "ready"    // it is connected
	Lock     = "lock"     // it begins to ask for the lock
	Locked   = "locked"   // it holds the lock, as its library says
	Refused  = "refused"  // it did not get the lock
	Lost     = "lost"     // its library says that the lock can no longer be relied on
	Checked  = "checked"  // it has looked whether it holds the lock, and it does
	GaveUp   = "gave up"  // it has looked before it wrote, the lock was lost, and it did not write
	Read     = "read"     // it has read the counter
	Write    = "write"    // it begins to write
	Sent     = "sent"     // it has handed its write to the network, and does not wait
	Written  = "written"  // the ledger has answered
	Stored   = "stored"   // it has written the data in the system itself, or that was refused
	Counted  = "counted"  // it has written the counter under a real fence, or that was refused
	Unlock   = "unlock"   // it begins to give the lock back
	Unlocked = "unlocked" // it has, or there was an error
	Looped   = "looped"   // it has finished its "loop"
	Failed   = "failed"   // something else went wrong, see Text

	// Acts of the lab.
	Paused  = "paused"  // SIGSTOP
	Resumed = "resumed" // SIGCONT
	Killed  = "killed"  // SIGKILL
	Apart   = "apart"   // the network is cut between servers, see Text
	Broke   = "fault"   // see Text
	Healed  = "healed"  // see Text
)

// An Event is a line of a history.
type Event struct {
	At    time.Duration         `json:"at"`  // jepsen.Monotonic
	Who   string                `json:"who"` // "A", "B", "C", the name of a server, "lab"
	What  string                `json:"what"`
	Node  string                `json:"node,omitempty"`  // the client's, on its way to the lab
	Token uint64                `json:"token,omitempty"` // of Locked
	Books map[ledger.Rule]int64 `json:"books,omitempty"` // of Read and Written: the values
	Entry *ledger.Entry         `json:"entry,omitempty"` // of Stored and Counted
	Text  string                `json:"text,omitempty"`  // the error, or the act of the lab
}

// A History has the events of a round, in order of arrival at the lab. It is used by several
// goroutines.
type History struct {
	mu      sync.Mutex
	events  []Event
	changed chan struct{} // closed and replaced with every event
}

// NewHistory is an empty one.
func NewHistory() *History { return &History{changed: make(chan struct{})} }

// Add appends an event.
func (h *History) Add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	close(h.changed)
	h.changed = make(chan struct{})
}

// Note appends an event of the lab, of now.
func (h *History) Note(who, what, format string, args ...any) {
	h.Add(Event{At: jepsen.Monotonic(), Who: who, What: what, Text: fmt.Sprintf(format, args...)})
}

// Sorted are the events by time.
func (h *History) Sorted() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	sorted := slices.Clone(h.events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return int(a.At - b.At) })
	return sorted
}

// Await returns the first event of one of these clients that is one of whats, of those that came
// and those that come before ctx ends.
func (h *History) Await(ctx context.Context, whos, whats []string) (Event, error) {
	return h.await(ctx, 0, whos, whats)
}

// await is Await from event number from on.
func (h *History) await(ctx context.Context, from int, whos, whats []string) (Event, error) {
	for {
		h.mu.Lock()
		changed := h.changed
		for ; from < len(h.events); from++ {
			if e := h.events[from]; slices.Contains(whos, e.Who) && slices.Contains(whats, e.What) {
				h.mu.Unlock()
				return e, nil
			}
		}
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return Event{}, fmt.Errorf("play: %v of %v: %w", whats, whos, ctx.Err())
		}
	}
}

// len is the number of the next event.
func (h *History) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}
