// Package simtest runs whole members, server.Start and all, on simulated
// networks and disks inside a testing/synctest bubble: hours of virtual time,
// with partitions, crashes and restarts, in seconds. It consists of tests.
//
// The random simulations are in sim_test.go. A simulation follows from its seed,
// down to the order in which goroutines run, when the program was built by
// package jepsen/sim; built by go test it gets the same faults, and another
// interleaving each time. So the way to run them, and to run one again, is
//
//	go run ./cmd/jepsen sim -seeds 20 -virtual 1h -jobs 2
//	go run ./cmd/jepsen sim -seeds 1 -seed N -journal /tmp/sim.log
//
// Scenarios that aim at one thing are in directed_test.go, the scripts of quorum/model in testdata:
// script_test.go reads them, a player takes their steps, a director has messages and writes wait.
// The other files have their parts:
// cluster, member and program (the simulated system), nemesis (the faults), and the clients with
// the checks:
//
//	registry    two holders of a lock, fencing tokens (C6)
//	register    reads behind a sync (C4)
//	pipeliner   order, events, exactly once (C2, C3, C5)
//	cluster     equal and sound replicas, no step back, an orderly end (C1)
package simtest
