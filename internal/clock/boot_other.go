//go:build !linux && !darwin

package clock

import "time"

// sinceBoot says nothing of suspends. On Windows and FreeBSD Go's own clock counts them.
func sinceBoot() time.Duration { return 0 }
