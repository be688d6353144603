// Package sim compiles the simulations of jepsen/simtest and runs each seed in a process of its
// own. It never simulates anything itself: a simulation runs inside a testing/synctest bubble,
// which only tests have. Begin with Build and Program.Run; overlay.go replaces the lines of the Go
// runtime that choose by chance (select, timers, maps, preemption), so that a seed reproduces its
// run. In a version of Go where these lines are not found, a seed gives the same faults, but not
// the same interleaving.
package sim
