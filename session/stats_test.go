package session

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestStatsWaitForTheQueueAlone: a reply is counted with the queue locked, so nobody may wait for
// the queue and keep the statistics locked: with cons, that stopped a member for good.
func TestStatsWaitForTheQueueAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		s := mustConnect(t, m, 10*time.Second).s
		s.mu.Lock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Stats()
		}()
		for range 10_000 {
			if !s.stats.mu.TryLock() {
				t.Error("the statistics are locked while the queue is waited for")
				break
			}
			s.stats.mu.Unlock()
			runtime.Gosched()
		}
		s.mu.Unlock()
		<-done
	})
}
