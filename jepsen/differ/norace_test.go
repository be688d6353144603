//go:build !race

package differ

// raceEnabled says that the tests run without the race detector.
const raceEnabled = false
