// Package floor is the limit that compare measures beside the systems: three processes that do only
// the work of one durable write on three members, and reads without a tree.
//
// A write is read from the client's socket, sent to two followers, written into a preallocated file
// and synced (fdatasync) on each of the three, and answered when the leader and one follower have
// synced it. A follower passes its clients' writes on to the leader. All reads have one answer.
// There is no Raft, no tree, no session and no watch; a member that ends ends the others. The
// client protocol is ZooKeeper's, as far as package bench uses it for writes and reads.
//
// Begin reading with Member; log.go has the round that makes a batch of writes durable, client.go
// the connections of clients.
package floor
