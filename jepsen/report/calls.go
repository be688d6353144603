package report

import (
	"time"

	"lockkeeper/jepsen"
)

// A call is one operation of a client: its invoke together with its end.
type call struct {
	f      string
	worker string
	begin  time.Duration
	end    time.Duration
	kind   jepsen.Kind // how it ended; Info also if nothing in the history ended it
}

// took is how long the client waited.
func (c call) took() time.Duration { return c.end - c.begin }

// callKey is what an invoke and its end have in common.
type callKey struct {
	worker, contender, f string
	id                   int64
}

// findCalls pairs invokes with their ends, in the order of the invokes. What has no end lasts until the end of the run.
func findCalls(ops []jepsen.Op, end time.Duration) []call {
	var calls []call
	open := make(map[callKey]int)
	for _, op := range ops {
		if op.Worker == "" && op.Contender == "" {
			continue
		}
		key := callKey{op.Worker, op.Contender, op.F, op.ID}
		if op.Kind == jepsen.Invoke {
			open[key] = len(calls)
			calls = append(calls, call{f: op.F, worker: workerOf(op), begin: op.Time, end: end, kind: jepsen.Info})
			continue
		}
		if i, ok := open[key]; ok {
			calls[i].end, calls[i].kind = op.Time, op.Kind
			delete(open, key)
		}
	}
	return calls
}

// workerOf is whose row an operation belongs to.
func workerOf(op jepsen.Op) string {
	if op.Worker != "" {
		return op.Worker
	}
	return op.Contender
}
