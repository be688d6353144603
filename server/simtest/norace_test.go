//go:build !race

package simtest

// defaultHours takes about half a minute for each simulation.
const defaultHours = 2
