package session

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
)

// sendMany submits n syncs in a goroutine and returns a channel that is closed when all are taken.
func sendMany(c *client, n int) <-chan struct{} {
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		for range n {
			c.xid++
			// may end with the session
			_ = c.submit(wire.AppendRequest(nil, c.xid, wire.OpSync, wire.SyncRequest{Path: "/"})[4:])
		}
	}()
	synctest.Wait()
	return taken
}

// Above the global limit a connection that has something outstanding is not read, one that has
// nothing is.
func TestGlobalOutstandingLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Limits: Limits{Outstanding: 10}})
		a, b := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		first := sendMany(a, 20)
		if n := a.s.queued(); n != 11 { // the limit, and the one that exceeds it
			t.Fatalf("%d requests of the first connection were taken", n)
		}
		second := sendMany(b, 5)
		if n := b.s.queued(); n != 1 {
			t.Fatalf("%d requests of the second connection were taken", n)
		}
		// Connections that end give back their share.
		b.detach()
		<-second
		r.setHold(false)
		<-first
		for i := range 20 {
			if h, _, err := a.next(); err != nil || h.Xid != wire.Xid(i+1) || h.Err != 0 {
				t.Fatal(h, err)
			}
		}
		synctest.Wait()
		if !m.gate.Idle() {
			t.Fatal("not every ticket is released")
		}
	})
}

// The request throttle takes nothing from any client while it is full, and refuses the requests
// that waited too long.
func TestRequestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Limits: Limits{Requests: 2, Wait: time.Second}})
		a, b, gone := mustConnect(t, m, 20*time.Second), mustConnect(t, m, 20*time.Second), mustConnect(t, m, 20*time.Second)
		r.setHold(true)
		<-sendMany(a, 2)
		waiting := sendMany(b, 1)
		leaving := sendMany(gone, 1)
		gone.detach()
		<-leaving
		if b.s.queued() != 0 {
			t.Fatal("a request was taken although the throttle is full")
		}
		time.Sleep(2 * time.Second)
		r.setHold(false)
		<-waiting
		a.expect("1 Ok", "2 Ok")
		b.expect("1 ThrottledOp")
		<-sendMany(b, 1)
		b.expect("2 Ok")
		if s := m.Stats(); s.Throttled != 1 {
			t.Errorf("%d requests are counted as throttled", s.Throttled)
		}
	})
}

// Pings and closeSession are never refused for having waited.
func TestRequestThrottleLetsPingsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Limits: Limits{Requests: 1, Wait: time.Second}})
		a, b := mustConnect(t, m, 20*time.Second), mustConnect(t, m, 20*time.Second)
		r.setHold(true)
		<-sendMany(a, 1)
		pinged := make(chan error, 1)
		go func() { pinged <- b.submit(wire.AppendRequest(nil, wire.XidPing, wire.OpPing, wire.Empty{})[4:]) }()
		time.Sleep(2 * time.Second)
		r.setHold(false)
		if err := <-pinged; err != nil {
			t.Fatal(err)
		}
		b.expect("-2 Ok")
	})
}

func TestLargeRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Limits: Limits{LargeRequest: 1000, LargeBytes: 5000}})
		a, b := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		large := func(c *client, size int) error {
			c.xid++
			q := wire.SetDataRequest{Path: "/", Data: bytes.Repeat([]byte("x"), size), Version: -1}
			return c.submit(wire.AppendRequest(nil, c.xid, wire.OpSetData, q)[4:])
		}
		r.setHold(true)
		for _, size := range []int{2000, 2000, 500} { // the last one does not count as large
			if err := large(a, size); err != nil {
				t.Fatal(err)
			}
		}
		if err := large(b, 2000); !errors.Is(err, admission.ErrLarge) {
			t.Fatalf("got %v", err)
		}
		b.detach()
		r.setHold(false)
		a.expect("1 Ok", "2 Ok", "3 Ok")
		if err := large(a, 4500); err != nil {
			t.Fatal(err)
		}
		a.expect("4 Ok")
		synctest.Wait()
		if !m.gate.Idle() || m.Stats().TooLarge != 1 {
			t.Fatalf("idle %t; %d refused", m.gate.Idle(), m.Stats().TooLarge)
		}
	})
}

// With enforced authentication a client may prove who it is, and nothing else before.
func TestRequiredSchemes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Auth: Auth{RequiredSchemes: []string{"digest"}}})
		for _, op := range []wire.Op{wire.OpPing, wire.OpGetData, wire.OpSync, wire.OpCloseSession} {
			c := mustConnect(t, m, 10*time.Second)
			var body wire.Record = wire.SyncRequest{Path: "/"}
			if op == wire.OpGetData {
				body = wire.PathWatchRequest{Path: "/"}
			}
			c.send(op, body)
			h, _, err := c.next()
			if err != nil || h.Err != wire.CodeSessionClosedRequireSASLAuth || h.Zxid != 0 {
				t.Errorf("%v: %+v, %v", op, h, err)
			}
			if _, _, err := c.next(); err == nil {
				t.Errorf("%v: the connection goes on", op)
			}
		}
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("a:b")})
		c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/"})
		c.expect("1 Ok", "2 Ok")
	})
}

func TestDigestSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off, _ := newMember(t, Config{Auth: Auth{NoDigest: true}})
		c := mustConnect(t, off, 10*time.Second)
		c.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("a:b")})
		c.expect("1 AuthFailed")

		super := DigestID(sha512.New, "super:test")
		m, _ := newMember(t, Config{Auth: Auth{DigestHash: sha512.New, SuperDigest: super}})
		c = mustConnect(t, m, 10*time.Second)
		c.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:test")})
		c.expect("1 Ok")
		if ids := *c.s.ids.Load(); len(ids) != 3 || ids[1].ID != super || ids[2] != superIdentity {
			t.Errorf("identities %v", ids)
		}
	})
	// As org.apache.zookeeper.server.auth.DigestAuthenticationProvider of 3.8.0 prints it.
	if got, want := DigestID(sha256.New, "super:test"), "super:wjySwxg860UATFtciuZ1lpzrCHrPeov6SPu/ZD56uig="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A heavy request waits until others are answered that have all the bytes; a short one does not.
func TestHeavyRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		var clients []*client
		for range 3 {
			clients = append(clients, mustConnect(t, m, 10*time.Second))
		}
		r.setHold(true)
		set := wire.SetDataRequest{Path: "/", Data: make([]byte, admission.HeavyTogether-admission.HeavyBytes), Version: -1}
		clients[0].send(wire.OpSetData, set)
		go func() {
			if err := clients[1].submit(wire.AppendRequest(nil, 1, wire.OpSetData, set)[4:]); err != nil {
				t.Error(err)
			}
		}()
		clients[2].send(wire.OpSetData, wire.SetDataRequest{Path: "/", Data: []byte("short"), Version: -1})
		synctest.Wait()
		r.ctl.Lock()
		n := len(r.held)
		r.ctl.Unlock()
		if n != 2 {
			t.Errorf("%d commands were proposed, want the first and the short one", n)
		}
		r.setHold(false)
		for _, c := range clients {
			c.expect("1 Ok")
		}
		synctest.Wait()
		if !m.gate.Idle() {
			t.Error("not every ticket is released")
		}
	})
}
