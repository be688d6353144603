package recipes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// The events of one item of a queue, in the order of queueModel's cases.
const (
	itemPut     = "put"
	itemTaken   = "taken"
	itemDone    = "done"
	itemFreed   = "freed"   // returned by its taker, or lost with the taker's session
	itemDrained = "drained" // nothing is in the queue any more
)

// itemOp is an operation on an item; by is the take that it belongs to, from 1. An operation with
// maybe has an outcome that nobody knows: it may take effect at any time later, or never.
type itemOp struct {
	what  string
	by    int
	maybe bool
}

// The states of an item, beside the number of the take that has it.
const (
	stateAbsent = 0
	stateFree   = -1
	stateOver   = -2
)

// queueModel is the promise of a Queue for one item: it is put exactly once; one take at a time has
// it; nobody takes it once it is done; it is there until it is done. An operation with maybe that
// has no effect changes nothing, so it may stand at the end.
var queueModel = sequential{stateAbsent, func(state, input, _ any) (bool, any) {
	at, op := state.(int), input.(itemOp)
	from, to := 0, 0
	switch op.what {
	case itemPut:
		from, to = stateAbsent, stateFree
	case itemTaken:
		from, to = stateFree, op.by
	case itemDone:
		from, to = op.by, stateOver
	case itemFreed:
		from, to = op.by, stateFree
	case itemDrained:
		return at == stateAbsent || at == stateOver, at
	}
	if at != from {
		return op.maybe, at
	}
	return true, to
}}

// queueRecord is the history of the items of a queue, by their content, which no two share.
type queueRecord struct {
	p     *play
	began time.Time

	mu    sync.Mutex
	takes int
	ids   map[string]string
	ops   map[string][]timedCall
}

// add notes an operation that began at a time and has ended now; see itemOp.
func (r *queueRecord) add(data string, op itemOp, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := timedCall{call: int64(began.Sub(r.began)), end: int64(time.Since(r.began)), input: op}
	if op.maybe {
		o.end = math.MaxInt64
	}
	r.ops[data] = append(r.ops[data], o)
}

// put puts an item.
func (r *queueRecord) put(s *Session, data string) {
	began := time.Now()
	err := NewQueue(s, testPath, nil).Put(context.Background(), Entry{Data: []byte(data)})
	switch {
	case err == nil, errors.Is(err, ErrUnknown):
		r.add(data, itemOp{itemPut, 0, err != nil}, began)
	case !errOneOf(err, mayEnd):
		r.p.fault("put: %v", err)
	}
}

// takenItem is an item that was taken.
type takenItem struct {
	*Item
	by    int       // the number of the take
	stood time.Time // when the grant was last seen to stand, or may have stood
}

// look notes whether the grant stands.
func (it *takenItem) look() {
	if it.Err() == nil {
		it.stood = time.Now()
	}
}

// take takes an item and notes it.
func (r *queueRecord) take(ctx context.Context, s *Session) (*takenItem, error) {
	began := time.Now()
	item, err := NewQueue(s, testPath, nil).Take(ctx)
	if err != nil {
		return nil, err
	}
	data := string(item.Data())
	r.mu.Lock()
	r.takes++
	it := &takenItem{item, r.takes, began}
	if id := r.ids[data]; id != "" && id != it.ID() {
		r.p.fault("%s is in the queue as %s and %s", data, id, it.ID())
	}
	r.ids[data] = it.ID()
	r.mu.Unlock()
	r.add(data, itemOp{itemTaken, it.by, false}, began)
	it.look()
	return it, nil
}

// end returns an item, or is done with it. An item that is lost is free at some time after its
// grant was last seen to stand.
func (r *queueRecord) end(it *takenItem, done bool) {
	data, began := string(it.Data()), time.Now()
	it.look()
	end, what := it.Return, itemFreed
	if done {
		end, what = it.Done, itemDone
	}
	err := end(context.Background())
	switch {
	case err == nil:
		r.add(data, itemOp{what, it.by, false}, began)
		return
	case done && errors.Is(err, ErrUnknown):
		r.add(data, itemOp{itemDone, it.by, true}, began)
	case !errOneOf(err, mayEnd) && !errors.Is(err, ErrDeleted):
		r.p.fault("%s: %v", what, err)
	}
	r.add(data, itemOp{itemFreed, it.by, true}, it.stood)
}

// playQueue puts and takes, and queueModel judges the history of each item. No item is there twice.
func playQueue(p *play) func() {
	r := &queueRecord{p: p, began: time.Now(), ids: make(map[string]string), ops: make(map[string][]timedCall)}
	for i, s := range p.sessions {
		p.worker(func(rnd *rand.Rand) {
			for n := range 4 {
				r.put(s, fmt.Sprint(i, "-", n))
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rnd.Int64N(int64(10*time.Second))))
				it, err := r.take(ctx, s)
				cancel()
				switch {
				case err == nil:
					for range rnd.IntN(2) * 4 {
						time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
						it.look()
					}
					r.end(it, rnd.IntN(4) > 0)
				case !errOneOf(err, mayEnd):
					p.fault("take: %v", err)
				}
			}
		})
	}
	return func() { r.judge() }
}

// judge takes the remaining items, and judges the history of each.
func (r *queueRecord) judge() {
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		it, err := r.take(ctx, r.p.sessions[0])
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			for data := range r.ops {
				r.add(data, itemOp{itemDrained, 0, false}, began)
			}
			break
		}
		if err != nil {
			r.p.fault("take at the end: %v", err)
			return
		}
		r.end(it, true)
	}
	for data, ops := range r.ops {
		if !queueModel.linearizable(ops) {
			r.p.fault("%s: not linearizable: %+v", data, ops)
		}
	}
	time.Sleep(time.Minute)
}
