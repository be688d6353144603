// Package console shows a member to people: its locks with their history and their trouble, its
// sessions, nodes and cluster, as JSON and as the page that reads it (server/ops/console/web). It
// also acts for an operator. docs/api.md describes the answers.
//
// It sees the member through one interface, [Member], which package server implements.
//
// # Costs
//
// A [Recorder] notes the events of ephemeral nodes while commands are applied, in a ring of bounded
// bytes: the history. Nothing else goes on while nobody looks. The index of all locks is built when
// somebody asks, from the ephemeral nodes of all sessions, in steps that lock the state for less
// than a millisecond; while somebody looks it follows the Recorder, so its cost depends on the
// number of changes, not on the number of locks. It is dropped when nobody has looked for a while.
//
// All that watch share one computation a second for each view that is wanted ([hub]).
//
// # For metrics
//
// [Survey] finds the locks with the most waiters, and deadlocks, without the index.
// [Recorder].Granted gets the session of the next contender while a command is applied: package
// session measures with it how long the next holder's client takes to react to the end of the
// holder before it (session.Measures.Handoff).
package console
