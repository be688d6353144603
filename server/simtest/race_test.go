//go:build race

package simtest

// defaultHours under the race detector, where an hour takes minutes.
const defaultHours = 0.25
