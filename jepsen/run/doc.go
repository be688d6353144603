// Package run puts a test together: it starts a cluster of real processes, lets
// clients work on it, breaks it, heals it, and has the checkers judge what the
// clients saw.
//
//	Test       what to run; Run does it
//	Client     a process of its own with client n of every workload
//	nemesis    what breaks something and mends it; several at the same time
//	field      what nemeses act on: members, links, clients, disks
//	planner    which of their acts may begin: a majority can act for a share of the time
//	report     (package jepsen/report) what is written when it is over
//
// # One run, in order
//
//  1. the network (namespaces, or proxies on the loopback), the members
//  2. the clients, one process each; they send their history as they make it
//  3. the nemeses, until Test.Time is over
//  4. everything is healed, every member started; the clients go on for a while
//  5. the clients end; every workload reads what it needs to see at the end
//  6. the checkers; the report
//
// # The clock
//
// All entries have the time of the machine's monotonic clock, which all
// processes share (jepsen.Monotonic), stamped by the process that did it. So
// the histories can be merged by time, and an interval from an invoke to its
// end contains the moment at which the operation took effect, also if the
// client was stopped in between.
//
// # Seeds
//
// A seed fixes what the nemeses plan: when, what kind, which members. What
// depends on the cluster (who leads) and what the clients see is not fixed.
//
// # Goroutines
//
// Each nemesis has one, which ends with the context after it has mended what it
// broke; each Client has one that reads its history. Run waits for all.
package run
