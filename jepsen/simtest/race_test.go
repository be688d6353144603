//go:build race

package simtest

import "time"

// How much is simulated under the race detector, where an hour takes minutes.
const (
	defaultVirtual = 5 * time.Minute // of a random simulation
	defaultSeeds   = 1
	directedRounds = 3 // of a directed scenario
)
