package session

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

func stranger(id wire.SessionID) *wire.ConnectRequest {
	return &wire.ConnectRequest{SessionID: 2<<56 | id, TimeoutMs: 10_000, Password: make([]byte, wire.PasswordLen)}
}

// An attach with an unknown session or a wrong password is answered as ZooKeeper does, and proposes
// nothing.
func TestAttachesOfStrangersStayOutOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		known := mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		defer r.setHold(false)
		requests := []*wire.ConnectRequest{{SessionID: known.resp.SessionID, Password: make([]byte, wire.PasswordLen)}}
		for id := range wire.SessionID(100) {
			requests = append(requests, stranger(id+4711))
		}
		for _, req := range requests {
			c, err := connect(t, m, req)
			if err != nil || c.s != nil || c.resp.SessionID != 0 || c.resp.TimeoutMs != 0 {
				t.Fatalf("session %v: %+v, %v", req.SessionID, c.resp, err)
			}
		}
		if n := len(r.held); n != 0 {
			t.Errorf("%d commands were proposed", n)
		}
		if n := r.asked.Load(); n != 100 {
			t.Errorf("the leader was asked %d times", n)
		}
	})
}

// A session that the leader knows and this member does not know yet is let in, when this member has
// caught up.
func TestAttachToASessionThatTheLeaderKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		r.mayBe = func(_ context.Context, claims []znode.Claim) ([]bool, error) {
			r.apply(&znode.Command{Session: claims[0].Session, Seq: 1<<63 | 1,
				Body: &znode.CreateSession{Connection: znode.Connection{TimeoutMs: 10_000, Password: claims[0].Password, Addr: "127.0.0.1"}}})
			return []bool{true}, nil
		}
		c, err := connect(t, m, stranger(4711))
		if err != nil || c.s == nil || c.resp.SessionID != 2<<56|4711 {
			t.Fatalf("%+v, %v", c.resp, err)
		}
		c.send(wire.OpCreate, create("/a", wire.ModePersistent))
		c.expect("1 Ok")
	})
}

// Without an answer of the leader an attach ends without one, within the time of a handshake.
func TestAttachWithoutAnAnswerOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		r.setHold(true)
		defer r.setHold(false)
		r.mayBe = func(context.Context, []znode.Claim) ([]bool, error) { return nil, errCut }
		start := time.Now()
		c, err := connect(t, m, stranger(4711))
		if !errors.Is(err, context.DeadlineExceeded) || c.resp != nil || time.Since(start) > tick || len(r.held) != 0 {
			t.Errorf("%+v, %v after %v, %d proposed", c.resp, err, time.Since(start), len(r.held))
		}
		synctest.Wait()
		asked := r.asked.Load()
		time.Sleep(time.Minute) // virtual
		if n := r.asked.Load(); n > asked+1 {
			t.Errorf("the leader was asked %d times more for a client that has gone", n-asked)
		}
	})
}

// Equal claims are one question, none is answered by a question that was asked before it came, and
// no more of them wait than may.
//
// Defends: C9.
func TestClaimsAreCoalescedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		questions, answer := make(chan int), make(chan bool)
		r.mayBe = func(ctx context.Context, claims []znode.Claim) ([]bool, error) {
			select {
			case questions <- len(claims):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return make([]bool, len(claims)), map[bool]error{false: errCut}[<-answer]
		}
		var all sync.WaitGroup
		defer all.Wait()
		var mu sync.Mutex
		refused, ended := 0, 0
		attach := func(id wire.SessionID, addr string) {
			all.Go(func() {
				s, _, err := m.Connect(t.Context(), stranger(id), netip.MustParseAddr(addr))
				if s != nil {
					t.Errorf("%v was let in", id)
				}
				mu.Lock()
				defer mu.Unlock()
				if ended++; errors.Is(err, errClaims) {
					refused++
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		attach(1, "10.0.0.1")
		if n := <-questions; n != 1 {
			t.Fatalf("a question of %d claims", n)
		}
		for range 10 {
			attach(1, "10.0.0.1")
		}
		for i := range 20 {
			attach(wire.SessionID(2+i), "10.0.0.2")
		}
		synctest.Wait()
		answer <- false // it is asked again, with those that came since
		if n := <-questions; n != 1+1+20 {
			t.Errorf("a question of %d claims", n)
		}
		synctest.Wait()
		if ended != 0 {
			t.Errorf("%d handshakes have ended", ended)
		}
		for i := range 400 {
			attach(wire.SessionID(1000+i), "10.0.0.3")
		}
		synctest.Wait()
		if refused != 400-claimsPerAddr || m.Stats().AttachesRefused != int64(refused) {
			t.Errorf("%d refused", refused)
		}
		answer <- true
		if n := <-questions; n != claimsPerAddr {
			t.Errorf("a question of %d claims", n)
		}
		answer <- true
		synctest.Wait()
		if ended != 1+10+20+400 || m.arriving.claims.waiting != 0 || len(m.arriving.claims.byAddr) != 0 || len(m.arriving.claims.list) != 0 {
			t.Errorf("%d handshakes have ended; %+v", ended, &m.arriving.claims)
		}
	})
}
