// Package ledger is the resource that the locks of the lab protect: a counter that its holder
// reads, adds one to, and writes. The ledger is outside of every system under test. It keeps the
// counter of each resource in several books at once, which differ in their rules, and records each
// request with its time on the monotonic clock, its sender and its token. An update is lost when a
// write is made of a value that is no longer the newest.
package ledger
