package recipes

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestWarnsOfStrangers: a Session says, once for each path and for so many paths at the
// most, that another library's lock may not wait for ours.
func TestWarnsOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		conn := c.connect()
		var log bytes.Buffer
		s := newSession(conn, conn.events, func() time.Duration { return testTimeout }, slog.New(slog.NewTextHandler(&log, nil)))
		defer s.Close()
		lock := func(path, beside string) {
			t.Helper()
			g := must(t, NewMutex(s, path, MutexOptions{}).Lock)
			c.with(func() {
				if _, err := c.createLocked(path+"/"+beside, nil, zk.FlagEphemeral, 99); err != nil {
					t.Error(err)
				}
			})
			if _, err := NewMutex(s, path, MutexOptions{}).TryLock(t.Context()); err == nil {
				t.Error("two holders")
			}
			mustUnlock(t, g)
			c.delete(path + "/" + beside)
		}
		for _, same := range []string{
			"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000001", "b7bfcd3227404d3880a0eccd4e5100cf-lock-0000000001",
		} {
			lock("/a", same)
		}
		if log.Len() > 0 {
			t.Errorf("warned of those who wait: %s", &log)
		}
		const kazoo = "b7bfcd3227404d3880a0eccd4e5100cf__lock__0000000001"
		lock("/a", kazoo)
		lock("/a", kazoo)
		if n := strings.Count(log.String(), "may not wait"); n != 1 || !strings.Contains(log.String(), "path=/a node="+kazoo+" library=kazoo") {
			t.Errorf("%d warnings: %s", n, &log)
		}
		for i := range mostWarned + 10 {
			lock(fmt.Sprint("/b", i), kazoo)
		}
		if n := strings.Count(log.String(), "may not wait"); n != mostWarned {
			t.Errorf("%d warnings, want %d", n, mostWarned)
		}
	})
}

// TestLeasesInFront: a lock waits for the leases of semaphores on its path that were
// made before its node, and for no others; and a semaphore for the locks before its
// lease.
func TestLeasesInFront(t *testing.T) {
	const (
		kazoo   = "b7bfcd3227404d3880a0eccd4e5100cf"
		curator = "leases/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lease-0000000009"
	)
	for _, lease := range []string{kazoo, curator} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster()
			s, _ := newTestSession(c)
			defer s.Close()
			makeLease := func() {
				c.with(func() {
					for _, dir := range []string{"/q", "/q/leases", "/q/locks"} {
						c.createLocked(dir, nil, zk.FlagContainer, 0)
					}
					if _, err := c.createLocked("/q/"+lease, nil, zk.FlagEphemeral, 99); err != nil {
						t.Error(err)
					}
				})
			}
			locks := map[string]Locker{
				"mutex": NewMutex(s, "/q", MutexOptions{}), "reader": NewRWMutex(s, "/q", MutexOptions{}).RLocker(),
				"semaphore": NewSemaphore(s, "/q", SemaphoreOptions{Leases: 1}),
			}
			for name, l := range locks {
				makeLease()
				if _, err := l.TryLock(t.Context()); err == nil {
					t.Fatalf("%s: TryLock beside %s", name, lease)
				}
				next := later(t, l.Lock)
				if len(next) > 0 {
					t.Errorf("%s: granted behind %s", name, lease)
				}
				c.delete("/q/" + lease)
				g := <-next
				makeLease() // that comes later
				if !g.Held() || g.Valid(t.Context()) != nil {
					t.Errorf("%s: lost to a lease that came later", name)
				}
				mustUnlock(t, g)
				c.delete("/q/" + lease)
			}
			// Both wait, in the order of their nodes.
			sem, mutex := locks["semaphore"], locks["mutex"]
			first := must(t, mutex.Lock)
			second := later(t, sem.Lock)
			third := later(t, mutex.Lock)
			mustUnlock(t, first)
			g := <-second
			if len(third) > 0 {
				t.Error("granted beside a lease")
			}
			mustUnlock(t, g)
			mustUnlock(t, <-third)
		})
	}
}
