package session

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

func (r *replica) setLeader(leader bool) {
	r.ctl.Lock()
	defer r.ctl.Unlock()
	r.leader, r.changed, r.cut = leader, time.Now(), !leader
}

func readOnlyRequest() *wire.ConnectRequest {
	return &wire.ConnectRequest{TimeoutMs: 10_000, ReadOnly: true, HasReadOnly: true}
}

// A member without a leader, request by request; the codes are the same as in ZooKeeper 3.8.0
// with local sessions.
func TestReadOnlyMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{ReadOnly: true})
		holder, err := connect(t, m, readOnlyRequest())
		if err != nil || holder.resp.ReadOnly || !holder.resp.HasReadOnly {
			t.Fatalf("with a leader: %v %+v", err, holder.resp)
		}
		holder.send(wire.OpCreate, create("/a", wire.ModePersistent))
		holder.send(wire.OpCreate, create("/lock", wire.ModeEphemeral))
		holder.expect("1 Ok", "2 Ok")

		r.setLeader(false)
		time.Sleep(tick - 100*time.Millisecond)
		if m.ReadOnly() {
			t.Fatal("read-only before its time")
		}
		time.Sleep(200 * time.Millisecond)
		if !m.ReadOnly() || m.Serving() {
			t.Fatal("not read-only after a tick without a leader")
		}
		wantRefusals(t, m, holder.resp)
		c, err := connect(t, m, readOnlyRequest())
		if err != nil || !c.resp.ReadOnly || c.resp.TimeoutMs != 10_000 || !isLocalID(c.resp.SessionID) || c.resp.SessionID == 0 {
			t.Fatalf("%v %+v", err, c.resp)
		}
		wantOnlyReads(c)
		if m.readOnly.count() != 1 || len(r.store.Ephemerals(c.resp.SessionID)) != 0 {
			t.Errorf("%d local sessions", m.readOnly.count())
		}

		// Its session can be taken up again here, and nothing else can.
		again := c.reattach()
		again.ReadOnly, again.HasReadOnly = true, true
		c2, err := connect(t, m, again)
		if err != nil || c2.s == nil || c2.resp.SessionID != c.resp.SessionID {
			t.Fatalf("reattach: %v %+v", err, c2.resp)
		}
		if _, _, err := c.next(); !errors.Is(err, errEnded) {
			t.Errorf("the older connection: %v", err)
		}
		for _, change := range []func(*wire.ConnectRequest){
			func(c *wire.ConnectRequest) { c.Password = make([]byte, 16) },
			func(c *wire.ConnectRequest) { c.SessionID++ },
		} {
			req := *again
			change(&req)
			if c, err := connect(t, m, &req); err != nil || c.s != nil || c.resp.TimeoutMs != 0 || !c.resp.ReadOnly {
				t.Errorf("not refused: %v %+v", err, c.resp)
			}
		}
		c2.send(wire.OpWhoAmI, nil)
		c2.expect("1 Ok") // who comes without its password does not end its connection
		c2, err = connect(t, m, again)
		if err != nil {
			t.Fatal(err)
		}

		// With a leader it ends, and so does the session; the session of the cluster goes on.
		r.setLeader(true)
		if _, _, err := c2.next(); !errors.Is(err, errEnded) {
			t.Errorf("there is a leader again: %v", err)
		}
		if m.ReadOnly() || m.readOnly.count() != 0 {
			t.Error("still read-only")
		}
		if c, err := connect(t, m, again); err != nil || c.s != nil || c.resp.TimeoutMs != 0 || c.resp.ReadOnly {
			t.Errorf("local session with a leader: %v %+v", err, c.resp)
		}
		req := holder.reattach()
		req.ReadOnly, req.HasReadOnly = true, true
		back, err := connect(t, m, req)
		if err != nil || back.s == nil || back.resp.ReadOnly || back.resp.SessionID != holder.resp.SessionID {
			t.Errorf("the session of the cluster: %v %+v", err, back.resp)
		}
	})
}

