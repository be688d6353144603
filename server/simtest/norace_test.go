//go:build !race

package simtest

// defaultHours takes about a quarter of a minute for each simulation.
const defaultHours = 1
