//go:build !race

package rawsock

const raceDetector = false
