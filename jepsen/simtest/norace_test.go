//go:build !race

package simtest

import "time"

// How much is simulated by default.
const (
	defaultVirtual = time.Hour // of a random simulation
	defaultSeeds   = 2
	directedRounds = 10 // of a directed scenario
)