// wantOnlyReads sends requests of each kind, of which only the reads are answered.
func wantOnlyReads(c *client) {
	c.t.Helper()
	c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/a", Watch: true})
	c.send(wire.OpExists, wire.PathWatchRequest{Path: "/b", Watch: true})
	c.send(wire.OpPing, nil)
	c.send(wire.OpCreate, create("/b", wire.ModePersistent))
	c.send(wire.OpCreate, create("/e", wire.ModeEphemeral))
	c.send(wire.OpDelete, wire.DeleteRequest{Path: "/nowhere", Version: -1})
	c.send(wire.OpSetData, nil) // refused before its body is looked at
	c.send(wire.OpSync, wire.SyncRequest{Path: "/"})
	c.send(wire.OpMulti, nil)
	c.send(wire.OpReconfig, nil)
	c.send(wire.OpCheck, nil)
	c.send(wire.OpWhoAmI, nil)
	c.expect("1 Ok", "2 NoNode", "-2 Ok", "4 NotReadOnly", "5 NotReadOnly", "6 NotReadOnly", "7 NotReadOnly",
		"8 NotReadOnly", "9 NotReadOnly", "10 NotReadOnly", "11 NotReadOnly", "12 Ok")
}

// wantRefusals checks whom a member in read-only mode does not serve; cluster is the handshake of a
// session of the cluster.
func wantRefusals(t *testing.T, m *Manager, cluster *wire.ConnectResponse) {
	t.Helper()
	for what, tc := range map[string]struct {
		change func(*wire.ConnectRequest)
		want   error
	}{
		"does not accept it":          {func(c *wire.ConnectRequest) { c.ReadOnly = false }, errReadOnly},
		"too old to know":             {func(c *wire.ConnectRequest) { c.ReadOnly, c.HasReadOnly = false, false }, errReadOnly},
		"ahead":                       {func(c *wire.ConnectRequest) { c.LastZxidSeen = 1 << 40 }, errAhead},
		"session of the cluster":      {func(c *wire.ConnectRequest) { c.SessionID, c.Password = cluster.SessionID, cluster.Password }, errGlobal},
		"one this member knows not":   {func(c *wire.ConnectRequest) { c.SessionID = cluster.SessionID + 7<<56 }, errGlobal},
		"of the cluster, wrong token": {func(c *wire.ConnectRequest) { c.SessionID = cluster.SessionID }, errGlobal},
	} {
		req := readOnlyRequest()
		tc.change(req)
		if c, err := connect(t, m, req); !errors.Is(err, tc.want) || c.resp != nil {
			t.Errorf("client that is %s: %v, %+v", what, err, c.resp)
		}
	}
}

// The connection of a client that sends nothing for its timeout is closed, one that closes its
// session is answered, and neither can come back.
func TestReadOnlySessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{ReadOnly: true})
		r.setLeader(false)
		time.Sleep(2 * tick)
		silent, err := connect(t, m, readOnlyRequest())
		if err != nil {
			t.Fatal(err)
		}
		pinging, err := connect(t, m, readOnlyRequest())
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			time.Sleep(3 * time.Second)
			pinging.send(wire.OpPing, nil)
			pinging.expect("-2 Ok")
		}
		if _, _, err := silent.next(); !errors.Is(err, errEnded) {
			t.Errorf("silent for 24 s of 10: %v", err)
		}
		pinging.send(wire.OpCloseSession, nil)
		pinging.expect("9 Ok")
		time.Sleep(time.Minute)
		if n := m.readOnly.count(); n != 0 {
			t.Errorf("%d local sessions", n)
		}
		for _, c := range []*client{silent, pinging} {
			req := c.reattach()
			req.ReadOnly, req.HasReadOnly = true, true
			if c, err := connect(t, m, req); err != nil || c.s != nil || c.resp.TimeoutMs != 0 {
				t.Errorf("it came back: %v %+v", err, c.resp)
			}
		}
	})
}

// A handshake that read-only mode does not outlive leaves nothing in the account of the
// connections.
func TestHandshakeAtTheEndOfReadOnlyMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{ReadOnly: true})
		fair := m.gate.Memory.Fair(1000)
		for range 3 {
			l := &local{timeout: time.Minute}
			if s := m.readOnly.open(1, l, netip.MustParseAddr("127.0.0.1")); s != nil {
				t.Fatal("read-only mode is off, and the client has a session")
			}
		}
		if now := m.gate.Memory.Fair(1000); now != fair {
			t.Errorf("the share of a connection was %d, and is %d", fair, now)
		}
	})
}

// Without the setting, a member without a leader serves nobody.
func TestReadOnlyModeIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		r.setLeader(false)
		time.Sleep(time.Minute)
		if _, err := connect(t, m, readOnlyRequest()); !errors.Is(err, ErrNotServing) || m.ReadOnly() {
			t.Errorf("%v", err)
		}
	})
}
