package session

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// give submits a request, and does not send the collected output.
func (c *client) give(op wire.Op, body wire.Record) {
	c.t.Helper()
	c.xid++
	xid := c.xid
	if op == wire.OpPing {
		xid = wire.XidPing
	}
	if err := c.s.Submit(wire.AppendRequest(nil, xid, op, body)[4:]); err != nil && !errors.Is(err, errEnded) {
		c.t.Error(err)
	}
}

// unsent is the number of bytes of answers and events that are not sent.
func (c *client) unsent() int {
	bytes, _, _ := c.s.out.holds()
	return bytes
}

// came says how many frames have come that were not looked at, in how many pieces, and from how
// many writers.
func (c *client) came() (frames, pieces, writers int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames), c.pieces, c.writers
}

// expectCame checks that.
func (c *client) expectCame(frames, pieces, writers int) {
	c.t.Helper()
	if f, p, w := c.came(); f != frames || p != pieces || w != writers {
		c.t.Fatalf("%d frames in %d pieces, from %d writers, have come; want %d in %d from %d", f, p, w, frames, pieces, writers)
	}
}

var readRoot = wire.PathWatchRequest{Path: "/"}

// The caller of Submit sends the answers that Submit gives at once, all of them together, and no
// writer is started for them.
func TestAnswersGivenAtOnceAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		for range 100 {
			c.give(wire.OpGetData, readRoot)
		}
		c.expectCame(0, 0, 0)
		c.flush()
		c.expectCame(100, 1, 0)
		c.flush()
		c.expectCame(100, 1, 0)
		// What others make known does not wait for that; and takes along what has been collected,
		// in its place.
		c.give(wire.OpExists, wire.PathWatchRequest{Path: "/n", Watch: true})
		c.expectCame(100, 1, 0)
		// nothing comes of it
		r.apply(&znode.Command{Session: c.s.ID(), Generation: 2, Body: &znode.Request{}})
		c.expectCame(100, 1, 0)
		other := mustConnect(t, m, 10*time.Second)
		other.send(wire.OpCreate, create("/n", wire.ModePersistent))
		c.expectCame(102, 2, 1)
		c.flush()
		c.expectCame(102, 2, 1)
		for xid := range wire.Xid(100) {
			if h, _, err := c.next(); err != nil || h.Xid != xid+1 {
				t.Fatal(h, err)
			}
		}
		c.expect("101 NoNode", "NodeCreated /n")
	})
}

// Nothing that is collected waits while Submit does.
func TestCollectedAnswersAreSentWhileSubmitWaits(t *testing.T) {
	ping := func(c *client) { c.give(wire.OpPing, wire.Empty{}) }
	tests := map[string]struct {
		cfg Config
		// stall gives a ping, collects its answer, and makes the next sync wait in Submit,
		// which end ends.
		stall func(m *Manager, r *replica, c *client) (end func())
	}{
		"for the replica": {
			stall: func(_ *Manager, r *replica, c *client) func() {
				ping(c)
				r.ctl.Lock()
				defer r.ctl.Unlock()
				r.busy = make(chan struct{})
				return func() { close(r.busy) }
			},
		},
		"for the throttle": {
			cfg: Config{Limits: Limits{Requests: 1}},
			stall: func(m *Manager, r *replica, c *client) func() {
				ping(c)
				other := mustConnect(c.t, m, 10*time.Second)
				r.setHold(true)
				other.send(wire.OpSync, wire.SyncRequest{Path: "/"})
				return func() { r.setHold(false) }
			},
		},
		"for a reconfig": {
			cfg: Config{Auth: Auth{SkipACL: true}},
			stall: func(_ *Manager, r *replica, c *client) func() {
				r.flags = znode.Reconfig
				r.apply(&znode.Command{Body: &znode.SetMembers{Text: threeMembers}})
				c.send(wire.OpReconfig, wire.ReconfigRequest{Leaving: "3", NullNewMembers: true, CurConfigID: -1})
				ping(c)
				return func() {
					r.apply(&znode.Command{Session: c.s.ID(), Generation: 1, Seq: 1, Body: &znode.Reconfigured{}})
				}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, r := newMember(t, tt.cfg)
				c := mustConnect(t, m, 10*time.Second)
				end := tt.stall(m, r, c)
				c.expectCame(0, 0, 0)
				given := make(chan struct{})
				go func() {
					defer close(given)
					c.give(wire.OpSync, wire.SyncRequest{Path: "/"})
				}()
				synctest.Wait()
				select {
				case <-given:
					t.Fatal("Submit did not wait")
				default:
				}
				c.expectCame(1, 1, 1)
				c.expect("-2 Ok")
				end()
				<-given
			})
		})
	}
}

// Promise C6: while the lease is not confirmed nothing is sent, and the client is
// read all the same. When it is, all comes at once.
func TestCollectedAnswersWaitForTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 9*time.Second)
		r.setCut(true)
		time.Sleep(4 * time.Second)
		for range 50 {
			c.give(wire.OpGetData, readRoot)
			c.flush()
		}
		c.expectCame(0, 0, 0)
		r.setCut(false)
		time.Sleep(time.Second)
		c.expectCame(50, 1, 1)
		if d := time.Since(c.heard); d > time.Second-10*time.Millisecond {
			t.Fatalf("came %v ago", d)
		}
	})
}

// Answers that cannot be sent stop the client from being read when they are too many, and so do
// those that nobody sends yet.
func TestUnsentAnswersAreBounded(t *testing.T) {
	const size, reads = 200_000, 100
	for _, cut := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, r := newMember(t, Config{})
			c := mustConnect(t, m, 40*time.Second)
			c.send(wire.OpSetData, wire.SetDataRequest{Path: "/", Data: bytes.Repeat([]byte("x"), size), Version: -1})
			c.expect("1 Ok")
			if cut {
				r.setCut(true)
				time.Sleep(40 * time.Second / 3)
			}
			given := make(chan struct{})
			go func() {
				defer close(given)
				for range reads {
					c.give(wire.OpGetData, readRoot)
					if n := c.unsent(); n > outputPauseBytes+size+100 {
						t.Errorf("%d bytes are unsent", n)
					}
				}
				c.flush()
			}()
			synctest.Wait()
			if cut {
				if n, _, _ := c.came(); n != 0 {
					t.Errorf("%d answers on an unconfirmed lease", n)
				}
				select {
				case <-given:
					t.Error("everything was taken")
				default:
				}
				r.setCut(false)
			}
			<-given
			if n, _, _ := c.came(); n != reads {
				t.Errorf("%d answers have come", n)
			}
		})
	}
}

// An end closes the connection, also when it comes before there is one.
func TestEndAbortsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		c.s.end("test")
		c.expect(errEnded.Error())
		c.s.Detach()
		c.expectCame(0, 0, 0)

		s, resp, err := m.Connect(context.Background(), &wire.ConnectRequest{TimeoutMs: 10000}, c.s.addr())
		if err != nil {
			t.Fatal(err)
		}
		r.apply(&znode.Command{Session: s.id(), Generation: s.generation, Body: &znode.Expire{}})
		late := &client{t: t, m: m, s: s, more: make(chan struct{}, 1), over: make(chan struct{})}
		s.Open(late, wire.AppendFrame(nil, resp))
		late.flush()
		late.expect(errEnded.Error())
		late.expectCame(0, 0, 0)
	})
}
