package simtest

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// A leader's wall clock is wrong for a while, by years. Nodes that it creates meanwhile show that;
// those that come after it have the right times, and TTL nodes live for their time to live,
// whichever clock was wrong when they were created and whoever leads (C8).
func TestWrongClockOfOneLeaderPasses(t *testing.T) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	const ttl = time.Minute
	for _, off := range []time.Duration{87_600 * time.Hour, -87_600 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1, newJournal(t, ""))
			defer c.shutdown()
			l := c.awaitLeader()
			const host = "10.0.3.2"
			c.net.Host(host)
			conn := c.connect("client", host, 30*time.Second, rand.New(rand.NewPCG(1, 2)))
			defer c.disconnect(conn)
			created := map[string]time.Time{}
			create := func(path string) (ctime time.Time) {
				t.Helper()
				// A change of leader may cost the client its connection.
				for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
					_, err := conn.CreateTTL(path, nil, zk.FlagTTL, zk.WorldACL(zk.PermAll), ttl)
					if err == nil || err == zk.ErrNodeExists {
						break
					} else if time.Now().After(deadline) {
						t.Fatalf("create %s: %v", path, err)
					}
				}
				created[path] = time.Now()
				_, stat, err := conn.Get(path)
				if err != nil {
					t.Fatalf("get %s: %v", path, err)
				}
				return time.UnixMilli(stat.Ctime)
			}
			right := func(path string) {
				t.Helper()
				if d := time.Since(create(path)); d.Abs() > 5*time.Second {
					t.Errorf("%s, created by a leader with the right time, is %v old", path, d)
				}
			}
			right("/before")
			l.clock.Store(int64(off))
			if d := time.Since(create("/wrong").Add(-off)); d.Abs() > 5*time.Second {
				t.Errorf("created by a leader whose clock is off by %v, at a time that is off by %v", off, off-d)
			}
			time.Sleep(10 * time.Second)
			l.clock.Store(0)
			right("/after")
			l.powerCut()
			right("/next")
			l.start()
			for len(created) > 0 {
				time.Sleep(time.Second)
				for path, at := range created {
					there, _, err := conn.Exists(path)
					if err != nil {
						continue
					}
					// Clocks drift, a new leader may be late by the time without a leader, and the
					// reaper by a second.
					switch age := time.Since(at); {
					case !there && age < ttl*95/100:
						t.Errorf("%s is gone after %v, its time to live is %v", path, age, ttl)
						fallthrough
					case !there:
						delete(created, path)
					case age > ttl+25*time.Second:
						t.Errorf("%s is there after %v, its time to live is %v", path, age, ttl)
						delete(created, path)
					}
				}
			}
		})
	}
}
