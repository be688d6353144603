package report

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

const (
	// timelineSlices is the number of slices of time in a row: about one for each two pixels.
	timelineSlices = 500
	// maxRows bounds the clients with rows.
	maxRows = 48
)

// A row has the operations of one client.
type row struct {
	Worker string
	// ended are the slices of time in which operations ended, by how; waited are those in which the
	// client waited for an answer. Later marks cover earlier ones: one lost reply among a hundred
	// good ones is seen.
	ended  map[jepsen.Kind][]span
	waited []span
	// held are the times in which it held a lock, apart the times without a connection.
	held, apart []span

	Y                                 int    // of the drawn row, in pixels
	Wait, OK, Fail, Info, Held, Apart string // paths
}

// A span is a time from the start of the history.
type span struct{ from, to time.Duration }

// A timeline has a row for each client.
type timeline struct {
	Rows   []*row
	Height int  // in pixels
	Holds  bool // a lock was held
	More   int  // clients without a row
}

// lay makes the rows of a history, in the order of the clients' names (c2 before c10).
func lay(ops []jepsen.Op, calls []call, holds []*hold, length time.Duration) timeline {
	rows := make(map[string]*row)
	of := func(worker string) *row {
		if rows[worker] == nil {
			rows[worker] = &row{Worker: worker, ended: make(map[jepsen.Kind][]span)}
		}
		return rows[worker]
	}
	slice := max(length/timelineSlices, 1)
	for _, c := range calls {
		r := of(c.worker)
		end := min(c.end.Truncate(slice), length-slice)
		if begin := c.begin.Truncate(slice); begin < end {
			r.waited = append(r.waited, span{begin, end})
		}
		r.ended[c.kind] = append(r.ended[c.kind], span{end, end + slice})
	}
	for _, h := range holds {
		r := of(workerOf(h.grant))
		r.held = append(r.held, span{h.grant.Time, h.to})
	}
	for worker, spans := range findApart(ops, length) {
		of(worker).apart = spans
	}
	var t timeline
	for _, r := range rows {
		for _, spans := range r.ended {
			sortSpans(spans)
		}
		sortSpans(r.held)
		t.Holds = t.Holds || len(r.held) > 0
		t.Rows = append(t.Rows, r)
	}
	slices.SortFunc(t.Rows, func(a, b *row) int { return compareNames(a.Worker, b.Worker) })
	if len(t.Rows) > maxRows {
		t.Rows, t.More = t.Rows[:maxRows], len(t.Rows)-maxRows
	}
	t.Height = rowHeight * len(t.Rows)
	for i, r := range t.Rows {
		r.draw(scale{length}, i)
	}
	return t
}

// findApart finds when the clients' libraries said that they had no connection.
func findApart(ops []jepsen.Op, end time.Duration) map[string][]span {
	apart := make(map[string][]span)
	since := make(map[string]time.Duration)
	for _, op := range ops {
		switch worker := workerOf(op); op.F {
		case jepsen.FSuspended, jepsen.FExpired:
			if _, already := since[worker]; !already && worker != "" {
				since[worker] = op.Time
			}
		case jepsen.FConnected:
			if from, ok := since[worker]; ok {
				apart[worker] = append(apart[worker], span{from, op.Time})
				delete(since, worker)
			}
		}
	}
	for worker, from := range since {
		apart[worker] = append(apart[worker], span{from, end})
	}
	return apart
}

// digits are the numbers in a name.
var digits = regexp.MustCompile(`\d+`)

// compareNames orders names as people do: numbers in them by value.
func compareNames(a, b string) int {
	padded := func(name string) string {
		return digits.ReplaceAllStringFunc(name, func(d string) string {
			return strings.Repeat("0", max(0, 20-len(d))) + d
		})
	}
	return cmp.Compare(padded(a), padded(b))
}

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

// callKey is the key that an invoke and its end have in common.
type callKey struct {
	worker, contender, f string
	id                   int64
}

// findCalls pairs invokes with their ends, in the order of the invokes. A call without an end lasts
// until the end of the run.
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

// workerOf is the client with the row of an operation.
func workerOf(op jepsen.Op) string {
	if op.Worker != "" {
		return op.Worker
	}
	return op.Contender
}
