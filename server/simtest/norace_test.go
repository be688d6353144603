//go:build !race

package simtest

// How much is simulated by default. An hour takes about a quarter of a minute.
const (
	defaultHours   = 1  // of a random simulation
	directedRounds = 10 // of a directed scenario
)
