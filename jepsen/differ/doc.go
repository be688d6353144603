// Package differ sends the same requests to two servers and compares all that they answer: every reply, every
// field of a Stat, every event, in order, on every connection. One server is a real ZooKeeper (Debian's 3.8.0), the
// other one is lockkeeper, both as processes, behind their client ports.
//
//	generator  makes steps from a seed and from what the first server answered
//	duel       does a step to both servers, a side each; two sides, two lists of streams
//	comparer   compares the streams: words by words, zxids by what they stand for
//	explain    the differences that are meant to be, each with a reason (docs/compatibility.md)
//	shrinker   leaves out what a difference does not need
//
// # Steps
//
// A Step is done to one slot: the place for one session and one connection. Mostly it is one request, or several at once.
// Behind it comes a ping on every connection, and events come before its answer; so what a step causes, wherever it is
// seen, belongs to that step, and two servers can be compared step by step.
//
// Each round begins with two fresh servers. In its end an observer, who has seen every event meanwhile, reads
// the whole tree.
//
// # What is not compared as it stands
//
// Names of sessions are made of slots. Times must be the same for all that one update did, and lie within the run. Zxids
// are compared by role: those of updates must correspond, equal where equal and in the same order; for that of a
// reply's header it counts which updates it lies behind, as ZooKeeper spends zxids on writes that fail. Lists whose
// order means nothing are sorted, and the events of one session's end, which vanishes as a whole.
//
// # Running it
//
// `go test ./jepsen/differ` sends requests for half a minute, with a seed from the clock that it prints. -ops 200000 -round
// 2000 is the long form, -seed repeats a round. When there is a difference it shows the shortest sequence of steps that it
// found to make one. The generator keeps away from what breaks ZooKeeper 3.8.0 and from what is a matter of time inside of
// it; comments there say why. A difference that is meant to be is an entry in explain.go and a section of
// docs/compatibility.md, and as narrow as it can be: a wide one hides faults.
//
// # Goroutines
//
// Each step has one for the first server; do waits for it.
package differ
