package server

import (
	"sync"
	"time"
)

// tokenBucket limits how often something may happen: max times at once, and fill times more every so often. The
// zero value does not limit.
type tokenBucket struct {
	max, fill int
	every     time.Duration

	mu     sync.Mutex
	tokens int
	filled time.Time // zero before the first use
}

// take says whether it may happen now, and counts it if so.
func (b *tokenBucket) take() bool {
	if b.max <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.filled.IsZero() {
		b.tokens, b.filled = b.max, now
	}
	if n := int64(now.Sub(b.filled) / b.every); n > 0 {
		b.tokens = int(min(int64(b.max), int64(b.tokens)+n*int64(b.fill)))
		b.filled = b.filled.Add(time.Duration(n) * b.every)
	}
	if b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}
