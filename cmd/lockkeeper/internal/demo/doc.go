// Package demo runs three members and some contenders in this process, kills a member, cuts another
// one off together with the holder of a lock, and tells on a terminal which contender holds which
// lock meanwhile. Its caller is the command lockkeeper demo. Begin reading with Run in demo.go.
//
//	demo.go       the story, and its end
//	cluster.go    the members, and what happens to them
//	contender.go  programs that take a lock in turn: mutex, readers and writer, candidates
//	teller.go     the lines
//
// # What is real
//
// The members are those of lockkeeper serve, with their files, their ports for clients and their
// consoles on loopback. Only the network between the members is inside the process, because the
// operating system has none that could be cut (package simnet). A killed member has its
// connections cut without a goodbye, and its Raft ended; its files stay as they are. It has lost
// nothing that it had written, as after kill -9. jepsen run kills processes.
//
// # Goroutines
//
// Each contender has one; Run waits for all of them and for the members, and removes the directory.
package demo
