package session

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

func digestIdentity(auth string) znode.Identity {
	return znode.Identity{Scheme: "digest", ID: DigestID(sha1.New, auth)}
}

// prove authenticates with scheme digest.
func (c *client) prove(auth string) {
	c.t.Helper()
	c.expect(fmt.Sprintf("%d Ok", c.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte(auth)})))
}

// took is the virtual time that n requests take, each answered before the next.
func (c *client) took(n int, op wire.Op, body wire.Record) time.Duration {
	c.t.Helper()
	began := time.Now()
	for range n {
		c.send(op, body)
		if _, _, err := c.next(); err != nil {
			c.t.Fatal(err)
		}
	}
	return time.Since(began)
}

var set = wire.SetDataRequest{Path: "/", Data: make([]byte, 100), Version: -1}

// A tenant writes as fast as its quota allows after a burst of one second. Others, and the super
// user, do not wait.
func TestRateQuotaSlowsItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Auth: Auth{SuperDigest: DigestID(sha1.New, "super:pw")}, RateQuotas: []RateQuota{
			{Key: "rateQuota.1", Identity: digestIdentity("a:pw"), Writes: 10},
			{Key: "rateQuota.2", Identity: znode.Identity{Scheme: "digest", ID: "*"}, Writes: 20},
		}})
		for auth, want := range map[string]time.Duration{"": 0, "a:pw": 20 * time.Second, "b:pw": 10 * time.Second, "super:pw": 0} {
			c := mustConnect(t, m, 30*time.Second)
			if auth != "" {
				c.prove(auth)
			}
			if got := c.took(211, wire.OpSetData, set); got < want-time.Second || got > want+time.Second {
				t.Errorf("%q: 211 writes took %v, want about %v", auth, got, want)
			}
			reads := c.took(1000, wire.OpExists, wire.PathWatchRequest{Path: "/"})
			if reads > admission.PauseLimit(30*time.Second) {
				t.Errorf("%q: reads took %v, which no quota limits", auth, reads)
			}
			c.detach()
		}
		if m.Stats().RateQuotaPauses == 0 {
			t.Error("no pause was counted")
		}
	})
}

// The operations of a multi count each, and so do requests and the bytes of both directions.
func TestRateQuotaCountsAll(t *testing.T) {
	multi := wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpSetData, Record: &set}, {Op: wire.OpSetData, Record: &set}}}
	for _, c := range []struct {
		quota RateQuota
		op    wire.Op
		body  wire.Record
		want  time.Duration // of 101 requests
	}{
		{RateQuota{Writes: 10}, wire.OpMulti, multi, 19 * time.Second},
		{RateQuota{Requests: 10}, wire.OpExists, wire.PathWatchRequest{Path: "/"}, 9 * time.Second},
		{RateQuota{Requests: 10}, wire.OpPing, nil, 9 * time.Second},
		// 132 and 88 bytes
		{RateQuota{Bytes: 1000}, wire.OpSetData, set, 20 * time.Second},
		// 14 and 192 bytes
		{RateQuota{Bytes: 1000}, wire.OpGetData, wire.PathWatchRequest{Path: "/"}, 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := newMember(t, Config{RateQuotas: []RateQuota{func(q RateQuota) RateQuota {
				q.Identity = digestIdentity("a:pw")
				return q
			}(c.quota)}})
			client := mustConnect(t, m, 40*time.Second)
			client.took(1, wire.OpSetData, set)
			client.prove("a:pw")
			if got := client.took(101, c.op, c.body); got < c.want-2*time.Second || got > c.want+2*time.Second {
				t.Errorf("%+v: 101 times %v took %v, want about %v", c.quota, c.op, got, c.want)
			}
		})
	}
}

// However much a tenant asks for, its connections are served once in a third of the session
// timeout, so its sessions live, and all that it owes is paid within one such time of the longest
// session.
func TestRateQuotaEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{RateQuotas: []RateQuota{{Identity: znode.Identity{Scheme: "ip", ID: "*"}, Requests: 10}}})
		var clients []*client
		for range 20 {
			clients = append(clients, mustConnect(t, m, 4*time.Second))
		}
		began := time.Now()
		var running sync.WaitGroup
		for _, c := range clients {
			running.Go(func() {
				for time.Since(began) < 5*time.Minute {
					if slowest := c.took(1, wire.OpPing, nil); slowest > admission.PauseLimit(4*time.Second) {
						t.Errorf("a ping took %v", slowest)
					}
				}
			})
		}
		running.Wait()
		synctest.Wait()
		if n := m.Measures().Expired.Load(); n > 0 || len(m.connected.all()) != len(clients) {
			t.Errorf("%d sessions expired, %d connections are left", n, len(m.connected.all()))
		}
		time.Sleep(admission.PauseLimit(m.cfg.MaxTimeout) + time.Second)
	})
}

