//go:build race

package simtest

// How much is simulated under the race detector, where an hour takes minutes.
const (
	defaultHours   = 0.25 // of a random simulation
	directedRounds = 3    // of a directed scenario
)
