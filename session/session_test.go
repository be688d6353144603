package session

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Promise C2: pipelined requests take effect and are answered in the order sent, also when all the
// writes among them are applied in one entry.
//
// Defends: C2.
func TestReadsStandBetweenTheWritesTheyWereSentBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		c.send(wire.OpCreate, create("/a", wire.ModePersistent))
		c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/a"})
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/a", Data: []byte("1"), Version: 0})
		c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/a"})
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/a", Data: []byte("2"), Version: 1})
		c.send(wire.OpPing, nil)
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
		c.send(wire.OpExists, wire.PathWatchRequest{Path: "/a"})
		r.setHold(false)
		c.expect("1 Ok")
		for i, want := range []string{"x", "1"} {
			h, body, err := c.next()
			if err != nil || h.Xid != wire.Xid(2*i+2) {
				t.Fatalf("read %d: %+v %v", i, h, err)
			}
			var d wire.GetDataResponse
			if err := wire.Decode(body, &d); err != nil || string(d.Data) != want {
				t.Fatalf("read %d: %q, want %q (%v)", i, d.Data, want, err)
			}
			if d.Stat.Mzxid != h.Zxid {
				t.Fatalf("read %d shows mzxid %v under zxid %v", i, d.Stat.Mzxid, h.Zxid)
			}
			c.expect(map[int]string{0: "3 Ok", 1: "5 Ok"}[i])
		}
		c.expect("-2 Ok", "7 Ok", "8 NoNode")
	})
}

// Promise C3: a client sees the event before anything that shows the change, its own reply
// included.
//
// Defends: C3.
func TestEventsComeBeforeWhatShowsTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		a, b := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		a.send(wire.OpExists, wire.PathWatchRequest{Path: "/n", Watch: true})
		a.send(wire.OpGetChildren, wire.PathWatchRequest{Path: "/", Watch: true})
		a.expect("1 NoNode", "2 Ok")
		a.send(wire.OpCreate, create("/n", wire.ModePersistent))
		a.expect("NodeCreated /n", "NodeChildrenChanged /", "3 Ok")
		a.send(wire.OpGetData, wire.PathWatchRequest{Path: "/n", Watch: true})
		a.send(wire.OpGetChildren2, wire.PathWatchRequest{Path: "/n", Watch: true})
		a.expect("4 Ok", "5 Ok")
		b.send(wire.OpDelete, wire.DeleteRequest{Path: "/n", Version: -1})
		b.expect("1 Ok")
		a.send(wire.OpExists, wire.PathWatchRequest{Path: "/n"})
		a.expect("NodeDeleted /n", "6 NoNode") // once, though two watches fired
	})
}

func TestPersistentWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpAddWatch, wire.AddWatchRequest{Path: "/p", Mode: wire.AddWatchPersistent})
		c.send(wire.OpAddWatch, wire.AddWatchRequest{Path: "/p", Mode: wire.AddWatchPersistentRecursive})
		c.expect("1 Ok", "2 Ok")
		c.send(wire.OpCreate, create("/p", wire.ModePersistent))
		c.send(wire.OpCreate, create("/p/c", wire.ModePersistent))
		c.send(wire.OpCreate, create("/p/c/d", wire.ModePersistent))
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/p/c/d", Version: -1})
		c.expect("NodeCreated /p", "3 Ok", "NodeCreated /p/c", "NodeChildrenChanged /p", "4 Ok",
			"NodeCreated /p/c/d", "5 Ok", "NodeDeleted /p/c/d", "6 Ok")
		c.send(wire.OpRemoveWatches, wire.WatchesRequest{Path: "/p", Type: wire.WatchTypePersistentRecursive})
		c.send(wire.OpCheckWatches, wire.WatchesRequest{Path: "/p", Type: wire.WatchTypePersistentRecursive})
		c.send(wire.OpCheckWatches, wire.WatchesRequest{Path: "/p", Type: wire.WatchTypePersistent})
		c.send(wire.OpCreate, create("/p/c/d", wire.ModePersistent))
		c.send(wire.OpRemoveWatches, wire.WatchesRequest{Path: "/p", Type: wire.WatchTypeAny})
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/p", Version: -1})
		c.expect("7 Ok", "8 NoWatcher", "9 Ok", "10 Ok", "11 Ok", "12 Ok")
		if n := m.watches.counts(); n != (WatchCounts{}) || len(m.watches.recursive) != 0 {
			t.Fatalf("left in the watch table: %+v, %d recursive", n, m.watches.recursive)
		}
	})
}

