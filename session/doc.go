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
// member. What does not change the state (a read, a ping) is executed at its place: at once when
// the queue is empty, else when the last write before it is applied and before the next one is,
// inside the critical section in which that happens. So requests take effect, and are answered, in
// the order sent.
//
// Applying a command, firing its watches and queueing the reply are one step under the Replica's
// lock; a read and the registration of its watch are another. Replies and notifications share one
// buffer per connection. So an event is queued before anything that shows the change.
//
// # Leases
//
// See lease.go for a member's part (the output that a client may get, and until when) and for
// the leader's (which session has expired).
//
// # Locks
//
// Order: the Replica's lock, then connected.mu, requests.mu, WatchTable.mu, the locks of
// admission.Gate, output.mu and tracker.mu; the statistics have the last ones. No function of this
// package calls the Replica while it holds one of its own locks.
//
// # Goroutines
//
// Submit, Flush and Detach of a session are called by its connection's goroutines; Applied,
// Restored and Lead by the Replica's. The goroutines that Start begins are the Manager's own; Close
// ends them.
package session
