//go:build !race

package demo

// raceEnabled: the tests run with the race detector.
const raceEnabled = false
