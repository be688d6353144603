package main

import (
	"fmt"
	"slices"

	"lockkeeper/bench"
)

// stage is the cluster that a step runs on.
type stage int

const (
	cold  stage = iota // the three members of the round, just started
	warm               // the same, after the warm-up
	fresh              // three members of its own
	alone              // one member, which the step starts
)

// load is the load on a cluster.
type load struct {
	// workload is one of package bench, or idle: nothing.
	workload          string
	clients, inFlight int
	// first says to whom client 0 connects, the others in turn.
	first role
	// library is the client library of the workload locks.
	library library
	// nodes is for the workload znodes, rounds for herd; 0 is the workload's own number.
	nodes, rounds int
	// etcd says that etcd has a workload to compare with.
	etcd bool
	// share is the rate of an open loop, in percent of the capacity, and rate the same in requests
	// a second; 0 is a closed loop.
	share int
	rate  float64
	// recommended says that the systems with recommended settings have this load, too.
	recommended bool
}

// Workloads that package bench does not have.
const (
	idle  = "idle"  // the servers are left alone for a moment
	locks = "locks" // all clients take and give back one lock of a client library
)

// library is the library of the compared locks. etcd always has its own.
type library string

const (
	mutex   library = "recipes.Mutex"
	curator library = "Curator"
)

// herdClients is the number of clients in a herd.
const herdClients = 1000

// role is the role of a member.
type role string

const (
	leader   role = "leader"
	follower role = "follower"
)

// step gives some figures, all from one result.
type step struct {
	stage   stage
	load    load
	times   int  // in each round; 0 is once
	memory  bool // is all that is measured
	asked   bool // it is left out where -only is not given
	figures []figure
}

// steps are the table, in the order in which they are run. A step that kills a member is the last
// of its stage.
func steps() []step {
	return slices.Concat([]step{
		{stage: cold, memory: true, load: load{workload: idle, etcd: true}, figures: []figure{
			{name: "memory of a fresh member", unit: "MB", bound: 20, bounded: true, value: resident},
		}},
		single("at the leader", leader),
		single("through a follower", follower),
		{stage: warm, load: load{workload: "write", clients: 16, etcd: true, recommended: true}, figures: []figure{
			throughput("write, 16 clients", 2).within(2.5),
			cpu("write, 16 clients", 0.5),
		}},
		{stage: warm, load: load{workload: "write", clients: 128, etcd: true, recommended: true}, figures: []figure{
			throughput("write, 128 clients", 2.4),
			cpu("write, 128 clients", 0.5),
		}},
		{stage: warm, load: load{workload: "write", clients: 128, inFlight: 8}, figures: []figure{
			throughput("write, 128 clients with 8 in flight", 4),
			cpu("write, 128 clients with 8 in flight", 0),
			{name: "memory of a member after the write load", unit: "MB", ratio: 1.0 / 3, value: resident},
		}},
		reads("read, 16 clients", 16, 1),
		reads("read, 128 clients", 128, 1),
		reads("read, 128 clients with 8 in flight", 128, 8),
		{stage: warm, load: load{workload: "lock-cycle", clients: 1, first: leader, etcd: true}, figures: []figure{
			latency("lock-cycle, 1 client, p50", 0.65, p50),
		}},
		{stage: warm, load: load{workload: "lock-cycle", clients: 16, etcd: true}, figures: []figure{
			throughput("lock-cycle, 16 clients", 2.3),
		}},
		{stage: warm, load: load{workload: "lock-cycle", clients: 128, etcd: true}, figures: []figure{
			throughput("lock-cycle, 128 clients", 2.4),
		}},
		handoff("lock handoff, 2 clients, p50", 2),
		handoff("lock handoff, 64 clients, p50", 64),
		{stage: warm, load: load{workload: "herd", clients: herdClients}, figures: []figure{
			latency("herd of 1,000, until the last has its event", 0.9, lastOfAll),
		}},
	}, openSteps(), []step{
		{stage: warm, load: load{workload: "failover", clients: 8}, times: 2, figures: []figure{
			latency("failover (kill -9 of the leader), gap without a write", 0.2, special("gap without a write ms")),
			{name: "failover, connections lost on survivors", unit: "", bounded: true,
				value: special("connections lost on survivors")},
		}},
		{stage: fresh, memory: true, load: load{workload: "sessions", clients: 5000}, figures: []figure{
			{name: "memory of an idle session, all members together", unit: "KB", ratio: 0.75,
				value: kilo(special("resident bytes per session"))},
		}},
		{stage: fresh, load: load{workload: "znodes", clients: 8, first: follower, nodes: 200_000}, figures: []figure{
			{name: "memory of a 100-byte znode, on each member", unit: "B", ratio: 0.5,
				value: special("resident bytes per node and server")},
			latency("restart of a member with 200,000 znodes", 0.5, special("restart ms")),
		}},
		{stage: alone, load: load{workload: "boot"}, times: 3, figures: []figure{
			latency("boot to the first create, standalone", 0.1, p50),
		}},
		libraryLocks(mutex, 1), libraryLocks(mutex, 8), libraryLocks(curator, 1), libraryLocks(curator, 8),
	})
}

// libraryLocks are the locks that people use: beside etcd's concurrency.Mutex.
func libraryLocks(l library, clients int) step {
	f := latency(fmt.Sprintf("%s, acquire and release alone, mean", l), 0,
		func(r *bench.Result) float64 { return 1000 / r.PerSecond })
	if clients > 1 {
		f = throughput(fmt.Sprintf("%s, handoffs among %d contenders", l, clients), 0)
	}
	return step{stage: warm, asked: true, load: load{workload: locks, library: l, clients: clients, etcd: true},
		figures: []figure{f}}
}

func single(where string, first role) step {
	name := "write, 1 client " + where
	do := load{workload: "write", clients: 1, first: first, etcd: true, recommended: true}
	return step{stage: warm, load: do, figures: []figure{
		latency(name+", p50", 0.7, p50).within(1.3),
		latency(name+", p99", 0.7, p99),
	}}
}

func reads(name string, clients, inFlight int) step {
	return step{stage: warm, load: load{workload: "read", clients: clients, inFlight: inFlight}, figures: []figure{
		{name: name + ", per CPU second of the servers", unit: "1/s", more: true, ratio: 2, value: perCPUSecond},
		throughput(name, 0).within(1.5),
	}}
}

func handoff(name string, clients int) step {
	return step{stage: warm, load: load{workload: "lock-contended", clients: clients, etcd: true}, figures: []figure{
		latency(name, 0.6, p50),
	}}
}

func kilo(f func(*bench.Result) float64) func(*bench.Result) float64 {
	return func(r *bench.Result) float64 { return f(r) / 1000 }
}
