package session

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// addresses is an ACL of n addresses.
func addresses(n int) []wire.ACL {
	acl := make([]wire.ACL, n)
	for i := range acl {
		acl[i] = wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: "ip", ID: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}}
	}
	return acl
}

// multiOf is a multi, or multiRead, of n times the same op.
func multiOf(n int, op wire.Op, r wire.Record) wire.MultiRequest {
	m := wire.MultiRequest{Ops: make([]wire.MultiOp, n)}
	for i := range m.Ops {
		m.Ops[i] = wire.MultiOp{Op: op, Record: r}
	}
	return m
}

// A request that would cost the members more than the limits allow is answered at its place in the
// session's order and never proposed, and so is one that is certain to be refused.
//
// Defends: C9.
func TestWhatIsBeyondTheBoundsStaysOutOfTheLog(t *testing.T) {
	set := &wire.SetDataRequest{Path: "/a", Version: -1}
	long := strings.Repeat("x", 70_000)
	cases := map[string]struct {
		op   wire.Op
		body wire.Record
		want wire.Code
	}{
		"ACL entries":      {wire.OpCreate, wire.CreateRequest{Path: "/n", ACL: addresses(1001)}, wire.CodeInvalidACL},
		"ACL of 960 kB":    {wire.OpCreate2, wire.CreateRequest{Path: "/n", ACL: addresses(40_000)}, wire.CodeInvalidACL},
		"ACL bytes":        {wire.OpSetACL, wire.SetACLRequest{Path: "/a", ACL: []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "digest", ID: "u:" + long}}}}, wire.CodeInvalidACL},
		"ACL in a multi":   {wire.OpMulti, multiOf(1, wire.OpCreate, &wire.CreateRequest{Path: "/n", ACL: addresses(1001)}), wire.CodeInvalidACL},
		"ACL, TTL":         {wire.OpCreateTTL, wire.CreateTTLRequest{Path: "/n", ACL: addresses(1001), Mode: wire.ModePersistentTTL, TTL: 1}, wire.CodeInvalidACL},
		"cost":             {wire.OpMulti, multiOf(40_000, wire.OpSetData, set), wire.CodeBadArguments},
		"cost of creates":  {wire.OpMulti, multiOf(10_000, wire.OpCreate, &wire.CreateRequest{Path: "/n", ACL: wire.OpenACL}), wire.CodeBadArguments},
		"cost of a path":   {wire.OpDelete, wire.DeleteRequest{Path: strings.Repeat("/", 1_000_001), Version: -1}, wire.CodeBadArguments},
		"limits":           {wire.OpSetData, wire.SetDataRequest{Path: "/zookeeper/quota/a/zookeeper_limits", Data: []byte(long)}, wire.CodeBadArguments},
		"members":          {wire.OpReconfig, wire.ReconfigRequest{Joining: strings.Repeat("server.1=h:1:2;3,", 1000), NullNewMembers: true, CurConfigID: -1}, wire.CodeBadArguments},
		"empty ACL":        {wire.OpCreate, wire.CreateRequest{Path: "/n"}, wire.CodeInvalidACL},
		"unknown scheme":   {wire.OpSetACL, wire.SetACLRequest{Path: "/a", ACL: []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "x"}}}}, wire.CodeInvalidACL},
		"mode":             {wire.OpCreate, wire.CreateRequest{Path: "/n", ACL: wire.OpenACL, Mode: 99}, wire.CodeBadArguments},
		"no path":          {wire.OpSetData, wire.SetDataRequest{Path: "a"}, wire.CodeBadArguments},
		"what must remain": {wire.OpDelete, wire.DeleteRequest{Path: "/zookeeper"}, wire.CodeBadArguments},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, r := newMember(t, Config{})
				c := mustConnect(t, m, 10*time.Second)
				r.setHold(true)
				c.send(wire.OpCreate, create("/a", wire.ModePersistent))
				c.send(test.op, test.body)
				c.send(wire.OpSetData, set)
				if n := len(r.held); n != 2 {
					t.Errorf("%d commands were proposed", n)
				}
				r.setHold(false)
				c.expect("1 Ok", fmt.Sprintf("2 %v", test.want), "3 Ok")
			})
		})
	}
}

// A request just within the bounds is applied, and a refused one is counted.
func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Limits: Limits{ACLEntries: 2, Cost: 50 * time.Microsecond}})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: addresses(3)})
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: addresses(2)})
		c.send(wire.OpMulti, multiOf(3, wire.OpDelete, &wire.DeleteRequest{Path: "/a", Version: -1}))
		c.send(wire.OpMulti, multiOf(4, wire.OpDelete, &wire.DeleteRequest{Path: "/a", Version: -1}))
		c.send(wire.OpMultiRead, multiOf(80, wire.OpGetData, &wire.PathWatchRequest{Path: "/a"}))
		c.expect("1 InvalidACL", "2 Ok", "3 Ok", "4 BadArguments", "5 BadArguments")
		if s := m.Stats(); s.ACLsRefused != 1 || s.CostlyRefused != 2 {
			t.Errorf("counted: %+v", s)
		}
		m.ResetStats()
		if s := m.Stats(); s.ACLsRefused != 0 || s.CostlyRefused != 0 {
			t.Errorf("counted after the reset: %+v", s)
		}
	})
}

