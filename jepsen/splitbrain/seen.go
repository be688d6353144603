package splitbrain

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"lockkeeper/jepsen"
)

// An Instant is a time after the break, in ms; JSON null if it never came.
type Instant struct {
	after time.Duration
	came  bool
}

// Came says whether it came at all.
func (i Instant) Came() bool { return i.came }

// After is the time since the break; 0 if it never came.
func (i Instant) After() time.Duration { return i.after }

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	if !i.came {
		return []byte("null"), nil
	}
	return json.Marshal(i.after.Milliseconds())
}

// later is the later one of two; never is the latest of all.
func later(a, b Instant) Instant {
	if !a.came || b.came && a.after >= b.after {
		return a
	}
	return b
}

// Seen has the observations of one side between the break and the healing. Members are named by
// their numbers.
type Seen struct {
	// Members are the side's members, the leader of before first.
	Members []int `json:"members"`
	// Leading are the members that said at the end that they lead, with the moment since which they
	// did.
	Leading map[int]Instant `json:"leadingMs"`
	// Stopped is when each member was first seen to serve no clients any more, for those that still
	// did not at the end.
	Stopped map[int]Instant `json:"stoppedMs"`
	// Writes are those that were begun after the break and acknowledged; Wrote is when the first
	// one was.
	Writes int     `json:"writes"`
	Wrote  Instant `json:"wroteMs"`
	// Lock is when a client of this side got the lock that clients of both sides wanted after the
	// break.
	Lock Instant `json:"lockMs"`
	// Inherited is when a client of this side got the lock that was held, before the break, by the
	// client of a member that is not on this side: from then on somebody else has it.
	Inherited map[int]Instant `json:"inheritedMs"`
}

// newSeen is a Seen without observations.
func newSeen(members []int) Seen {
	return Seen{Members: members, Leading: make(map[int]Instant), Stopped: make(map[int]Instant),
		Inherited: make(map[int]Instant)}
}

// clone is a copy that shares nothing.
func (s Seen) clone() Seen {
	s.Leading, s.Stopped, s.Inherited = maps.Clone(s.Leading), maps.Clone(s.Stopped), maps.Clone(s.Inherited)
	return s
}

// A recorder collects the observations of clients and probes. Before the break, and after its end,
// it takes nothing.
type recorder struct {
	mu      sync.Mutex
	sides   []Seen
	told    map[int]Instant // as Result.Told
	dropped map[int]Instant // as Result.Dropped
	// breaking says that the break has begun. Observations before it is complete are of instant 0.
	breaking bool
	began    time.Time // when the break was complete
	over     bool
	changed  chan struct{} // closed, and replaced, when something was noted
}

func newRecorder(sides [][]int) *recorder {
	r := &recorder{told: make(map[int]Instant), dropped: make(map[int]Instant), changed: make(chan struct{})}
	for _, members := range sides {
		r.sides = append(r.sides, newSeen(members))
	}
	return r
}

// breakBegins and breakEnds are called before and behind the break.
func (r *recorder) breakBegins() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breaking = true
}

func (r *recorder) breakEnds() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = time.Now()
}

// note has f record a present observation.
func (r *recorder) note(f func(r *recorder, now Instant)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || !r.breaking {
		return
	}
	now := Instant{came: true}
	if !r.began.IsZero() {
		now.after = time.Since(r.began)
	}
	f(r, now)
	close(r.changed)
	r.changed = make(chan struct{})
}

// brokenBefore says whether the break was complete at t. It is for functions that note calls.
func (r *recorder) brokenBefore(t time.Time) bool { return !r.began.IsZero() && !t.Before(r.began) }

// first notes an instant in a map, if there is none yet.
func first(m map[int]Instant, id int, now Instant) {
	if _, there := m[id]; !there {
		m[id] = now
	}
}

// until waits until done says yes of the observations, or ctx ends.
func (r *recorder) until(ctx context.Context, done func(sides []Seen, told map[int]Instant) bool) bool {
	for {
		r.mu.Lock()
		ok, changed := done(r.sides, r.told), r.changed
		r.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// finish ends the recording and enters it into a result.
func (r *recorder) finish(result *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for _, s := range r.sides {
		result.Sides = append(result.Sides, s.clone())
	}
	result.Told, result.Dropped, result.Watched = maps.Clone(r.told), maps.Clone(r.dropped), time.Since(r.began)
}

// probePause is between two looks at a member.
const probePause = 40 * time.Millisecond

// probe reads the role of a member (srvr) again and again, and notes it, until ctx ends.
func probe(ctx context.Context, r *recorder, side int, m *jepsen.Member) {
	for ctx.Err() == nil {
		mode, err := m.Mode(ctx)
		if ctx.Err() != nil {
			return
		}
		r.note(func(r *recorder, now Instant) { r.sides[side].saw(m.ID, mode, err == nil, now) })
		jepsen.Sleep(ctx, probePause)
	}
}

// saw notes the role of a member, or that it serves no clients.
func (s *Seen) saw(id int, mode string, serves bool, now Instant) {
	if serves {
		delete(s.Stopped, id)
	} else {
		first(s.Stopped, id, now)
	}
	if serves && mode == "leader" {
		first(s.Leading, id, now)
	} else {
		delete(s.Leading, id)
	}
}