// Defends: C3.
func TestSetWatchesTellsWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		for _, p := range []string{"/same", "/changed", "/gone", "/parent", "/quiet"} {
			c.send(wire.OpCreate, create(p, wire.ModePersistent))
		}
		c.expect("1 Ok", "2 Ok", "3 Ok", "4 Ok", "5 Ok")
		var seen wire.Zxid
		r.View(func(s *znode.Store) { seen = s.Zxid() })
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/changed", Version: -1})
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/gone", Version: -1})
		c.send(wire.OpCreate, create("/parent/c", wire.ModePersistent))
		c.expect("6 Ok", "7 Ok", "8 Ok")
		c.send(wire.OpSetWatches, wire.SetWatchesRequest{RelativeZxid: seen,
			Data: []string{"/same", "/changed", "/gone", "/quiet"}, Exist: []string{"/new", "/quiet"}, Child: []string{"/parent", "/quiet", "/gone"}})
		c.expect("NodeDataChanged /changed", "NodeDeleted /gone", "NodeCreated /quiet", "NodeChildrenChanged /parent", "NodeDeleted /gone", "9 Ok")
		// has fired, is not registered
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/changed", Version: -1})
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/same", Version: -1})
		c.send(wire.OpCreate, create("/new", wire.ModePersistent))
		c.expect("10 Ok", "NodeDataChanged /same", "11 Ok", "NodeCreated /new", "12 Ok")
	})
}

// Defends: C7.
func TestCloseSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, create("/e1", wire.ModeEphemeral))
		c.send(wire.OpCreate, create("/e2", wire.ModeEphemeral))
		c.expect("1 Ok", "2 Ok")
		other.send(wire.OpExists, wire.PathWatchRequest{Path: "/e1", Watch: true})
		other.expect("1 Ok")
		r.setHold(true)
		c.send(wire.OpCloseSession, nil)
		c.send(wire.OpCreate, create("/late", wire.ModeEphemeral)) // must never take effect
		r.setHold(false)
		c.expect("3 Ok")
		if _, _, err := c.next(); err != io.EOF {
			t.Fatalf("after the reply to closeSession: %v", err)
		}
		other.expect("NodeDeleted /e1")
		r.View(func(s *znode.Store) {
			if n := s.Counts(); n.Ephemerals != 0 || n.Sessions != 1 {
				t.Errorf("left: %+v", n)
			}
		})
		if got, err := connect(t, m, c.reattach()); err != nil || got.resp.TimeoutMs != 0 || got.resp.SessionID != 0 {
			t.Fatalf("attach to a closed session: %+v, %v", got.resp, err)
		}
	})
}

func TestUnknownOpEndsTheConnectionBehindItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		for _, op := range []wire.Op{77, 10, wire.OpNotification, wire.OpError, wire.OpCreateSession, wire.OpCheck, wire.OpDeleteContainer} {
			c := mustConnect(t, m, 10*time.Second)
			c.send(wire.OpPing, nil)
			c.send(op, nil)
			c.send(wire.OpCreate, create("/lost", wire.ModePersistent))
			c.expect("-2 Ok", "2 Unimplemented")
			if _, _, err := c.next(); err != io.EOF {
				t.Fatal(err)
			}
			r.View(func(s *znode.Store) {
				if _, ok := s.Node("/lost"); ok {
					t.Errorf("a request behind op %v took effect", op)
				}
			})
		}
	})
}

// Defends: C9.
func TestGarbageIsAnsweredAndNeverReachesTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		for op := range wire.Op(108) {
			if isWrite(op) || isLocal(op) && op != wire.OpPing && op != wire.OpWhoAmI {
				c.xid++
				if err := c.submit(append(wire.AppendRequest(nil, c.xid, op, nil)[4:], 0x7f, 0xff, 0xff)); err != nil {
					t.Fatal(err)
				}
				h, _, err := c.next()
				if err != nil || h.Err != wire.CodeMarshallingError || h.Xid != c.xid {
					t.Errorf("%v: %+v, %v", op, h, err)
				}
			}
		}
		if len(r.held) != 0 {
			t.Errorf("%d undecodable requests were proposed", len(r.held))
		}
		if err := c.submit([]byte{1, 2, 3}); err == nil {
			t.Error("a frame without a header was accepted")
		}
	})
}

