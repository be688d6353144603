// Package differ sends the same requests to a real ZooKeeper (Debian's 3.8.0) and to lockkeeper,
// and compares all answers: each reply, each field of a Stat, each event, in order, on each
// connection, and the figures of mntr. It never looks inside a server, and it never decides which
// of the two is right. All of it is test code, as nothing else uses it. Begin reading with Step in
// step_test.go, then duel.watch: the generator makes steps, a side does them to one server, the
// comparer compares what the sides have received.
//
// After each step comes a ping on every connection, and events come before its reply. So all that a
// step causes belongs to that step. A round begins with two fresh servers, and ends with the whole
// tree being read. The shrinker leaves out steps of a sequence that a difference does not need.
//
// Some things are not compared as they stand. Sessions are named by slots. Times must be the same
// for all that one update did, and lie within the run. The zxids of updates must correspond, equal
// where equal and in the same order; the zxid of a reply's header must follow the same updates, as
// ZooKeeper spends zxids on writes that fail. Lists without a meaningful order are sorted, and the
// events of one session's end. A difference that is meant to be is an entry of explain_test.go and
// a section of docs/compatibility.md, as narrow as it can be, because a wide one hides faults. The
// generator keeps away from requests that break ZooKeeper 3.8.0 and from outcomes that depend on
// timing inside of it.
//
// `go test ./jepsen/differ` sends requests for half a minute, with a seed from the clock that it
// prints; -ops 200000 -round 2000 is the long form, -seed repeats a round.
package differ
