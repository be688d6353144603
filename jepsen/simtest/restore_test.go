package simtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/server/ops/admin"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// snapshotWith is a snapshot with n nodes below /restored, of 500 bytes each.
func snapshotWith(t *testing.T, nodes int) []byte {
	t.Helper()
	s := znode.New()
	const id = wire.SessionID(9 << 48)
	s.Apply(1, &znode.Entry{Commands: []znode.Command{{Session: id, Body: &znode.CreateSession{Connection: znode.Connection{TimeoutMs: 1000}}}}}, nil)
	seq := uint64(0)
	create := func(path string) {
		seq++
		body := (&wire.CreateRequest{Path: path, Data: []byte(strings.Repeat("x", 500)), ACL: wire.OpenACL}).Append(nil)
		s.Apply(1, &znode.Entry{Commands: []znode.Command{{Session: id, Generation: 1, Seq: seq, Body: &znode.Request{Op: wire.OpCreate, Body: body}}}}, nil)
	}
	create("/restored")
	for i := range nodes {
		create(fmt.Sprintf("/restored/n%d", i))
	}
	snap := s.Snapshot()
	defer snap.Release()
	var b bytes.Buffer
	if _, err := snap.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A restore that another member drives survives leaders that are killed or lose their power in the
// middle, at any moment: it happens once, and all members hold the same afterwards. A member that
// is down meanwhile has it too. When the driving member ends, the restore has happened on all
// members or on none, and is given up.
func TestRestoreSurvivesTheLeader(t *testing.T) {
	const nodes = 6000
	snapshot := snapshotWith(t, nodes)
	during := 0
	for round := range 8 {
		driverDies, power := round%4 == 3, round%2 == 1
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, uint64(round), newJournal(t, ""))
			leader := c.awaitLeader()
			_, stop := c.pipes(len(c.members), 20*time.Second, func(i int) string { return c.members[i].clientAddr() })
			time.Sleep(2 * time.Second)
			stop()
			c.settled(30 * time.Second)
			driver := c.members[leader.id%3]
			victim := leader
			if driverDies {
				victim = driver
			}
			type outcome struct {
				zxid wire.Zxid
				err  error
			}
			done := make(chan outcome, 1)
			program := driver.running()
			go func() {
				zxid, err := admin.Restore(context.Background(), program.Ops(), znode.NewSnapshotScanner(bytes.NewReader(snapshot)))
				done <- outcome{zxid, err}
			}()
			time.Sleep(time.Duration(5+3*round) * time.Millisecond)
			victim.running().view(func(s *znode.Store) {
				if s.Restoring() {
					during++
				}
			})
			if power {
				victim.powerCut()
			} else {
				victim.kill()
			}
			time.Sleep(time.Second)
			victim.start()
			out := <-done
			if !driverDies && (out.err != nil || out.zxid == 0) {
				t.Errorf("round %d: %v, %v", round, out.zxid, out.err)
			}
			time.Sleep(90 * time.Second) // the session of a restore that is given up has expired
			c.settled(30 * time.Second)
			for _, m := range c.members {
				m.running().view(func(s *znode.Store) {
					_, stat, code := s.Get("/restored", nil)
					happened := code == wire.CodeOK
					if s.Restoring() || happened && int(stat.NumChildren) != nodes || !driverDies && (!happened || s.Zxid() < out.zxid) {
						t.Errorf("round %d: m%d: %v with %d nodes at %v, restored at %v", round, m.id, code, stat.NumChildren, s.Zxid(), out.zxid)
					}
				})
			}
			c.shutdown()
		})
	}
	if during < 4 {
		t.Errorf("of 8 restores, %d were under way when a member was killed", during)
	}
}
