//go:build !linux

package timerslack

import "time"

// Set is for Linux.
func Set() {}

// Current is for Linux.
func Current() time.Duration { return 0 }
