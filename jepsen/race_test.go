//go:build race

package jepsen

// raceEnabled says that the tests run with the race detector; then so do the
// programs that they start.
const raceEnabled = true
