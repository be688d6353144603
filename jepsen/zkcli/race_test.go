//go:build race

package zkcli

// raceEnabled says that the tests run with the race detector; then so does lockkeeper.
const raceEnabled = true
