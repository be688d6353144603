// Package trace compares the behaviour of real members with the protocol. A [Recorder] stands
// between a member and its disk and peers, and makes an [Event] of each write that is durable, each
// request of raft that arrives, and its answer. A [Checker] gets the events of all members, in
// their order, and keeps the state that explains them: the tree of all entries, the saved terms and
// votes, the entries that each disk has acknowledged in each term. It returns an error at the first
// event that the protocol cannot explain, whether a client has seen an effect or not.
//
// The rules are those of quorum/model, for logs and terms of any length: where the model takes each
// step that is possible, the Checker asks whether the step that was taken is possible. They are in
// rules.go, each with its source. The steps inside a process (an entry that a leader has appended
// and neither written nor sent) are not events; the Checker infers them from the first event that
// shows them.
//
// event.go has the events, action.go their kinds in the protocol, record.go the Recorder, file.go
// the files of real members (built with the tag trace), check.go the Checker, tree.go the entries.
package trace
