// Package session is a client's side of a member: the handshake, the order of each session's
// requests, the watches of each connection, and the leases that keep sessions alive. It never owns
// a socket, and it knows nothing of raft. Above it, server passes it frames (Session.Submit) and a
// Conn to write output to (Session.Open, Session.Flush). Below it, a Replica applies commands and
// calls the Manager, which is its listener, for each of them. Begin reading with Session.Submit in
// session.go, then execute.go (reads), output.go and lease.go.
//
// # Order
//
// Each session has a queue. A write gets the session's next seq, goes to the Replica, and waits in
// the queue until this member applies it; then its reply is made, from the result on this very
// member. A request that does not change the state (a read, a ping) is executed at its place: at
// once when the queue is empty, else after the write before it and before the next one, inside the
// critical section of the former. So requests take effect, and are answered, in the order sent.
//
// Applying a command, firing its watches and queueing the reply are one step under the Replica's
// lock; a read and the registration of its watch are another. Replies and notifications share one
// buffer per connection. So an event is queued before anything that shows the change.
//
// # Leases
//
// See lease.go for a member's part (the output that a client may get, and until when), expiry.go
// for the leader's (the sessions that have expired), and confirm.go for the reports between them.
//
// # Files, from the top
//
//	manager.go     the Manager: start, stop, the replica's listener; figures.go and operator.go: its
//	               listings and acts for operators
//	handshake.go   sessions are created and attached; readonly.go: served without a leader
//	restore.go     the state is replaced by a snapshot; sync.go: reads outside of any session
//	session.go     a Session: the queue of its requests and their order
//	auth.go        logins; execute.go: requests are answered
//	member.go      the parts that all connections of a member share; expiry.go, confirm.go: leases
//	watch.go       the watch table; connection.go: a connection; output.go, backlog.go: its output
//	signal.go      waiting; moment.go: times
//
// No file uses a name of a file above it (internal/tidy).
//
// # Locks
//
// Order: the Replica's lock, then handshakes.mu, readOnly.mu, connected.mu, requests.mu,
// WatchTable.mu, the locks of admission.Gate, and output.mu. The other locks are leaves; the
// statistics have the last ones. No function of this package calls the Replica while it holds one
// of its own locks.
//
// # Goroutines
//
// Submit, Flush and Detach of a session are called by its connection's goroutines; Applied,
// Restored and Lead by the Replica's. The goroutines that Start begins are the Manager's own; Close
// ends them.
package session
