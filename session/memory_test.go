package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
)

// silent is a connection with a client that takes only the answer to its handshake. It is the Conn
// of its session.
type silent struct {
	s       *Session
	begun   bool          // the handshake has been answered
	done    chan struct{} // closed when Submit has refused a request
	writing sync.WaitGroup
}

func connectSilent(t *testing.T, m *Manager) *silent {
	t.Helper()
	s, _, err := m.Connect(context.Background(), &wire.ConnectRequest{TimeoutMs: 10_000}, netip.MustParseAddr("127.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	c := &silent{s: s, done: make(chan struct{})}
	s.Open(c, []byte("answer"))
	if err := s.Flush(FlushReader); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Detach(); c.writing.Wait() })
	return c
}

// WriteUntil implements Conn: the socket is full until the connection ends.
func (c *silent) WriteUntil(b []byte, _ time.Time) (int, error) {
	if !c.begun {
		c.begun = true
		return len(b), nil
	}
	<-c.done
	return 0, net.ErrClosed
}

// Wake implements Conn.
func (c *silent) Wake() { c.writing.Go(func() { _ = c.s.Flush(FlushAlone) }) }

// Delegate implements Conn.
func (c *silent) Delegate() { c.Wake() }

// Abort implements Conn.
func (c *silent) Abort() {}

// aborted says whether the output of a connection was dropped.
func (s *Session) aborted() bool {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return s.out.aborted
}

// ask sends a request again and again, until the connection has ended.
func (c *silent) ask(op wire.Op, body wire.Record) {
	frame := wire.AppendRequest(nil, 1, op, body)[4:]
	go func() {
		defer close(c.done)
		for c.s.Submit(frame) == nil {
			c.s.out.wake()
		}
	}()
}

// An answer that would be too long is not made: the client gets BadArguments, no watch is set, and
// the connection goes on.
//
// Defends: C9.
func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Limits: Limits{Response: 10_000 + 90*nameCost, MultiReadOps: 50, MultiReadBytes: 8000}})
		c := mustConnect(t, m, 10*time.Second)
		ask := func(want wire.Code, op wire.Op, body wire.Record) {
			t.Helper()
			c.send(op, body)
			if h, _, err := c.next(); err != nil || h.Err != want {
				t.Fatalf("%v: %v, %v, want %v", op, h.Err, err, want)
			}
		}
		name := strings.Repeat("n", 95)
		ask(wire.CodeOK, wire.OpCreate, wire.CreateRequest{Path: "/d", Data: make([]byte, 1000), ACL: wire.OpenACL})
		for i := range 90 {
			ask(wire.CodeOK, wire.OpCreate, create(fmt.Sprintf("/d/%s%02d", name, i), wire.ModeEphemeral))
		}
		reads := func(n int, op wire.Op, path string) wire.MultiRequest {
			var r wire.MultiRequest
			for range n {
				r.Ops = append(r.Ops, wire.MultiOp{Op: op, Record: &wire.PathWatchRequest{Path: path}})
			}
			return r
		}
		ask(wire.CodeOK, wire.OpMultiRead, reads(6, wire.OpGetData, "/d"))
		ask(wire.CodeBadArguments, wire.OpMultiRead, reads(8, wire.OpGetData, "/d"))
		ask(wire.CodeOK, wire.OpMultiRead, reads(50, wire.OpGetData, "/missing"))
		ask(wire.CodeBadArguments, wire.OpMultiRead, reads(51, wire.OpGetData, "/missing"))
		ask(wire.CodeBadArguments, wire.OpMultiRead, reads(1, wire.OpGetChildren, "/d"))
		for _, op := range []wire.Op{wire.OpGetChildren, wire.OpGetChildren2} {
			ask(wire.CodeOK, op, wire.PathWatchRequest{Path: "/d"})
		}
		ask(wire.CodeOK, wire.OpGetEphemerals, wire.GetEphemeralsRequest{PrefixPath: "/"})
		for i := range 60 {
			ask(wire.CodeOK, wire.OpCreate, create(fmt.Sprintf("/d/%sx%02d", name, i), wire.ModeEphemeral))
		}
		for _, op := range []wire.Op{wire.OpGetChildren, wire.OpGetChildren2} {
			ask(wire.CodeBadArguments, op, wire.PathWatchRequest{Path: "/d", Watch: true})
		}
		ask(wire.CodeBadArguments, wire.OpGetEphemerals, wire.GetEphemeralsRequest{PrefixPath: "/"})
		ask(wire.CodeOK, wire.OpGetData, wire.PathWatchRequest{Path: "/d"})
		// A client that must not read a node learns nothing of how large it is.
		hidden := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: "u:h"}}}
		ask(wire.CodeOK, wire.OpSetACL, wire.SetACLRequest{Path: "/d", ACL: hidden, Version: -1})
		ask(wire.CodeNoAuth, wire.OpGetChildren, wire.PathWatchRequest{Path: "/d"})
		ask(wire.CodeOK, wire.OpMultiRead, reads(50, wire.OpGetData, "/d"))
		if s := m.Stats(); s.TooLong != 6 || s.Watches.Watches != 0 {
			t.Errorf("%d are counted, %d watches", s.TooLong, s.Watches.Watches)
		}
	})
}

