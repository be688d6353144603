// Package splitbrain takes clusters of real processes apart in every way there is, and compares
// what each part does with what quorum.Maj predicts, which is the rule of the server itself. It
// never cuts a client from its member: what a client learns, its member has told it. Begin with
// Case (what is broken) and Play; then stage (the clients of a case), recorder (what they saw, with
// the time since the break), judge (prediction against observation, a pure function) and Document
// (the results for people). docs/split-brain.md says what is looked at, and has the results.
package splitbrain