func TestAuth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Auth: Auth{SuperDigest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU="}})
		a, b, root := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		private := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth", ID: ""}}}
		a.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("ann:secret")})
		a.send(wire.OpCreate, wire.CreateRequest{Path: "/private", Data: []byte("x"), ACL: private})
		a.send(wire.OpGetData, wire.PathWatchRequest{Path: "/private"})
		a.expect("1 Ok", "2 Ok", "3 Ok")
		b.send(wire.OpGetData, wire.PathWatchRequest{Path: "/private"})
		b.send(wire.OpExists, wire.PathWatchRequest{Path: "/private", Watch: true})
		b.expect("1 NoAuth", "2 NoAuth")
		root.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:test")})
		root.send(wire.OpSetData, wire.SetDataRequest{Path: "/private", Version: -1})
		root.expect("1 Ok", "2 Ok")
		b.send(wire.OpAuth, wire.AuthPacket{Scheme: "world", Auth: []byte("anyone")})
		b.expect("3 AuthFailed")
		if _, _, err := b.next(); err != io.EOF {
			t.Fatal(err)
		}
		again, err := connect(t, m, b.reattach()) // the session itself lives on
		if err != nil || again.s == nil {
			t.Fatalf("attach: %+v, %v", again, err)
		}
	})
}

// A digest identity is text, as in an ACL: bytes that are no UTF-8 become U+FFFD, before the hash.
func TestDigestIdentityIsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("u\xff:p\xff")})
		mine := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/mine", Data: []byte("x"), ACL: mine})
		c.expect("1 Ok", "2 Ok")
		c.send(wire.OpWhoAmI, nil)
		_, body, err := c.next()
		var who wire.WhoAmIResponse
		if err != nil || wire.Decode(body, &who) != nil || !bytes.Equal(who.Append(nil), body) || who.Clients[1].User != "u\ufffd" {
			t.Errorf("whoAmI: %x %+v, %v", body, who, err)
		}
		other := mustConnect(t, m, 10*time.Second)
		other.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("u\ufffd:p\ufffd")})
		other.send(wire.OpGetData, wire.PathWatchRequest{Path: "/mine"})
		other.expect("1 Ok", "2 Ok")
	})
}

// A member without SASL says so to a client that begins it, and closes the connection if it begins
// in a way that cannot be meant.
func TestSASL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		for _, token := range [][]byte{{}, []byte("x")} {
			c.send(wire.OpSASL, wire.SASLRequest{Token: token})
			h, body, err := c.next()
			if want := (wire.SASLResponse{}).Append(nil); err != nil || h.Err != wire.CodeOK || h.Zxid != 0 || !bytes.Equal(body, want) {
				t.Errorf("token %q: %+v %x, %v", token, h, body, err)
			}
		}
		for _, body := range []wire.Record{wire.SASLRequest{}, nil} {
			c := mustConnect(t, m, 10*time.Second)
			if err := c.submit(wire.AppendRequest(nil, 1, wire.OpSASL, body)[4:]); err == nil {
				t.Errorf("SASL with body %+v: the connection lives on", body)
			}
		}
	})
}

// Defends: C2, C9.
func TestAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		first := mustConnect(t, m, 10*time.Second)
		first.send(wire.OpCreate, create("/e", wire.ModeEphemeral))
		first.expect("1 Ok")

		wrong := first.reattach()
		wrong.Password = make([]byte, wire.PasswordLen)
		if c, err := connect(t, m, wrong); err != nil || c.s != nil || c.resp.TimeoutMs != 0 || len(c.resp.Password) != wire.PasswordLen {
			t.Fatalf("wrong password: %+v, %v", c.resp, err)
		}
		first.send(wire.OpExists, wire.PathWatchRequest{Path: "/e"})
		first.expect("2 Ok") // its connection lives on

		second, err := connect(t, m, first.reattach())
		if err != nil || second.s == nil || second.resp.SessionID != first.resp.SessionID || string(second.resp.Password) != string(first.resp.Password) {
			t.Fatalf("attach: %+v, %v", second.resp, err)
		}
		if _, _, err := first.next(); !errors.Is(err, errEnded) {
			t.Fatalf("the old connection, after its session has moved: %v", err)
		}
		// The requests in flight of the old connection are refused.
		late := create("/late", wire.ModePersistent)
		r.apply(&znode.Command{Session: first.s.id(), Generation: 1, Seq: 2, Body: &znode.Request{Op: wire.OpCreate, Body: late.Append(nil)}})
		second.send(wire.OpExists, wire.PathWatchRequest{Path: "/late"})
		second.send(wire.OpExists, wire.PathWatchRequest{Path: "/e"})
		second.expect("1 NoNode", "2 Ok")

		if c, err := connect(t, m, &wire.ConnectRequest{SessionID: 4711, Password: make([]byte, wire.PasswordLen)}); err != nil || c.s != nil {
			t.Fatalf("unknown session: %+v, %v", c.resp, err)
		}
		if _, err := connect(t, m, &wire.ConnectRequest{LastZxidSeen: 1 << 60}); !errors.Is(err, errAhead) {
			t.Fatalf("ahead of us: %v", err)
		}
	})
}

