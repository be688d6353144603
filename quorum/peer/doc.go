// Package peer is the port between members: it finds out which member a connection belongs to,
// carries the streams between members, and is the transport of the raft library, with the proof of
// leadership that leases rely on.
//
// It knows nothing of the replica: what it needs to know of this member's raft node and log comes
// through Local, and what other members send goes to Handlers. It never changes the log, decides on
// no membership, and holds no state of the cluster but the addresses in the Roster. Begin with Port
// (port.go) and follow a stream:
//
//	accept       bounds (admission.go)
//	    |
//	Port.serve   Port.welcome: TLS (tls.go), preface (preface.go), proof of the secret (proof.go)
//	    |        address (admission.go)
//	    |
//	    +-- 'H'  serveHello answers with the state of this member (hello.go)
//	    +-- 'R'  network.serve decodes requests of raft (frame.go, rpc.go), requestChecker
//	    |        refuses those that no member sends (check.go), Transport.hand gives them to
//	    |        the library, but for votes (votes.go) and old snapshots (snapshot.go)
//	    +-- else Handlers.Streams
//
//	raft library -> Transport (transport.go) -> pipeline, network -> Port.Dial -> another member
//
// # What others may send
//
// The library believes its peers. So a connection is checked four times: how many there are
// (admission), whether its sender can prove to be a member (Auth, if the cluster has a secret or
// certificates), where it comes from (origins), and for each request, whether a member could have
// sent it (requestChecker). What is refused ends its stream with ErrRefused.
//
// # Goroutines
//
//	name          owner      waits for                          ends
//	acceptLoop    Port       peer connections                   Close
//	serve         Port       the frames of one peer stream; on  with the stream, Close
//	                         a raft stream the library's answer
//	secretLoop    Port, if   the next look whether the secret   Close
//	              there is a has changed
//	              secret
//	commitLoop    Transport  a commit index to send, per        with the term, Close
//	                         follower
//	readLoop      pipeline   answers to appended entries; its   with the pipeline
//	                         own disk, to pass them on
//
// A snapshot that arrives is decoded on the side by a goroutine that ends with its request
// (snapshotChecker).
//
// # Locks
//
// All locks of this package are leaves: nothing else is locked and nobody is called under them.
package peer
