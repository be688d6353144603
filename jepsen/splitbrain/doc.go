// Package splitbrain takes clusters of real processes apart in every way there is, and compares the
// behaviour of each part with the prediction of quorum.Maj, which is the rule of the server itself.
// It never cuts a client from its member: a client learns everything from its member. Begin with
// Case (the break) and Play; then stage (the clients of a case), recorder (their observations, with
// the time since the break), judge (prediction against observation, a pure function) and Document
// (the results for people). docs/split-brain.md has the checks and the results.
package splitbrain
