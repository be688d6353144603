// Package raftnet is raft's transport on the port between members, with three things that the raft
// library's interface does not have: the proof of leadership that leases rely on, answers that wait
// for this member's own disk, and the commit index sent at once (early commit). It also translates
// raft's server ids into members and disks (server.go).
//
//	              hashicorp/raft                                        package quorum
//	    |               |              ^                                      |
//	AppendEntries   pipeline       Consumer                   ProvenAt, Commit, Wrote, Synced ...
//	RequestVote     (pipeline.go)      |                                      |
//	InstallSnapshot     |          Transport.hand: old snapshots (snapshot.go)|
//	    |               |              ^                                      |
//	    +---- Transport (transport.go), Followers (followers.go) -------------+
//	    |               |              ^
//	network.call    frames         network.serve: decode (rpc.go), validate (check.go),
//	(network.go)    (rpc.go)           |          fit (append.go), heartbeats (heartbeat.go)
//	    |               |              |
//	    +---- peer.Port.DialDisk   Transport.Serve, for streams of the kind peer.StreamRaft
//
// # Who calls it
//
// Package quorum makes the Transport on a peer.Port (New), registers Transport.Serve as the handler
// of raft streams when it starts the port, and gives the Transport to raft. Raft calls the methods
// of raft.Transport from its own goroutines; quorum calls the others, from any goroutine. The
// transport asks the member and reports to it through Local, from the goroutines below. It never
// changes the log. Close ends its goroutines, after the port has been closed.
//
// # What others may send
//
// The library believes its peers. So requestChecker refuses every request that no member could have
// sent, and snapshotChecker decodes a snapshot beside the library, which installs only a valid one.
// A refusal is a peer.ErrRefused, which ends the stream.
//
// # Goroutines
//
//	name          owner            waits for                             ends
//	commitLoop    Transport        a commit index to send, per follower  with the term, Close
//	readLoop      pipeline         answers to appended entries; its own  with the pipeline
//	                               disk, to pass them on
//	pass          network          raft's main loop, to take a           Close of the port
//	                               heartbeat that has been answered
//	checkSnapshot snapshotChecker  the bytes of a snapshot that arrives  with its request
//
// Requests of other members are served in the goroutine of their stream (peer.Port).
//
// # Locks
//
// All locks of this package are leaves: nothing else is locked and nobody is called under them.
package raftnet
