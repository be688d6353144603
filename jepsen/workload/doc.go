// Package workload is what clients do while things break, and how one sees in
// the history whether the promises were kept: each workload is a kind of client
// (a generator) together with its checker, a pure function of the history.
//
// The clients run in the process that has the History and reach the servers
// through a Dial function. So the same workload runs against real processes
// (package jepsen/run) and, inside a testing/synctest bubble, against simulated
// networks and disks (package server/simtest). Nothing here knows whether the
// servers are lockkeeper's or ZooKeeper's.
package workload
