package simtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// C2: a request reaches the log while one before it is missing, as if a member that leads no longer
// had lost it. It does not take effect before that one has.
func TestRequestWaitsForTheOneBeforeIt(t *testing.T) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, newJournal(t, ""))
		m := c.awaitLeader()
		const session = 9
		propose := func(cmd *znode.Command) {
			cmd.Session = session
			if err := m.running().Replica().Propose(context.Background(), cmd); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		create := func(seq uint64, path string) {
			body := wire.CreateRequest{Path: path, Data: []byte{}, ACL: wire.OpenACL}.Append(nil)
			propose(&znode.Command{Generation: 1, Seq: seq, Body: &znode.Request{Op: wire.OpCreate, Body: body}})
		}
		czxid := func(path string) (at wire.Zxid) {
			m.running().view(func(s *znode.Store) {
				if st, code := s.Exists(path, nil); code == 0 {
					at = st.Czxid
				}
			})
			return at
		}
		propose(&znode.Command{Seq: 1<<63 | 1,
			Body: &znode.CreateSession{Connection: znode.Connection{TimeoutMs: 20_000, Addr: "127.0.0.1"}}})
		create(2, "/second")
		if at := czxid("/second"); at != 0 {
			t.Errorf("a request has taken effect in zxid %v, and the one before it has not", at)
		}
		create(1, "/first")
		if first, second := czxid("/first"), czxid("/second"); first == 0 || second != 0 && second < first {
			t.Errorf("two requests took effect in zxids %v and %v", first, second)
		}
		c.shutdown()
	})
}
