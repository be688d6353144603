//go:build race

package server

// raceTimes is how much longer code takes with the race detector, at the most.
const raceTimes = 15
