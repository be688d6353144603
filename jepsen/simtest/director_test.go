package simtest

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/model/trace"
	"lockkeeper/quorum/store"
)

// director holds back what a script of the model is to bring about: requests of raft wait where
// they arrive, answers before they are sent, and writes to a log before they begin. A message can
// be late for any time, and a disk can take any time, so it makes nothing happen that a network and
// disks could not do.
type director struct {
	mu sync.Mutex
	// holding: requests and answers wait, but for those that a function of may lets pass.
	holding bool
	// elections: requests to stand for election wait, nothing else.
	elections bool
	may       []func(*message) bool
	held      []*message // in the order in which they came
	writes    map[*member]chan struct{}
	waiting   map[*member]int // writes that wait
	sight     sight
}

// message is a request of raft that has arrived at a member, or that member's answer.
type message struct {
	at      *member
	start   int32         // of the program
	from    raft.ServerID // who asks; empty: the request does not say
	request any
	answer  any // nil: it is the request
	pass    chan struct{}
}

func newDirector() *director {
	return &director{writes: map[*member]chan struct{}{}, waiting: map[*member]int{}}
}

// directorStep is how often a director looks whether a step is done.
const directorStep = 200 * time.Microsecond

// directed is the recorder of a program, behind the director.
type directed struct {
	*trace.Recorder
	d     *director
	at    *member
	start int32 // of the program
}

// Observe is [trace.Recorder.Observe], when the director lets the request and its answer pass.
func (r *directed) Observe(request any) (answered func(answer any)) {
	x := message{at: r.at, start: r.start, from: sender(request), request: request}
	arrived := x
	r.d.pass(&arrived)
	inner := r.Recorder.Observe(request)
	return func(answer any) {
		inner(answer)
		left := x
		left.answer = answer
		r.d.pass(&left)
	}
}

func sender(request any) raft.ServerID {
	if h, ok := request.(raft.WithRPCHeader); ok {
		return raft.ServerID(h.GetRPCHeader().ID)
	}
	return ""
}

// pass returns when the message may go on.
func (d *director) pass(x *message) {
	d.mu.Lock()
	_, election := x.request.(*raft.TimeoutNowRequest)
	waits := d.holding && !d.mayLocked(x) || d.elections && election && x.answer == nil
	if waits && x.start == x.at.starts.Load() {
		x.pass = make(chan struct{})
		d.held = append(d.held, x)
	}
	d.mu.Unlock()
	if x.pass != nil {
		<-x.pass
	}
}

// mayLocked reports whether a message may go on. A refusal of the leader's entries makes it send
// earlier ones, and says nothing else.
func (d *director) mayLocked(x *message) bool {
	a, ok := x.answer.(*raft.AppendEntriesResponse)
	if q, is := x.request.(*raft.AppendEntriesRequest); ok && is && !a.Success && a.Term == q.Term {
		return true
	}
	return slices.ContainsFunc(d.may, func(may func(*message) bool) bool { return may(x) })
}

// let has the messages pass for which may is true, until done reports true or the time is over. It
// returns what done says.
func (d *director) let(may func(*message) bool, patience time.Duration, done func() bool) bool {
	d.mu.Lock()
	d.may = append(d.may, may)
	d.releaseLocked(may)
	d.mu.Unlock()
	for over := time.Now().Add(patience); !done() && time.Now().Before(over); {
		time.Sleep(directorStep)
	}
	d.mu.Lock()
	d.may = d.may[:len(d.may)-1]
	d.mu.Unlock()
	return done()
}

// release lets the first of the held messages go on for which may is true, and reports whether
// there is one.
func (d *director) release(may func(*message) bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, x := range d.held {
		if may(x) {
			d.held = slices.Delete(d.held, i, i+1)
			close(x.pass)
			return true
		}
	}
	return false
}

func (d *director) releaseLocked(may func(*message) bool) {
	d.held = slices.DeleteFunc(d.held, func(x *message) bool {
		if !may(x) {
			return false
		}
		close(x.pass)
		return true
	})
}

// count is the number of held messages for which may is true.
func (d *director) count(may func(*message) bool) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.held {
		if may(x) {
			n++
		}
	}
	return n
}

// holdWrites has the writes to the log of a member wait, or not any more.
func (d *director) holdWrites(m *member, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch waits := d.writes[m]; {
	case on && waits == nil:
		d.writes[m] = make(chan struct{})
	case !on && waits != nil:
		close(waits)
		delete(d.writes, m)
	}
}

// unwritten is the number of writes to the log of a member that wait.
func (d *director) unwritten(m *member) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[m]
}

// ended is called when a program of the member is no longer heard of.
func (d *director) ended(m *member) {
	d.holdWrites(m, false)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releaseLocked(func(x *message) bool { return x.at == m })
}

// begin has everything wait from now on.
func (d *director) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holding, d.sight = true, newSight()
}

// end has nothing wait any more. It returns the held messages, each of which goes on when its pass
// is closed.
func (d *director) end() (held []*message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holding, d.elections = false, false
	held, d.held = d.held, nil
	for m, waits := range d.writes {
		close(waits)
		delete(d.writes, m)
	}
	return held
}

// see takes an event.
func (d *director) see(e trace.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holding {
		d.sight.add(e)
	}
}

// directedLog is a log with writes that may have to wait.
type directedLog struct {
	store.Log
	d *director
	m *member
}

// StoreLog implements raft.LogStore.
func (l directedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore.
func (l directedLog) StoreLogs(entries []*raft.Log) error {
	l.d.mu.Lock()
	waits := l.d.writes[l.m]
	if waits != nil {
		l.d.waiting[l.m]++
	}
	l.d.mu.Unlock()
	if waits != nil {
		<-waits
		l.d.mu.Lock()
		l.d.waiting[l.m]--
		l.d.mu.Unlock()
	}
	return l.Log.StoreLogs(entries)
}
