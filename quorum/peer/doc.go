// Package peer is the port between members: it listens and dials, finds out which member a
// connection belongs to, bounds connections and frames, and carries the streams between members.
// It knows no raft, and nothing of a stream behind its kind.
//
//	            Port.Start(Handlers)                       Port.Dial, DialDisk, Hello
//	                    |                                              |
//	accept         bounds (admission.go)                 reach    addresses (roster.go)
//	                    |                                              |
//	Port.serve     welcome: TLS (tls.go)                 introduce: TLS, preface, proof
//	                    |    preface (preface.go)                      |
//	                    |    proof of the secret (proof.go)  awaitVerdict (verdict.go)
//	                    |                                              |
//	               notMember: cluster, disk, member,     Stream: frames (frame.go)
//	                    |     address (admission.go)
//	               sendVerdict
//	                    |
//	    +-- 'H'    serveHello: the state of this member (hello.go)
//	    +-- else   Handlers.Streams by kind: 'R' raftnet.Transport, the others package quorum
//
// # Who calls it
//
// Package quorum opens the port (Listen) and the Roster, raftnet and quorum dial, from any
// goroutine. Start hands over what serves the streams; each Handler runs in the goroutine of its
// stream. The port asks the member two things, through Local: the disks that count, and the leader.
// It never changes the log and decides on no membership. Close ends everything.
//
// # What others may send
//
// A connection is checked three times: the number of them (admission), whether its sender can prove
// to be a member (Auth, if the cluster has a secret or certificates), and its address (origins).
// The handler of its kind checks the content; an ErrRefused ends the stream, is counted and logged.
//
// # Goroutines
//
//	name          owner   waits for                                ends
//	acceptLoop    Port    peer connections                         Close
//	serve         Port    the frames of one stream                 with the stream, Close
//	secretLoop    Port    the next look whether the secret has     Close
//	                      changed, if there is one
//
// # Locks
//
// All locks of this package are leaves: nothing else is locked and nobody is called under them.
package peer
