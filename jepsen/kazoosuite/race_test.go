//go:build race

package kazoosuite

// raceEnabled says that the tests run with the race detector; then so does lockkeeper.
const raceEnabled = true