func TestTimeoutIsNegotiated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		for asked, want := range map[int32]int32{-1: 4000, 0: 4000, 3999: 4000, 10_000: 10_000, 1 << 30: 40_000} {
			c, err := connect(t, m, &wire.ConnectRequest{TimeoutMs: asked, HasReadOnly: asked > 0})
			if err != nil || c.resp.TimeoutMs != want || c.resp.HasReadOnly != (asked > 0) {
				t.Errorf("asked for %d: %+v, %v", asked, c.resp, err)
			}
		}
	})
}

func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		sent := make(chan bool)
		go func() {
			for range sessionQueueMax + 10 {
				c.send(wire.OpSync, wire.SyncRequest{Path: "/"})
			}
			close(sent)
		}()
		synctest.Wait()
		if n := c.s.queued(); n != sessionQueueMax {
			t.Fatalf("%d requests in the queue, the limit is %d", n, sessionQueueMax)
		}
		r.setHold(false)
		<-sent
		for range sessionQueueMax + 10 {
			if h, _, err := c.next(); err != nil || h.Err != 0 {
				t.Fatal(h, err)
			}
		}
	})
}

func TestClientThatIsAheadWaitsForTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		writer := mustConnect(t, m, 10*time.Second)
		var seen wire.Zxid
		r.View(func(s *znode.Store) { seen = s.Zxid() + 1 })
		go func() {
			time.Sleep(200 * time.Millisecond)
			writer.send(wire.OpCreate, create("/n", wire.ModePersistent))
		}()
		start := time.Now()
		c, err := connect(t, m, &wire.ConnectRequest{TimeoutMs: 10_000, LastZxidSeen: seen})
		if err != nil || c.s == nil || time.Since(start) != 200*time.Millisecond {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		writer.expect("1 Ok")
		if n := len(m.arriving.behind); n != 0 {
			t.Fatalf("%d handshakes left behind", n)
		}
	})
}

// A read that is under way while its connection ends must not leave a watch that nobody would
// remove.
func TestNoWatchIsSetForAConnectionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		p := pending{req: wire.Request{Xid: 1, Op: wire.OpExists}, record: &wire.PathWatchRequest{Path: "/n", Watch: true}, ids: *c.s.ids.Load()}
		c.detach()
		r.View(func(s *znode.Store) { c.s.executor().execute(s, &p) })
		if n := m.watches.counts(); n != (WatchCounts{}) {
			t.Fatalf("left in the watch table: %+v", n)
		}
	})
}

// threeMembers is the configuration of a cluster.
const threeMembers = "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:participant;0.0.0.0:3\nserver.3=c:1:2:participant;0.0.0.0:3\nversion=0"

