package connlimit

import (
	"time"

	"golang.org/x/time/rate"
)

// NewRate returns a limiter of the connections that begin in a time: burst at once, and fill more
// each interval. A burst of 0 or less is no limit.
func NewRate(burst, fill int, interval time.Duration) *rate.Limiter {
	if burst <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(float64(fill)/interval.Seconds()), burst)
}
