package simtest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/znode"
)

// C1, while the power fails in the middle of large writes to the log, again and again: the rest of
// a torn write is removed, every member starts, and no acknowledged entry is lost.
//
// Defends: C1.
func TestPowerFailsDuringWrites(t *testing.T) {
	plant(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, newJournal(t, ""))
		rng := rand.New(rand.NewPCG(1, 1))
		const host = "10.0.2.1"
		c.net.Host(host)
		conn, _, err := zk.Connect(c.servers(), 20*time.Second, zk.WithDialer(c.dialer(host)),
			zk.WithHostProvider(&provider{rng: rng}), zk.WithLogger(zkLogger{c.journal, "writer"}))
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		acknowledged := 0
		var work sync.WaitGroup
		work.Go(func() {
			data := bytes.Repeat([]byte("data "), 1000)
			for {
				select {
				case <-over:
					return
				case <-time.After(50 * time.Millisecond):
				}
				if acknowledged == 0 {
					_, err := conn.Create("/n", nil, 0, zk.WorldACL(zk.PermAll))
					if err == nil || err == zk.ErrNodeExists {
						acknowledged = 1
					}
				} else if _, err := conn.Set("/n", data, -1); err == nil {
					acknowledged++
				}
			}
		})
		victims := rand.New(rand.NewPCG(1, 2))
		for range 5 * directedRounds {
			time.Sleep(3 * time.Second)
			m := c.members[victims.IntN(len(c.members))]
			m.powerCutInWrite()
			m.start()
			if t.Failed() {
				break
			}
		}
		close(over)
		if t.Failed() {
			conn.Close()
			work.Wait()
			c.shutdown()
			return
		}
		work.Wait()
		c.settled(30 * time.Second)
		c.members[0].running().view(func(s *znode.Store) {
			if st, code := s.Exists("/n", nil); code != 0 || int(st.Version) < acknowledged-1 {
				t.Errorf("version %d (%v) after %d updates that were acknowledged", st.Version, code, acknowledged-1)
			}
		})
		t.Logf("%d updates were acknowledged, %d logs repaired", acknowledged, c.repaired.Load())
		if c.repaired.Load() == 0 {
			t.Error("no write was torn: this shows nothing")
		}
		conn.Close()
		c.shutdown()
	})
}
