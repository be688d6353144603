//go:build !linux

package bench

import "time"

// preciseSleep returns a function that sleeps as precisely as Go's timers.
func preciseSleep() func(time.Duration) { return time.Sleep }
