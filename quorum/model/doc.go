// Package model is the protocol of the members as a transition system, and an explorer of all its
// states. docs/model.md has the bounds that were explored, the command, and the counterexamples.
//
// The core is Raft over servers that are (member, disk), with crashes between any two transactions.
// Each mechanism that we add to it is a file of its own, switched on by its [Bounds], so that an
// exploration has only those that matter together:
//
//	election.go   votes, at any moment: timeouts, succession, transfer
//	entries.go    replication, acknowledgements, commits
//	disk.go       crashes, unsynced entries, disks that are lost and come back
//	birth.go      the first configuration, joins, the operator's word, imports   (Blank)
//	change.go     changes of the members, healing                                (Changes)
//	early.go      early commit                                                   (Early)
//	beats.go      heartbeats beside the main loop
//	lease.go      the lease of a session, clocks                                 (Lease)
//	command.go    exactly once                                                   (Commands)
//	snapshot.go   states, snapshots, restores                                    (Snapshots)
//
// [Model.Next] is a pure function from a state to its successors: no clock, no goroutine, no
// chance. [Explore] visits the states breadth first, so the counterexample that it returns is a
// shortest one; [Walk] goes beyond the bounds by chance. [Rule] names the parts of the protocol
// that can be taken away, to see that the invariants need them. A Model is for one goroutine.
//
// A message is never removed: a request can be delivered at any time after it was sent, in any
// order, many times or never, also after its sender crashed or lost its disk. A reply that arrives
// is part of the volatile state of the process that waits for it, which a crash clears.
//
// Begin reading with state.go and model.go. actions.go says for each step where the argument is and
// which functions carry it out; rules.go has the rules and bounds, invariants.go the contract,
// log.go the logs. guards.go has the rules that package trace asks of real members too, look.go the
// parts of a state that its tests look at. explore.go, frontier.go, fingerprint.go and walk.go are
// the explorer, goals.go the rare states that it can look for, script.go and knobs.go the texts. It
// imports nothing of ours.
package model