// One entry of scheme auth stands for all identities of the connection, so they are what is
// counted.
func TestIdentitiesCountAsACLEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Limits: Limits{ACLEntries: 3}})
		c := mustConnect(t, m, 10*time.Second)
		auth := func(perms wire.Perm) wire.ACL { return wire.ACL{Perms: perms, ID: wire.ID{Scheme: "auth"}} }
		c.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("a:x")})
		c.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("b:x")})
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: []wire.ACL{auth(31)}})
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/b", ACL: []wire.ACL{auth(31), auth(1)}})
		c.expect("1 Ok", "2 Ok", "3 Ok", "4 InvalidACL")
	})
}

// A session has a bounded number of ephemeral nodes, those included that are on their way into the
// log.
//
// Defends: C9.
func TestEphemeralsOfASessionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Limits: Limits{Ephemerals: 3}})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, create("/a", wire.ModeEphemeral))
		c.expect("1 Ok")
		r.setHold(true)
		c.send(wire.OpCreate, create("/b", wire.ModeEphemeral))
		c.send(wire.OpMulti, multiOf(2, wire.OpCreate, &wire.CreateRequest{Path: "/c", ACL: wire.OpenACL, Mode: wire.ModeEphemeralSequential}))
		c.send(wire.OpCreate, create("/d", wire.ModePersistent))
		other.send(wire.OpCreate, create("/e", wire.ModeEphemeral))
		r.setHold(false)
		c.expect("2 Ok", "3 BadArguments", "4 Ok")
		other.expect("1 Ok")
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
		c.send(wire.OpMulti, multiOf(2, wire.OpCreate, &wire.CreateRequest{Path: "/c", ACL: wire.OpenACL, Mode: wire.ModeEphemeralSequential}))
		c.expect("5 Ok", "6 Ok")
		synctest.Wait()
		if n := m.Stats().EphemeralsRefused; n != 1 {
			t.Errorf("%d refusals are counted", n)
		}
		r.View(func(s *znode.Store) {
			if n := s.Sessions().EphemeralCount(c.s.ID()); n != 3 || c.s.queue != nil {
				t.Errorf("%d ephemerals, %d requests on their way", n, c.s.lenLocked())
			}
		})
	})
}

// A read that may take long waits until the requests before it are answered, and is not executed in
// the critical section of a write, nor of a reconfig that is refused.
//
// Defends: C9.
func TestLongReadsWaitForTheirTurn(t *testing.T) {
	leave := wire.ReconfigRequest{Leaving: "3", NullNewMembers: true, CurConfigID: -1}
	for _, tt := range []struct {
		write, read wire.Op
		body, asks  wire.Record
		want        []string
	}{
		{wire.OpCreate, wire.OpGetChildren, create("/a", wire.ModePersistent), wire.PathWatchRequest{Path: "/a"}, []string{"1 Ok", "2 Ok", "3 Ok", "-2 Ok"}},
		{wire.OpCreate, wire.OpGetACL, create("/a", wire.ModePersistent), wire.PathRequest{Path: "/a"}, []string{"1 Ok", "2 Ok", "3 Ok", "-2 Ok"}},
		{wire.OpReconfig, wire.OpGetChildren, leave, wire.PathWatchRequest{Path: "/"}, []string{"1 NoAuth", "2 NoNode", "3 Ok", "-2 Ok"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, r := newMember(t, Config{})
			r.flags = znode.Reconfig
			r.apply(&znode.Command{Body: &znode.SetMembers{Text: threeMembers}})
			c := mustConnect(t, m, 10*time.Second)
			r.setHold(true)
			c.send(tt.write, tt.body)
			c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/a"})
			taken := make(chan struct{})
			go func() {
				c.send(tt.read, tt.asks)
				c.send(wire.OpPing, nil)
				close(taken)
			}()
			synctest.Wait()
			if n := c.s.queued(); n != 2 {
				t.Errorf("%v behind %v: %d requests are in the queue", tt.read, tt.write, n)
			}
			r.setHold(false)
			<-taken
			c.expect(tt.want...)
		})
	}
}

// A connection whose output has ended has none of its reads executed behind a write.
func TestReadsEndWithTheOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Limits: Limits{Response: 10_000}})
		c, other := connectSilent(t, m), mustConnect(t, m, 10*time.Second)
		defer close(c.done)
		submit := func(op wire.Op, body wire.Record) {
			t.Helper()
			if err := c.s.Submit(wire.AppendRequest(nil, 1, op, body)[4:]); err != nil {
				t.Fatal(err)
			}
		}
		path := func(i int) string { return fmt.Sprintf("/%d", i) }
		const reads = 10
		for i := range reads {
			other.send(wire.OpCreate, wire.CreateRequest{Path: path(i), Data: make([]byte, 9000), ACL: wire.OpenACL})
		}
		r.setHold(true)
		submit(wire.OpSync, wire.SyncRequest{Path: "/"})
		for i := range reads {
			submit(wire.OpGetData, wire.PathWatchRequest{Path: path(i), Watch: true})
		}
		r.setHold(false)
		// Two answers have room, and the third ends the output.
		if n := m.watches.counts().Watches; !c.s.aborted() || n != 3 || c.s.queued() != 0 {
			t.Errorf("ended: %v, %d reads were executed, %d are in the queue", c.s.aborted(), n, c.s.queued())
		}
	})
}

