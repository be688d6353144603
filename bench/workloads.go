package bench

import (
	"context"
	"slices"
)

// workload is one line of the table.
type workload struct {
	name    string
	about   string // the line of the help text
	clients int    // if nothing else is asked for
	starts  bool   // needs Config.Start
	paced   bool   // takes Config.Rate
	run     func(ctx context.Context, r *run) error
}

func workloads() []workload {
	return []workload{
		{"write", "setData of 100 bytes, each client its own nodes", 16, false, true, pipelined(0)},
		{"read", "getData of 100 bytes", 16, false, true, pipelined(10)},
		{"mixed", "nine getData to one setData", 16, false, true, pipelined(9)},
		{"lock-cycle", "a lock taken and given back that nobody else wants: " +
			"create ephemeral sequential, getChildren, delete", 16, false, false, lockCycle},
		{"lock-contended", "one queue; " +
			"latency from the delete that gives the lock back to the next holder knowing", 8, false, false,
			lockContended},
		{"herd", "many watches of one node; latency from the write to each event", 1000, false, false, herd},
		{"sessions", "idle sessions: memory of each, and how late after its timeout one expires", 1000, false, false,
			sessions},
		{"znodes", "many nodes: memory of each; with -start, the time of a restart", 8, false, false, znodes},
		{"failover", "the leader is killed (kill -9): " +
			"the gap without a write, connections lost on the others", 8, false, false, failover},
		{"boot", "from the start of a server to the first create", 1, true, false, boot},
	}
}

// Workloads are the names of all workloads, with their descriptions.
func Workloads() (list [][2]string) {
	for _, w := range workloads() {
		list = append(list, [2]string{w.name, w.about})
	}
	return list
}

func find(name string) (w workload, ok bool) {
	all := workloads()
	i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
	if i < 0 {
		return w, false
	}
	return all[i], true
}
