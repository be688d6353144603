//go:build !unix

package bench

import "time"

// ownCPU is for Unix.
func ownCPU() time.Duration { return 0 }
