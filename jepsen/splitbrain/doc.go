// Package splitbrain is a lab that shows what split brain is, and that there is none: it takes a
// cluster of real processes apart in every way there is, and looks what each part does.
//
//	Case      some members are dead, the others in one piece or in two; what quorum.Maj predicts for each
//	Play      plays cases: everything in place, the break, a look, the healing, a comparison of all replicas
//	stage     one case while it is played: clients that hold locks, wait for them, write
//	recorder  what the clients' libraries and the members say, with the time since the break
//	Replica   a member's copy of the data, read after the healing
//	judge     holds what was seen against what was predicted; a pure function
//	Document  the results, as a page of jepsen/report with a picture for each case, and as a table
//
// It imports quorum for Maj only: the rule that it holds reality against is the very one that the
// server has.
//
// # What is looked at
//
// A side's clients know no other members than those of their side. Nothing is cut between a client
// and its member: what a client is told, its member has told it.
//
// Every member has a client that holds a lock. On every side another client waits for the locks of
// all members that are not on that side; the side that goes on gives them to it, and before that
// happens the one who held the lock must have been told by its library that it is not connected
// (promise C6). What counts as told is that it is not told otherwise again.
//
// Writes count if they were begun after the break and acknowledged before the healing. A lock that
// all sides want after the break can have one holder.
//
// Members share a cluster from case to case: the next one begins when all of them serve again and
// their replicas have been found equal.
//
// # Goroutines
//
// A stage has one for each wait for a lock, each writer and each probe; close waits for them. A
// client has one, beside those of its library, that ends with it.
package splitbrain
