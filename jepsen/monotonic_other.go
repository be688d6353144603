//go:build !linux

package jepsen

import "time"

// Monotonic replaces the machine's monotonic clock, for which there is no portable call: it is the
// wall clock, which must not be set during a run.
func Monotonic() time.Duration { return time.Duration(time.Now().UnixNano()) }
