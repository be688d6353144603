package main

import "lockkeeper/bench"

// figure is one row of the table.
type figure struct {
	name, unit string
	// more says that more is better.
	more bool
	// ratio is the target: at most (with more: at least) that multiple of ZooKeeper's and etcd's
	// figure; 0 for none.
	ratio float64
	// bound is a target in units, at most, if bounded.
	bound   float64
	bounded bool
	// limit is the goal: at most that many times the limit (with more: at least that part of it); 0
	// for none.
	limit float64
	// open is the column in the table of the open loops; nil: the figure is a row of the first
	// table.
	open  *openColumn
	value func(*bench.Result) float64
}

// met says whether ours meets the target that other sets.
func (f *figure) met(ours, other float64) bool {
	if f.bounded {
		return ours <= f.bound
	}
	if f.more {
		return ours >= f.ratio*other
	}
	return ours <= f.ratio*other
}

// near says whether ours reaches the goal that the limit sets.
func (f *figure) near(ours, limit float64) bool {
	if f.more {
		return ours*f.limit >= limit
	}
	return ours <= f.limit*limit
}

// within gives a figure a goal beside the limit.
func (f figure) within(times float64) figure {
	f.limit = times
	return f
}

func p50(r *bench.Result) float64       { return r.Latency.P50 }
func p99(r *bench.Result) float64       { return r.Latency.P99 }
func perSecond(r *bench.Result) float64 { return r.PerSecond }
func serverCPU(r *bench.Result) float64 { return r.ServerCPU }

// perCPUSecond is the number of operations in a second of the servers' CPU time.
func perCPUSecond(r *bench.Result) float64 {
	if r.ServerCPU == 0 {
		return 0
	}
	return 1e6 / r.ServerCPU
}

// resident is the resident memory of a server, on average, in MB.
func resident(r *bench.Result) float64 {
	if len(r.Resident) == 0 {
		return 0
	}
	var total int64
	for _, n := range r.Resident {
		total += n
	}
	return float64(total) / float64(len(r.Resident)) / 1e6
}

// lastOfAll is how long a herd takes.
func lastOfAll(r *bench.Result) float64 { return r.Figures["last of all, p50 ms"] }

// special is a figure that only one workload has.
func special(name string) func(*bench.Result) float64 {
	return func(r *bench.Result) float64 { return r.Figures[name] }
}

// latency is a figure in milliseconds, with a target.
func latency(name string, ratio float64, value func(*bench.Result) float64) figure {
	return figure{name: name, unit: "ms", ratio: ratio, value: value}
}

func throughput(name string, ratio float64) figure {
	return figure{name: name, unit: "1/s", more: true, ratio: ratio, value: perSecond}
}

func cpu(name string, ratio float64) figure {
	return figure{name: name + ", servers' CPU per operation", unit: "us", ratio: ratio, value: serverCPU}
}
