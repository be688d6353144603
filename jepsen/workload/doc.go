// Package workload is what clients do while things break, and how one sees in
// the history whether the promises were kept: each workload is a kind of client
// (a generator) together with its checker, a pure function of the history.
//
//	register       C4       reads behind a sync, writes, compare-and-set; linearizable
//	session-order  C2, C3   sessions that move between members with requests under way
//	belief         C6       what a library believes, beside when its session was over
//	lock           C6       every recipe, and a resource that checks fencing tokens
//	exactly-once   C5       counters, many requests at once on one connection
//	ephemeral      C7       sessions that end in every way, and who looks on
//	durability     C1       what was answered is there at the end, and nothing refused
//
// The clients run in the process that has the History and reach the servers
// through a Dial function. So the same workload runs against real processes
// (package jepsen/run) and, inside a testing/synctest bubble, against simulated
// networks and disks (package server/simtest). Nothing here knows whether the
// servers are lockkeeper's or ZooKeeper's.
//
// # What the checkers take from the history
//
// An operation is an Invoke and, with the same Worker and ID, its end. It took
// effect between the two, also if the client's process was stopped in between:
// so no pause of a client makes a violation out of nothing. Only what a library
// believes (belief, lock) has to be excused while its process did not run or its
// own link was disturbed, for C6 says nothing of that: a nemesis that does so enters
// FPause and FResume, or FCut and FHeal, with the [Worker], the first before it
// begins and the second after it is over.
//
// Clients of go-zookeeper enter FConnected with the session timeout in ms as
// Value, FSuspended with the time in ms since the last byte, FExpired. The others
// use a connection of this package's own, which shows every frame in its order.
//
// # Good and bad histories
//
// testdata has them for every checker, each with its verdict below it; go test
// -update writes the verdicts anew, to be read before they are committed.
//
// # Goroutines
//
// Run starts some (of go-zookeeper, of the recipes, the observers of ephemeral)
// and has stopped them when it returns, but for those of go-zookeeper that wait
// for a dial, which end with it.
package workload
