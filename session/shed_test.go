package session

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/znode"
)

// Shedding ends the connections of the share of sessions that was asked for, spread over the time;
// the sessions stay.
func TestShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		const n = 40
		for range n {
			mustConnect(t, m, time.Minute)
		}
		for _, tt := range []struct {
			percent, want int
			least, most   time.Duration
		}{{0, 0, 0, 0}, {25, 10, 400 * time.Millisecond, time.Second}, {100, 30, 900 * time.Millisecond, 2 * time.Second}, {100, 0, 0, 0}} {
			begin, before := time.Now(), len(m.connected.all())
			got := m.Shed(t.Context(), tt.percent, time.Second)
			took := time.Since(begin)
			synctest.Wait()
			if got != tt.want || before-len(m.connected.all()) != tt.want || took < tt.least || took > tt.most {
				t.Errorf("%d %%: %d ended of %d, %d left, in %v; want %d", tt.percent, got, before, len(m.connected.all()), took, tt.want)
			}
		}
		r.View(func(s *znode.Store) {
			if got := s.Counts().Sessions; got != n {
				t.Errorf("%d sessions are left of %d", got, n)
			}
		})
	})
}
