//go:build !race

package curator

// raceEnabled says that the tests run with the race detector; then so do the members that they start.
const raceEnabled = false