// Clients that do not read can make the member hold no more than the limit. They are ended before
// anybody else is.
//
// Defends: C9.
func TestUnsentOutputIsBounded(t *testing.T) {
	for _, op := range []wire.Op{wire.OpGetData, wire.OpMultiRead} {
		synctest.Test(t, func(t *testing.T) {
			const limit = 64 << 20
			m, _ := newMember(t, Config{Limits: Limits{Memory: limit, Response: 4 << 20}})
			good := mustConnect(t, m, 10*time.Second)
			good.send(wire.OpCreate, wire.CreateRequest{Path: "/big", Data: make([]byte, 900<<10), ACL: wire.OpenACL})
			good.expect("1 Ok")
			var body wire.Record = wire.PathWatchRequest{Path: "/big"}
			if op == wire.OpMultiRead {
				part := wire.MultiOp{Op: wire.OpGetData, Record: &wire.PathWatchRequest{Path: "/big"}}
				body = wire.MultiRequest{Ops: []wire.MultiOp{part, part, part, part}}
			}
			var clients []*silent
			most := int64(0)
			for range 60 {
				c := connectSilent(t, m)
				c.ask(op, body)
				clients = append(clients, c)
				synctest.Wait()
				most = max(most, m.Stats().Held)
				good.send(wire.OpGetData, wire.PathWatchRequest{Path: "/big"})
				if h, _, err := good.next(); err != nil || h.Err != wire.CodeOK {
					t.Fatalf("the reader got %v, %v", h, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if most > 2*limit || most < limit/4 {
				t.Errorf("%d bytes were held", most)
			}
			ended := 0
			for _, c := range clients {
				if c.s.aborted() {
					ended++
				}
			}
			if n := m.Stats().EndedForMemory; int(n) != ended || ended == 0 || ended == len(clients) {
				t.Errorf("%d connections were ended, %d are counted", ended, n)
			}
			for _, c := range clients {
				c.s.Detach()
				<-c.done
				c.writing.Wait()
			}
			time.Sleep(time.Second)
			if n := m.Stats().Held; n != 0 {
				t.Errorf("%d bytes are held in the end", n)
			}
		})
	}
}

// One connection that does not read its notifications holds twice the largest answer at most.
func TestUnreadNotificationsEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Limits: Limits{Response: 10_000}})
		c, writer := connectSilent(t, m), mustConnect(t, m, 10*time.Second)
		close(c.done)
		c.s.out.mu.Lock()
		c.s.out.queueLocked().busy = true // somebody sends, and gets nowhere
		c.s.out.mu.Unlock()
		path := "/" + strings.Repeat("p", 500)
		frame := wire.AppendRequest(nil, 1, wire.OpAddWatch, wire.AddWatchRequest{Path: path, Mode: wire.AddWatchPersistent})[4:]
		if err := c.s.Submit(frame); err != nil {
			t.Fatal(err)
		}
		writer.send(wire.OpCreate, create(path, 0))
		for range 40 {
			writer.send(wire.OpSetData, wire.SetDataRequest{Path: path, Version: -1})
		}
		if n := m.Stats(); !c.s.aborted() || n.EndedForMemory != 1 || n.Held > 20_000 {
			t.Errorf("ended: %v, %+v", c.s.aborted(), n)
		}
		_ = c.s.out.end(errEnded)
	})
}

