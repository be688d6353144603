//go:build race

package differ

// raceEnabled says that the tests run with the race detector; then so does lockkeeper.
const raceEnabled = true