// Tenants of a quota for subtrees are the children of a node. What they write to is counted, by all
// clients together, and what is written elsewhere is not.
func TestRateQuotaOfSubtrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{RateQuotas: []RateQuota{{Path: "/t/*", Writes: 10, Watches: 3}, {Path: "/t", Writes: 1000}}})
		a, b := mustConnect(t, m, 40*time.Second), mustConnect(t, m, 40*time.Second)
		for _, path := range []string{"/t", "/t/a", "/t/b", "/ta"} {
			a.took(1, wire.OpCreate, create(path, wire.ModePersistent))
		}
		write := func(path string) wire.SetDataRequest { return wire.SetDataRequest{Path: path, Version: -1} }
		took := a.took(50, wire.OpSetData, write("/t/a"))
		if took += b.took(50, wire.OpSetData, write("/t/a/below")); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("100 writes of two clients took %v", took)
		}
		for _, path := range []string{"/t/b", "/ta", "/t", "/"} {
			c := mustConnect(t, m, 40*time.Second)
			if took = c.took(10, wire.OpSetData, write(path)); took > 0 {
				t.Errorf("10 writes to %s took %v", path, took)
			}
			c.detach()
		}
		watch := func(c *client, path string, want wire.Code) {
			t.Helper()
			xid := c.send(wire.OpExists, wire.PathWatchRequest{Path: path, Watch: true})
			c.expect(fmt.Sprintf("%d %v", xid, want))
		}
		watch(a, "/t/b/1", wire.CodeNoNode)
		watch(a, "/t/b/2", wire.CodeNoNode)
		watch(b, "/t/b/1", wire.CodeNoNode)
		watch(b, "/t/b/2", wire.CodeBadArguments)
		watch(b, "/t/c/2", wire.CodeNoNode)
		a.detach()
		watch(b, "/t/b/2", wire.CodeNoNode)
	})
}

// A session counts for the tenant that it has logged in as, with its watches.
func TestRateQuotaOfSessionsAndWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{RateQuotas: []RateQuota{
			{Identity: digestIdentity("a:pw"), Sessions: 2, Watches: 2},
			{Identity: znode.Identity{Scheme: "ip", ID: "*"}, Sessions: 3, Watches: 10},
		}})
		open := func() *client { return mustConnect(t, m, 30*time.Second) }
		one, two := open(), open()
		one.took(1, wire.OpExists, wire.PathWatchRequest{Path: "/1", Watch: true})
		one.prove("a:pw")
		two.prove("a:pw")
		one.took(1, wire.OpExists, wire.PathWatchRequest{Path: "/2", Watch: true})
		xid := one.send(wire.OpExists, wire.PathWatchRequest{Path: "/3", Watch: true})
		one.expect(fmt.Sprintf("%d BadArguments", xid))
		// The address has three more, since these are not its own any more.
		three := open()
		xid = three.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("a:pw")})
		three.expect(fmt.Sprintf("%d AuthFailed", xid), io.EOF.Error())
		three.detach()
		open()
		four := open()
		open()
		if _, err := connect(t, m, &wire.ConnectRequest{TimeoutMs: 30000}); !errors.Is(err, admission.ErrRateQuota) {
			t.Errorf("one more session: %v", err)
		}
		two.detach()
		four.prove("a:pw")
		open()
		if n := m.Stats().RateQuotaRefused; n != 3 {
			t.Errorf("%d refusals were counted", n)
		}
	})
}

// Sessions are opened as fast as writes are allowed: the client waits, and is turned away if that
// takes too long.
func TestRateQuotaOfHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{RateQuotas: []RateQuota{{Identity: znode.Identity{Scheme: "ip", ID: "*"}, Writes: 2}}})
		began := time.Now()
		for range 22 {
			mustConnect(t, m, 30*time.Second).detach()
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("22 sessions were opened in %v", took)
		}
		results := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := connect(t, m, &wire.ConnectRequest{TimeoutMs: 30000})
				results <- err
			}()
		}
		refused := 0
		for range 20 {
			if err := <-results; errors.Is(err, admission.ErrRateQuota) {
				refused++
			}
		}
		if refused == 0 || refused > 17 {
			t.Errorf("%d of 20 at once were refused", refused)
		}
	})
}
