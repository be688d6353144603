package main

import "lockkeeper/bench"

// figure is one row of the table.
type figure struct {
	name, unit string
	// more says that more is better.
	more bool
	// ratio is the target: at most (with more: at least) so many times what ZooKeeper and etcd have; 0 for none.
	ratio float64
	// limit is a target in units, at most, if limited.
	limit   float64
	limited bool
	value   func(*bench.Result) float64
	// floor is what the machine would allow, in the unit of the figure; nil where there is nothing to hold it against.
	floor func(*machine) float64
}

// met says whether ours meets the target that other sets.
func (f *figure) met(ours, other float64) bool {
	if f.limited {
		return ours <= f.limit
	}
	if f.more {
		return ours >= f.ratio*other
	}
	return ours <= f.ratio*other
}

// away is how many times better the machine would allow it to be.
func (f *figure) away(ours, floor float64) float64 {
	if f.more {
		return floor / ours
	}
	return ours / floor
}

func p50(r *bench.Result) float64       { return r.Latency.P50 }
func p99(r *bench.Result) float64       { return r.Latency.P99 }
func perSecond(r *bench.Result) float64 { return r.PerSecond }
func serverCPU(r *bench.Result) float64 { return r.ServerCPU }

// perCPUSecond is how many operations the servers do in a second of CPU time.
func perCPUSecond(r *bench.Result) float64 {
	if r.ServerCPU == 0 {
		return 0
	}
	return 1e6 / r.ServerCPU
}

// resident is what a server has in memory, on average, in MB.
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
func latency(name string, ratio float64, value func(*bench.Result) float64, floor func(*machine) float64) figure {
	return figure{name: name, unit: "ms", ratio: ratio, value: value, floor: floor}
}

func throughput(name string, ratio float64, floor func(*machine) float64) figure {
	return figure{name: name, unit: "1/s", more: true, ratio: ratio, value: perSecond, floor: floor}
}

func cpu(name string, ratio float64, floor func(*machine) float64) figure {
	return figure{name: name + ", servers' CPU per operation", unit: "us", ratio: ratio, value: serverCPU, floor: floor}
}

// The machine's share of an operation, one at a time: what has to be waited for. The leader's disk and a follower's work at the
// same time, and so do all followers.

// trips is a write, with so many round trips on loopback, and the rest as reads with one.
func trips(writes, roundTrips float64) func(*machine) float64 {
	return func(m *machine) float64 { return (writes*m.FdatasyncUs + roundTrips*m.RoundTripUs) / 1000 }
}

// bare is a load on servers that do nothing.
type bare func(*machine) *bench.Result

// oneBare is what one such server does with so many clients.
func oneBare(clients, inFlight int) bare {
	return func(m *machine) *bench.Result { return m.echo(clients, inFlight) }
}

// threeBare is what three of them do with the writes of so many clients.
func threeBare(clients int) bare {
	return func(m *machine) *bench.Result { return m.cluster(clients) }
}

// rate is how many operations there would be, if each takes so many requests.
func (b bare) rate(requests float64) func(*machine) float64 {
	return func(m *machine) float64 { return perSecond(b(m)) / requests }
}

// cpu is what a request costs the servers.
func (b bare) cpu(m *machine) float64 { return serverCPU(b(m)) }

func (b bare) perCPUSecond(m *machine) float64 { return perCPUSecond(b(m)) }
