//go:build race

package jepsen

// Race says that this program has the race detector; then so shall the members that its tests
// start.
const Race = true