// Requests that wait are counted by their bytes, and a connection with too many is not read.
func TestQueuedBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		c.send(wire.OpSync, wire.SyncRequest{Path: "/"})
		taken := make(chan int)
		go func() {
			for i := range 100 {
				c.xid++
				_ = c.submit(wire.AppendRequest(nil, c.xid, wire.OpExists, wire.PathWatchRequest{Path: "/" + strings.Repeat("x", 200<<10)})[4:])
				_ = i
			}
			close(taken)
		}()
		synctest.Wait()
		if n, held := c.s.queued(), m.Stats().Held; n > 7 || held < queuePauseBytes || held > queuePauseBytes+2<<20 {
			t.Errorf("%d requests are in the queue, %d bytes are counted", n, held)
		}
		r.setHold(false)
		<-taken
		for range 101 {
			if _, _, err := c.next(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := m.Stats().Held; n != 0 {
			t.Errorf("%d bytes are counted in the end", n)
		}
	})
}

// What a connection may hold in any case is less when there are many, and a frame that is arriving
// counts.
//
// Defends: C9.
func TestArrivingFramesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 2 << 20
		m, _ := newMember(t, Config{Limits: Limits{Memory: limit}})
		clients := make([]*client, 8)
		for i := range clients {
			clients[i] = mustConnect(t, m, 10*time.Second)
		}
		for i, c := range clients[:4] {
			if err := c.s.Expect(limit / 4); err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		last := clients[7].s
		if err := last.Expect(limit / 8); err != nil {
			t.Errorf("an eighth of the limit for one of eight connections: %v", err)
		}
		if err := last.Expect(1); !errors.Is(err, admission.ErrArriving) {
			t.Errorf("more than that: %v", err)
		}
		if s := m.Stats(); s.Held != limit+limit/8 || s.EndedForMemory != 1 {
			t.Errorf("%d bytes are held, %d connections were ended", s.Held, s.EndedForMemory)
		}
		for _, c := range clients {
			c.s.Arrived()
		}
		if n := m.Stats().Held; n != 0 {
			t.Errorf("%d bytes are held in the end", n)
		}
	})
}

// Watches are counted by the memory that they take. A read with one too many is refused, setWatches
// ends the connection, and others have room all the same.
//
// Defends: C9.
func TestWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Limits: Limits{WatchBytes: 16 << 20}})
		c := mustConnect(t, m, 10*time.Second)
		path := func(i int) string { return fmt.Sprintf("/%06d%s", i, strings.Repeat("x", 100<<10)) }
		watches := 0
		for ; ; watches++ {
			c.send(wire.OpExists, wire.PathWatchRequest{Path: path(watches), Watch: true})
			h, _, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if h.Err == wire.CodeBadArguments {
				break
			}
		}
		if n := m.Stats(); watches != 40 || n.WatchBytes > 4<<20 || n.WatchesRefused != 1 || n.Watches.Watches != watches {
			t.Errorf("%d watches of 100 KB: %+v", watches, n)
		}
		// it is there already
		c.send(wire.OpExists, wire.PathWatchRequest{Path: path(0), Watch: true})
		c.expect(fmt.Sprintf("%d NoNode", watches+2))
		all := wire.SetWatchesRequest{Data: []string{}, Child: []string{}}
		for i := range watches + 1 {
			all.Exist = append(all.Exist, path(i))
		}
		other := mustConnect(t, m, 10*time.Second)
		other.send(wire.OpSetWatches, all)
		other.expect("1 BadArguments", "EOF")
		c.detach()
		other.detach()
		if n := m.Stats().WatchBytes; n != 0 {
			t.Errorf("%d bytes are counted when all have gone", n)
		}
	})
}
