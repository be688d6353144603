// Command explore visits all states of the protocol of quorum/model within the given bounds, and
// prints their number, or a shortest counterexample. A rule that is named takes a part of the
// protocol away.
package main
