//go:build !race

package server

// raceTimes is 1: the tests run without the race detector.
const raceTimes = 1
