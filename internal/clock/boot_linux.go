package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the machine was booted, suspends included.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0 // before Linux 2.6.39: suspends are not seen
	}
	return time.Duration(ts.Nano())
}
