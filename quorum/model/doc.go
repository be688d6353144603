// Package model is the protocol of the members as a transition system, and an explorer of all its
// states. It has Raft over servers that are (member, disk), the birth of a cluster, the join of a
// blank disk, the healing of a replaced one, the operator's word at a first start, and crashes
// between any two transactions. The argument is docs/decisions/017-a-member-is-its-disk.md.
//
// [Model.Next] is a pure function from a state to its successors: no clock, no goroutine, no
// chance. [Explore] visits the states breadth first, so the counterexample that it returns is a
// shortest one. [Rules] take parts of the protocol away, to see that the invariants need them;
// [Bounds] limit the exploration. A Model is for one goroutine.
//
// A message is never removed: a request can be delivered at any time after it was sent, in any
// order, many times or never, also after its sender crashed or lost its disk. A reply that arrives
// is part of the volatile state of the process that waits for it, which a crash clears.
// Nothing else is needed for a process that is down: it is one that takes no step.
//
// Begin reading with steps.go. state.go has the state, invariants.go the contract, log.go the logs,
// explore.go the explorer, script.go the counterexamples as text. It imports nothing of ours.
package model
