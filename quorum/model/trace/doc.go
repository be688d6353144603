// Package trace compares the behaviour of real members with the protocol. A [Recorder] stands
// between a member and its disk, its peers and its clients, and makes an [Event] of each write that
// is durable, each request of raft that arrives, its answer, each command that the state executes,
// each request of a client, and of the frames that leave for a client. A [Checker] gets
// the events of all members, in their order, and keeps the state that explains them: the tree of
// all entries, the saved terms and votes, the entries that each disk has acknowledged in each term,
// the sessions. It returns an error at the first event that the protocol cannot explain, whether a
// client has seen an effect or not.
//
// The rules are those of quorum/model, for logs and terms of any length: where the model takes each
// step that is possible, the Checker asks whether the step that was taken is possible. The two
// share the predicates of model/guards.go; for the rest the tests write behaviours of the model as
// events (scribe_test.go): the Checker explains those of the protocol, and refuses each
// counterexample of model/testdata. The steps inside a process (an entry that a leader has appended
// and neither written nor sent) are not events; the Checker infers them from the first event that
// shows them.
//
// event.go has the events, action.go their kinds in the protocol, record.go the Recorder, file.go
// the files of real members (built with the tag trace), check.go the Checker, rules.go the rules of
// majorities, tree.go the entries, execution.go the effects of the entries, nodes.go the changes of
// nodes, session.go the sessions, connection.go the replies and notifications, which cutter.go
// finds in the bytes.
package trace
