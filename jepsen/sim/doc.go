// Package sim runs the simulations of server/simtest, many of them, and collects what they say.
//
// A simulation runs inside a testing/synctest bubble, which there is only in tests. So Build compiles the tests of
// server/simtest into a program, once, and Run has it simulate one seed, in a process of its own. This needs the Go
// toolchain and the source of the module.
//
// # Why a seed reproduces its run
//
// What the simulations do by chance follows from their seed. The Go runtime has chance of its own: which of several ready
// cases a select takes, which of two timers of the same instant fires first, where the iteration over a map begins,
// the functions of math/rand that take no source. And real time has an influence: a goroutine that has
// run for 10 ms is interrupted, and the garbage collector has others help it. So Build compiles the program with a few lines
// of the runtime replaced (go build -overlay; see overlay.go), which make chance inside a bubble follow from the
// seed and interrupt nobody; the program runs on one processor, collects garbage at virtual moments at which nobody
// else can run, and touches no file meanwhile. Where the lines are not found, in another version of Go, the program is
// built without that, and the same seed gets the same faults at the same moments and not the same interleaving.
package sim
