package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the machine was booted, suspends included: unlike on Linux, this
// clock counts them on macOS, and Go's own does not.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
