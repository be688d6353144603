//go:build !race

package recipes

// raceEnabled: the tests run with the race detector.
const raceEnabled = false
