package workload

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// Worker is the Op.Worker of client n of a workload, also the argument of Env.Dial. A nemesis that
// stops the process of a client says so with this name: FPause before it stops it, FResume after it
// goes on.
func Worker(workload string, n int) string { return fmt.Sprintf("%s-%d", workload, n) }

// worker is one client as the history knows it. Its methods may be used by one
// goroutine; add by several.
type worker struct {
	env  *Env
	name string
	rng  *rand.Rand
	ids  int64
}

func newWorker(env *Env, workload string, n int) *worker {
	name := Worker(workload, n)
	h := fnv.New64a()
	h.Write([]byte(name))
	return &worker{env: env, name: name, rng: rand.New(rand.NewPCG(env.Seed, h.Sum64()))}
}

// twin is another goroutine of the same client.
func (w *worker) twin() *worker {
	return &worker{env: w.env, name: w.name, rng: rand.New(rand.NewPCG(w.rng.Uint64(), 1)), ids: w.ids + twinIDs}
}

// twinIDs keeps the ids of twins apart: more than one has in its life.
const twinIDs = 1 << 40

// add puts an entry of this worker into the history.
func (w *worker) add(op jepsen.Op) {
	op.Worker = w.name
	w.env.History.Add(op)
}

// invoke begins an operation. Its result is the argument of end.
func (w *worker) invoke(op jepsen.Op) jepsen.Op {
	w.ids++
	op.ID, op.Kind = w.ids, jepsen.Invoke
	w.add(op)
	return op
}

// end ends an operation of invoke.
func (w *worker) end(op jepsen.Op, kind jepsen.Kind, note string) {
	op.Kind, op.Note = kind, note
	w.add(op)
}

// answered ends the operation that a reply is about, with the reply, and reports whether the
// request succeeded. Events, and replies to requests that are not in the history, are no
// operations.
func (w *worker) answered(f frame) (op jepsen.Op, ok bool) {
	if f.request == nil || f.request.op.ID == 0 {
		return op, false
	}
	op = f.request.op
	op.Zxid = int64(f.header.Zxid)
	code := f.header.Err
	if code == wire.CodeOK {
		answer, err := wire.DecodeResponse(f.request.code, f.body)
		if err != nil {
			w.end(op, jepsen.Info, err.Error())
			return op, false
		}
		switch a := answer.(type) {
		case *wire.CreateResponse:
			op.Path = a.Path
		case *wire.StatResponse:
			op.Version = a.Stat.Version
		case *wire.GetDataResponse:
			op.Value, op.Version = string(a.Data), a.Stat.Version
		case *wire.MultiResponse:
			for _, r := range slices.Backward(a.Results) { // the first that is not OK counts
				code = cmp.Or(r.Err, code)
			}
		}
	}
	if code != wire.CodeOK {
		w.end(op, jepsen.Fail, code.Error())
		return op, false
	}
	w.end(op, jepsen.OK, "")
	return op, true
}

// think waits between two operations. It reports false when ctx has ended.
func (w *worker) think(ctx context.Context) bool {
	return jepsen.Sleep(ctx, w.thinking())
}

// member is one of the members, by chance.
func (w *worker) member() string { return w.env.Servers[w.rng.IntN(len(w.env.Servers))] }

// thinking is for how long to think.
func (w *worker) thinking() time.Duration {
	mean := w.env.Think
	if mean == 0 {
		mean = 5 * time.Millisecond
	}
	return time.Duration(w.rng.Int64N(2*int64(mean) + 1))
}

// call is an operation with its end.
type call struct {
	invoke jepsen.Op
	end    jepsen.Op // its Kind is Info where nothing is known
	ended  bool      // there is an entry that says how it ended
}

// pair finds, for every operation that a workload's clients began, how it ended, in the order in
// which they began. Entries without an Invoke are not among them.
func pair(ops []jepsen.Op, workload string) []*call {
	type key struct {
		worker string
		id     int64
	}
	var calls []*call
	open := make(map[key]*call)
	for _, op := range ops {
		if !belongs(op, workload) || op.ID == 0 {
			continue
		}
		k := key{op.Worker, op.ID}
		if op.Kind == jepsen.Invoke {
			c := &call{invoke: op, end: op}
			c.end.Kind = jepsen.Info
			open[k], calls = c, append(calls, c)
		} else if c := open[k]; c != nil {
			c.end, c.ended = op, true
			delete(open, k)
		}
	}
	return calls
}

// finals are the records of Final about a workload's tree; complete says that this was all.
func finals(ops []jepsen.Op, workload string) (found []jepsen.Op, complete bool) {
	for _, op := range ops {
		if belongs(op, workload) {
			complete = complete || op.F == fFinal
			if op.F == fFound {
				found = append(found, op)
			}
		}
	}
	return found, complete
}

// belongs says whether an entry is of one of the workload's clients.
func belongs(op jepsen.Op, workload string) bool {
	n := len(workload)
	return len(op.Worker) > n+1 && op.Worker[:n] == workload && op.Worker[n] == '-' && op.Worker[n+1] >= '0' &&
		op.Worker[n+1] <= '9'
}

// entries are the call as the history has it.
func (c call) entries() []jepsen.Op {
	if !c.ended {
		return []jepsen.Op{c.invoke}
	}
	return []jepsen.Op{c.invoke, c.end}
}

// sortedKeys are a map's keys in order, so that the same history gives the same verdict.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