// A reconfig is answered when the change has come to its end. Meanwhile pings are answered, and no
// write overtakes it.
func TestReconfigIsAnsweredAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Auth: Auth{SkipACL: true}})
		r.flags = znode.Reconfig
		r.apply(&znode.Command{Body: &znode.SetMembers{Text: threeMembers}})
		c := mustConnect(t, m, 10*time.Second)
		end := func(seq uint64, code wire.Code) {
			r.apply(&znode.Command{Session: c.s.ID(), Generation: 1, Seq: seq, Body: &znode.Reconfigured{Code: code}})
		}
		c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/zookeeper/config", Watch: true})
		c.expect("1 Ok")
		c.send(wire.OpReconfig, wire.ReconfigRequest{Leaving: "3", NullNewMembers: true, CurConfigID: -1})
		c.send(wire.OpPing, nil)
		c.send(wire.OpExists, wire.PathWatchRequest{Path: "/a"})
		c.send(wire.OpPing, nil)
		c.expect("-2 Ok", "-2 Ok")
		done := make(chan struct{})
		go func() { // this one stops the reader
			c.send(wire.OpCreate, create("/a", wire.ModePersistent))
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("a write was taken while the members were changing")
		default:
		}
		end(1, wire.CodeOK)
		c.expect("NodeDataChanged /zookeeper/config")
		h, body, err := c.next()
		var d wire.GetDataResponse
		if err != nil || h.Err != wire.CodeOK || wire.Decode(body, &d) != nil || h.Zxid != d.Stat.Mzxid {
			t.Fatalf("%+v %+v %v", h, d.Stat, err)
		}
		ms, version := r.store.Members()
		if string(d.Data) != znode.ConfigText(ms, version) || len(ms) != 2 {
			t.Fatalf("%s", d.Data)
		}
		<-done
		c.expect("4 NoNode", "6 Ok")
		c.send(wire.OpReconfig, wire.ReconfigRequest{Leaving: "2", NullNewMembers: true, CurConfigID: 5})
		c.expect("7 BadVersion")
		c.send(wire.OpReconfig, wire.ReconfigRequest{NullNewMembers: true, CurConfigID: -1})
		end(4, wire.CodeNewConfigNoQuorum)
		c.expect("8 NewConfigNoQuorum")
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
		c.expect("9 Ok")

		// Until it is known that there is a change, everything keeps its place; then pings go
		// ahead.
		for _, tt := range []struct {
			version int64
			want    []string
		}{
			{5, []string{"10 BadVersion", "-2 Ok", "12 NoNode", "-2 Ok"}},
			{-1, []string{"-2 Ok", "-2 Ok"}},
		} {
			r.setHold(true)
			c.send(wire.OpReconfig, wire.ReconfigRequest{NullNewMembers: true, CurConfigID: tt.version})
			c.send(wire.OpPing, nil)
			c.send(wire.OpExists, wire.PathWatchRequest{Path: "/a"})
			c.send(wire.OpPing, nil)
			r.setHold(false)
			c.expect(tt.want...)
		}
		end(7, wire.CodeNewConfigNoQuorum)
		c.expect("14 NewConfigNoQuorum", "16 NoNode")
	})
}

// A request behind a reconfig goes on when its change is under way: a long read enters the queue,
// and a ping is answered, also while the member is crowded.
func TestRequestsGoOnDuringAChange(t *testing.T) {
	for _, op := range []wire.Op{wire.OpGetChildren, wire.OpPing} {
		synctest.Test(t, func(t *testing.T) {
			m, r := newMember(t, Config{Auth: Auth{SkipACL: true}, Limits: Limits{Outstanding: 1}})
			r.flags = znode.Reconfig
			r.apply(&znode.Command{Body: &znode.SetMembers{Text: threeMembers}})
			c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
			r.setHold(true)
			c.send(wire.OpReconfig, wire.ReconfigRequest{Leaving: "3", NullNewMembers: true, CurConfigID: -1})
			if op == wire.OpPing {
				other.send(wire.OpSync, wire.SyncRequest{Path: "/"})
			}
			given := make(chan struct{})
			go func() {
				defer close(given)
				c.send(op, wire.PathWatchRequest{Path: "/"})
			}()
			synctest.Wait()
			select {
			case <-given:
				t.Fatalf("%v did not wait", op)
			default:
			}
			r.ctl.Lock()
			reconfig := r.held[0]
			r.held = r.held[1:]
			r.ctl.Unlock()
			r.apply(reconfig)
			<-given
			if op == wire.OpPing {
				c.expect("-2 Ok")
				c.send(op, nil)
				c.expect("-2 Ok")
			}
			r.setHold(false)
			r.apply(&znode.Command{Session: c.s.ID(), Generation: 1, Seq: 1, Body: &znode.Reconfigured{}})
			if c.expect("1 Ok"); op == wire.OpGetChildren {
				c.expect("2 Ok")
			}
		})
	}
}

// With ZooKeeperPasswords a session can go on at a ZooKeeper, which computes the password.
func TestZooKeeperPasswords(t *testing.T) {
	for _, as := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := newMember(t, Config{ZooKeeperPasswords: as})
			c := mustConnect(t, m, 10*time.Second)
			r := c.reattach()
			if got := wire.Password(r.Password) == r.SessionID.ZooKeeperPassword(); got != as {
				t.Errorf("ZooKeeper accepts the password: %v, want %v", got, as)
			}
		})
	}
}