// The state of the cluster is bounded, what is on its way into the log included. What does not make
// it larger is taken all the same.
//
// Defends: C9.
func TestStateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const builtIn = 4
		m, r := newMember(t, Config{Limits: Limits{Nodes: builtIn + 3, DataBytes: 100_000}})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, create("/a", wire.ModePersistent))
		c.expect("1 Ok")
		r.setHold(true)
		c.send(wire.OpCreate, create("/b", wire.ModePersistent))
		other.send(wire.OpCreate, create("/c", wire.ModePersistent))
		other.send(wire.OpCreate, create("/d", wire.ModePersistent))
		r.setHold(false)
		c.expect("2 Ok")
		other.expect("1 Ok", "2 BadArguments")
		big := wire.SetDataRequest{Path: "/a", Data: make([]byte, 60_000), Version: -1}
		c.send(wire.OpSetData, big)
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/b", Data: big.Data, Version: -1})
		c.send(wire.OpSetData, big) // it replaces as much
		c.send(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpSetData, Record: &big}}})
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
		c.expect("3 Ok", "4 BadArguments", "5 Ok", "6 Ok", "7 Ok")
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/b", Data: big.Data, Version: -1})
		c.send(wire.OpCreate, create("/d", wire.ModePersistent))
		c.expect("8 Ok", "9 Ok")
		synctest.Wait()
		if s := m.Stats(); s.StateFull != 2 || s.StateBytes < 60_000 || s.StateBytes > 100_000 {
			t.Errorf("%d refusals are counted, and %d bytes", s.StateFull, s.StateBytes)
		}
		if !m.gate.Idle() {
			t.Error("not every ticket is released")
		}
	})
}

// Each different ACL counts for the memory that it takes, not only for its bytes.
func TestACLsCountForTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Limits: Limits{DataBytes: 200_000}})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: addresses(900)})
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/b", ACL: addresses(901)})
		c.send(wire.OpCreate, create("/b", wire.ModePersistent))
		c.send(wire.OpSetACL, wire.SetACLRequest{Path: "/b", ACL: addresses(902), Version: -1})
		c.expect("1 Ok", "2 BadArguments", "3 Ok", "4 BadArguments")
	})
}

// Sessions are bounded, in total and by address; one that ends makes room. Attaching is not
// refused.
//
// Defends: C9.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Limits: Limits{Sessions: 4, SessionsPerAddr: 2}})
		request := &wire.ConnectRequest{TimeoutMs: 10_000, Password: make([]byte, wire.PasswordLen)}
		open := func(addr string) (*Session, *wire.ConnectResponse, error) {
			s, response, err := m.Connect(t.Context(), request, netip.MustParseAddr(addr))
			if s != nil {
				t.Cleanup(s.Detach)
			}
			return s, response, err
		}
		first, granted, err := open("10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		for _, next := range []struct {
			addr string
			want error
		}{
			{"10.0.0.1", nil}, {"10.0.0.1", admission.ErrSessions}, {"10.0.0.2", nil}, {"10.0.0.3", nil}, {"10.0.0.4", admission.ErrSessions},
		} {
			if _, _, err := open(next.addr); !errors.Is(err, next.want) {
				t.Errorf("%s: %v, want %v", next.addr, err, next.want)
			}
		}
		again := *request
		again.SessionID, again.Password = granted.SessionID, granted.Password
		s, _, err := m.Connect(t.Context(), &again, netip.MustParseAddr("10.0.0.2"))
		if err != nil {
			t.Fatalf("attach: %v", err)
		}
		t.Cleanup(s.Detach)
		r.apply(&znode.Command{Session: first.ID(), Generation: s.generation, Body: &znode.Expire{}})
		if _, _, err := open("10.0.0.2"); err != nil {
			t.Errorf("after one has ended: %v", err)
		}
		if n := m.Stats().SessionsRefused; n != 2 {
			t.Errorf("%d refusals are counted", n)
		}
	})
}

// An ACL whose networks have many lengths of prefixes is refused: each length costs each request of
// a multi a lookup.
func TestPrefixesOfACLsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		var acl []wire.ACL
		for bits := range znode.MaxACLPrefixes + 1 {
			acl = append(acl, wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: "ip", ID: fmt.Sprintf("10.0.0.0/%d", 32-bits)}})
		}
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: acl})
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: acl[1:]})
		c.expect("1 InvalidACL", "2 Ok")
	})
}
