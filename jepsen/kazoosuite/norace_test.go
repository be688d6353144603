//go:build !race

package kazoosuite

const raceEnabled = false
