//go:build !linux

package cputime

import "time"

// Thread is 0: the CPU time of a thread is not known on this system.
func Thread() time.Duration { return 0 }
