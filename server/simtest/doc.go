// Package simtest runs whole members, server.Start and all, on simulated
// networks and disks inside a testing/synctest bubble: hours of virtual time,
// with partitions, crashes and restarts, in seconds. It consists of tests.
//
// The random simulations are in sim_test.go. Their faults come from a seed,
// which is printed; the interleaving of goroutines does not, so a failure may
// need some runs with its seed to come again. A long run, with everything that
// the members log in a file:
//
//	SIM_LOG=/tmp/sim.log go test -v -timeout 1h -run 'TestCluster$' -sim.hours=24 ./server/simtest
//
// Scenarios that aim at one thing are in directed_test.go. The rest of the
// files is what they are made of: cluster, member and program (what is
// simulated), nemesis (what goes wrong), and the clients with the checks:
//
//	registry    two holders of a lock, fencing tokens (C6)
//	register    reads behind a sync (C4)
//	pipeliner   order, events, exactly once (C2, C3, C5)
//	cluster     equal and sound replicas, no step back, an orderly end (C1)
package simtest
