package server

import (
	"slices"
	"sync"
	"testing"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A leader accepts a question with the greatest number of claims that package session sends.
const _ = uint(quorum.MaxClaims - session.MaxClaims)

// Clients with the ids of sessions that do not exist are told so by each member, and leave nothing
// in the log. A client that moves to another member right after its session was created, and has
// not told which zxid it has seen, is let in.
//
// Defends: C9.
func TestUnknownSessionsStayOutOfTheLog(t *testing.T) {
	t.Parallel()
	members, _ := startCluster(t, "maxClientCnxns=0\n")
	for _, s := range members {
		awaitServing(t, s)
	}
	for i, s := range members {
		first := dialReal(t, s)
		first.connect(10 * time.Second)
		second := dialReal(t, members[(i+1)%3])
		second.req.SessionID, second.req.Password = first.id.SessionID, first.id.Password
		second.connect(10 * time.Second)
		if second.id.SessionID != first.id.SessionID {
			t.Fatalf("a session of member %d is refused elsewhere: %+v", i+1, second.id)
		}
		second.call(wire.OpCloseSession, nil)
	}
	zxids := func() (all []wire.Zxid) {
		for _, s := range members {
			s.View(func(store *znode.Store) { all = append(all, store.Zxid()) })
		}
		return all
	}
	await(t, "the members to agree", func() bool { z := zxids(); return z[0] == z[1] && z[1] == z[2] })
	index := func() (all []uint64) {
		for _, s := range members {
			all = append(all, s.replica.Status().LastIndex)
		}
		return all
	}
	await(t, "the logs to agree", func() bool { n := index(); return n[0] == n[1] && n[1] == n[2] })
	zxid, last := zxids(), index()
	attempts := 40
	if testing.Short() {
		attempts = 10
	}
	var clients sync.WaitGroup
	for i, s := range members {
		for worker := range 25 {
			clients.Go(func() {
				for n := range attempts {
					c := dialReal(t, s)
					c.req.SessionID, c.req.Password = wire.SessionID(1<<60|i<<20|worker<<10|n), make([]byte, wire.PasswordLen)
					c.connect(10 * time.Second)
					if c.id.SessionID != 0 || c.id.TimeoutMs != 0 {
						t.Errorf("member %d: %+v", i+1, c.id)
					}
					_ = c.Close()
				}
			})
		}
	}
	clients.Wait()
	if z, n := zxids(), index(); !slices.Equal(z, zxid) || !slices.Equal(n, last) {
		t.Errorf("zxids %v, then %v; last indexes %v, then %v", zxid, z, last, n)
	}
}
