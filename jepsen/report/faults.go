package report

import (
	"slices"
	"time"

	"lockkeeper/jepsen"
)

// A Fault is a time in which something was broken, or a moment at which something was done to the cluster.
type Fault struct {
	// Kind is what it was, in one word, as in the history: cut, kill, pause.
	Kind string `json:"kind"`
	// On is what it was done to, as "m2" or "1 2 | 3 4 5".
	On string `json:"on,omitempty"`
	// From and To are since the start of the history. They are equal for what has no length (a transfer of leadership).
	From time.Duration `json:"fromNs"`
	To   time.Duration `json:"toNs"`
	// Open says that nothing in the history ended it: To is the end of the history.
	Open bool `json:"open,omitempty"`
}

// Lasted is how long it was.
func (f Fault) Lasted() time.Duration { return f.To - f.From }

// faultEnds are the acts of the nemesis that last, each with the one that ends it. Others are moments.
var faultEnds = map[string]string{
	jepsen.FKill:  jepsen.FRestart,
	jepsen.FPause: jepsen.FResume,
	jepsen.FCut:   jepsen.FHeal,
}

// FindFaults finds the faults in a history: entries of kind info of the nemesis (that is, of no worker), and pauses, of
// whomever. What ends a fault names its member (Op.Member), or its worker, or neither, and then it ends all that it can.
func FindFaults(ops []jepsen.Op) []Fault {
	var found []Fault
	var open []openFault
	for _, op := range ops {
		if !isAct(op) {
			continue
		}
		ended := false
		open = slices.DeleteFunc(open, func(o openFault) bool {
			if faultEnds[o.op.F] != op.F || !concerns(op, o.op) {
				return false
			}
			found[o.at].To, found[o.at].Open = op.Time, false
			ended = true
			return true
		})
		if ended || isEnd(op.F) {
			continue
		}
		fault := Fault{Kind: op.F, On: on(op), From: op.Time, To: op.Time}
		if _, lasts := faultEnds[op.F]; lasts {
			fault.To, fault.Open = ops[len(ops)-1].Time, true
			open = append(open, openFault{op, len(found)})
		}
		found = append(found, fault)
	}
	return found
}

// An openFault is the act that began a fault, and the fault's place in the list.
type openFault struct {
	op jepsen.Op
	at int
}

// isAct says whether the nemesis did this.
func isAct(op jepsen.Op) bool {
	return op.Kind == jepsen.Info && (op.Worker == "" && op.Contender == "" || op.F == jepsen.FPause || op.F == jepsen.FResume)
}

// isEnd says whether F only ever ends a fault.
func isEnd(f string) bool {
	for _, end := range faultEnds {
		if f == end {
			return true
		}
	}
	return false
}

// concerns says whether the end of a fault is that of the one that began so.
func concerns(end, begin jepsen.Op) bool {
	return end.Member == "" && end.Worker == "" || end.Member == begin.Member && end.Worker == begin.Worker
}

// on is what an act was done to, as people say it.
func on(op jepsen.Op) string {
	for _, s := range []string{op.Note, op.Worker, op.Member} {
		if s != "" {
			return s
		}
	}
	return ""
}
