package znode

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"lockkeeper/wire"
)

const threeMembers = "server.1=10.0.0.1:2888:3888:participant;0.0.0.0:2181\n" +
	"server.2=10.0.0.2:2888:3888:participant;0.0.0.0:2181\n" +
	"server.3=10.0.0.3:2888:3888:participant;0.0.0.0:2181\n"

// changer applies commands to a cluster of three members.
type changer struct {
	t     *testing.T
	s     *Store
	flags Flags
	seq   uint64
	last  Command
}

func newChanger(t *testing.T, flags Flags) *changer {
	c := &changer{t: t, s: New(), flags: flags}
	c.apply(Command{Body: &SetMembers{Text: threeMembers + "version=0"}})
	c.apply(Command{Session: 7, Seq: 1 << 63, Body: &CreateSession{Connection: Connection{TimeoutMs: 1000, Addr: "127.0.0.1"}}})
	return c
}

func (c *changer) apply(cmd Command) (res Result) {
	c.t.Helper()
	c.s.Apply(2, &Entry{Stamp: Stamp{TimeMs: 1000, Flags: c.flags}, Commands: []Command{cmd}}, func(_ *Command, r *Result) {
		res = *r
		res.Events = append([]Event(nil), r.Events...)
	})
	if err := c.s.Check(); err != nil {
		c.t.Fatal(err)
	}
	return res
}

// ask sends a reconfig of session 7.
func (c *changer) ask(req wire.ReconfigRequest, ids ...Identity) Result {
	c.t.Helper()
	c.seq++
	c.last = Command{Session: 7, Generation: 1, Seq: c.seq, Body: &Request{Op: wire.OpReconfig, Body: req.Append(nil), Identities: ids}}
	return c.apply(c.last)
}

func (c *changer) end(code wire.Code) Result {
	c.t.Helper()
	return c.apply(Command{Session: 7, Generation: 1, Seq: c.last.Seq, Body: &Reconfigured{Code: code}})
}

func (c *changer) config() (string, wire.Stat) {
	data, stat, _ := c.s.Get("/zookeeper/config", []Identity{{Scheme: schemeSuper}})
	return string(data), stat
}

var asSuper = Identity{Scheme: schemeSuper}

// ZooKeeper 3.8.0 gives the same codes for the same requests, where no comment says otherwise.
func TestReconfigRequests(t *testing.T) {
	spec := func(n int, host string) string {
		return fmt.Sprintf("server.%d=%s:2888:3888:participant;0.0.0.0:2181", n, host)
	}
	three := strings.ReplaceAll(strings.TrimSuffix(threeMembers, "\n"), "\n", ",")
	for _, tt := range []struct {
		name, joining, leaving, bulk string
		code                         wire.Code
		members                      string // their numbers, observers with an o
	}{
		{name: "nothing", members: "1 2 3"},
		{name: "no number leaves", leaving: "a", code: wire.CodeMarshallingError},
		{name: "blanks within", leaving: "3 4", code: wire.CodeMarshallingError},
		{name: "a key leaves", leaving: "server.3", code: wire.CodeMarshallingError},
		{name: "another machine leaves", leaving: "77", members: "1 2 3"},
		{name: "one leaves", leaving: " 3 ,, ", members: "1 2"},
		{name: "two leave", leaving: "2,3", code: wire.CodeBadArguments},
		{name: "all leave", leaving: "1,2,3", code: wire.CodeBadArguments},
		{name: "no spec", joining: "some thing", code: wire.CodeBadArguments},
		{name: "no number joins", joining: "a=b", code: wire.CodeMarshallingError},
		{name: "three parts", joining: "a=b=c", code: wire.CodeBadArguments},
		{name: "no client port", joining: "server.4=10.0.0.4:2888:3888", code: wire.CodeBadArguments},
		{name: "no election port", joining: "server.4=10.0.0.4:2888;2181", code: wire.CodeBadArguments},
		{name: "the same ports", joining: "server.4=10.0.0.4:2888:2888;2181", code: wire.CodeBadArguments},
		{name: "an odd role", joining: "server.4=10.0.0.4:2888:3888:foo;2181", code: wire.CodeBadArguments},
		{name: "a port out of range", joining: "server.4=10.0.0.4:70000:3888;2181", code: wire.CodeMarshallingError},
		{name: "joins", joining: "server.4=10.0.0.4:2888:3888;2181", members: "1 2 3 4"},
		{name: "joins, blanks", joining: " server.4 = 10.0.0.4:2888:3888:OBSERVER;2181 , ", members: "1 2 3 4o"},
		{name: "joins, bare number", joining: "4=10.0.0.4:2888:3888;2181", members: "1 2 3 4"},
		{name: "in the place of another", joining: "server.4=10.0.0.3:2888:3888;2181", leaving: "3", members: "1 2 4"},
		{name: "a shared address", joining: "server.4=10.0.0.3:2888:3889;2182", code: wire.CodeBadArguments},
		{name: "a shared election port", joining: "server.4=10.0.0.3:2889:3888;2182", code: wire.CodeBadArguments},
		{name: "another role", joining: "server.3=10.0.0.3:2888:3888:observer;2181", members: "1 2 3o"},
		// ZooKeeper: OK
		{name: "session ids have no room for it", joining: "server.300=10.0.0.4:2888:3888;2181", code: wire.CodeBadArguments},
		{name: "bulk, empty", bulk: " ", code: wire.CodeBadArguments},
		{name: "bulk, the same", bulk: three, members: "1 2 3"},
		{name: "bulk, lines", bulk: threeMembers + "version=abc\n", members: "1 2 3"},
		{name: "bulk, no version", bulk: threeMembers + "version=xyz", code: wire.CodeMarshallingError},
		{name: "bulk, unknown key", bulk: three + ",foo=1", code: wire.CodeBadArguments},
		{name: "bulk, one", bulk: spec(1, "10.0.0.1"), code: wire.CodeBadArguments},
		{name: "bulk, bad spec", bulk: three + ",server.4=foo", code: wire.CodeBadArguments},
		{name: "bulk, no number", bulk: three + ",server.x=10.0.0.4:2888:3888", code: wire.CodeMarshallingError},
		{name: "bulk, no client port", bulk: three + ",server.4=10.0.0.4:2888:3888:observer", members: "1 2 3 4o"},
		{name: "bulk, twice: the last counts", bulk: three + "," + spec(3, "10.0.0.4"), members: "1 2 3"},
		{name: "bulk, other separators", bulk: "server.1: 10.0.0.1:2888:3888\n# x\n\nserver.2 10.0.0.2:2888:3888;2181", members: "1 2"},
		{name: "bulk and more", bulk: three, leaving: "3", joining: "some thing", members: "1 2 3"},
		// ZooKeeper: OK
		{name: "bulk, groups", bulk: three + ",group.1=1:2:3", code: wire.CodeBadArguments},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newChanger(t, Reconfig)
			res := c.ask(wire.ReconfigRequest{Joining: tt.joining, Leaving: tt.leaving, NewMembers: tt.bulk, NullNewMembers: tt.bulk == "", CurConfigID: -1}, asSuper)
			if res.Code != tt.code || res.Deferred != (tt.code == wire.CodeOK) {
				t.Fatalf("%v, deferred %v, want %v", res.Code, res.Deferred, tt.code)
			}
			if tt.code != wire.CodeOK {
				if c.s.Change() != nil {
					t.Fatal("a change is under way")
				}
				return
			}
			var got []string
			for _, m := range c.s.Change().Members {
				mark := ""
				if m.Observer {
					mark = "o"
				}
				got = append(got, fmt.Sprint(m.ID)+mark)
			}
			if got := strings.Join(got, " "); got != tt.members {
				t.Errorf("members %q, want %q", got, tt.members)
			}
		})
	}
}

func TestReconfigPrecedence(t *testing.T) {
	bad := wire.ReconfigRequest{Joining: "some thing", NullNewMembers: true, CurConfigID: 99}
	c := newChanger(t, 0)
	if got := c.ask(bad).Code; got != wire.CodeReconfigDisabled {
		t.Error(got)
	}
	alone := &changer{t: t, s: New(), flags: Reconfig}
	alone.apply(Command{Session: 7, Seq: 1 << 63, Body: &CreateSession{Connection: Connection{TimeoutMs: 1000, Addr: "127.0.0.1"}}})
	if got := alone.ask(bad).Code; got != wire.CodeUnimplemented {
		t.Error(got)
	}
	c = newChanger(t, Reconfig)
	_, version := c.s.Members()
	for _, want := range []wire.Code{wire.CodeBadVersion, wire.CodeBadArguments, wire.CodeNoAuth} {
		if got := c.ask(bad).Code; got != want {
			t.Errorf("%v, want %v", got, want)
		}
		switch want {
		case wire.CodeBadVersion:
			bad.CurConfigID = int64(version)
		case wire.CodeBadArguments:
			bad.Joining = ""
		}
	}
	if res := c.ask(bad, asSuper); !res.Deferred {
		t.Fatal(res)
	}
	first := c.last
	if got := c.ask(bad).Code; got != wire.CodeReconfigInProgress {
		t.Error(got)
	}
	c.last = first
	if res := c.end(wire.CodeOK); res.Code != wire.CodeOK || res.Status != Done {
		t.Error(res)
	}
	c.flags |= LoneVoter
	if res := c.ask(wire.ReconfigRequest{Leaving: "2,3", NullNewMembers: true, CurConfigID: -1}, asSuper); !res.Deferred {
		t.Error(res)
	}
	c = newChanger(t, Reconfig|SkipACL)
	if res := c.ask(wire.ReconfigRequest{NullNewMembers: true, CurConfigID: -1}); !res.Deferred {
		t.Error(res)
	}
}

func TestReconfigTakesEffectAtItsEnd(t *testing.T) {
	c := newChanger(t, Reconfig)
	before, stat := c.config()
	if want := threeMembers + "version=" + fmt.Sprintf("%x", uint64(stat.Mzxid)); before != want || stat.Version != -1 || stat.Mzxid == 0 {
		t.Fatalf("%q %+v", before, stat)
	}
	zxid := c.s.Zxid()
	res := c.ask(wire.ReconfigRequest{Leaving: "3", Joining: "server.4=h:1:2:observer;3", NullNewMembers: true, CurConfigID: -1}, asSuper)
	if text, _ := c.config(); text != before || !res.Deferred || res.Zxid != zxid || len(res.Events) != 0 {
		t.Fatalf("%q %+v", text, res)
	}
	// A snapshot takes the change along.
	restoredStore := restored(t, c.s)
	if restoredStore.Digest() != c.s.Digest() || restoredStore.Change() == nil || !restoredStore.Change().Is(&c.last) {
		t.Fatal("the change is not in the snapshot")
	}
	c.s = restoredStore
	if res := c.apply(Command{Session: 7, Generation: 1, Seq: 99, Body: &Reconfigured{}}); res.Status != Duplicate {
		t.Fatalf("the end of another change: %+v", res)
	}
	if res := c.end(wire.CodeNewConfigNoQuorum); res.Code != wire.CodeNewConfigNoQuorum || res.Zxid != zxid || c.s.Change() != nil {
		t.Fatalf("%+v", res)
	}
	if text, _ := c.config(); text != before {
		t.Fatalf("%q", text)
	}
	c.ask(wire.ReconfigRequest{Leaving: "3", Joining: "server.4=h:1:2:observer;3", NullNewMembers: true, CurConfigID: -1}, asSuper)
	res = c.end(wire.CodeOK)
	text, stat := c.config()
	want := threeMembers[:strings.Index(threeMembers, "server.3")] + "server.4=h:1:2:observer;0.0.0.0:3\nversion=" + fmt.Sprintf("%x", uint64(res.Zxid))
	if text != want || stat.Mzxid != res.Zxid || res.Zxid != zxid+1 || stat.Version != -1 {
		t.Fatalf("%q %+v, want %q", text, stat, want)
	}
	if len(res.Events) != 1 || res.Events[0].Type != wire.EventNodeDataChanged || res.Events[0].Path != "/zookeeper/config" {
		t.Fatalf("%+v", res.Events)
	}
	if res := c.end(wire.CodeOK); res.Status != Duplicate {
		t.Fatalf("the same end again: %+v", res)
	}
	if got := snapshotBytes(t, c.s); !bytes.Equal(got, snapshotBytes(t, restored(t, c.s))) {
		t.Error("written again, the snapshot is different")
	}
}

// The leader's file counts for the addresses as long as reconfig is not enabled, and
// never for who the members are.
func TestMembersOfTheFile(t *testing.T) {
	c := newChanger(t, 0)
	if text, _ := c.config(); text != threeMembers+"version=0" {
		t.Fatal(text)
	}
	moved := strings.Replace(threeMembers, "10.0.0.3", "h3", 1)
	c.apply(Command{Body: &SetMembers{Text: moved + "version=0"}})
	if text, _ := c.config(); text != moved+"version=0" {
		t.Fatal(text)
	}
	for _, other := range []string{moved + "server.4=h4:1:2:participant\n", strings.Replace(moved, "participant", "observer", 1), "", "nonsense"} {
		c.apply(Command{Body: &SetMembers{Text: other + "version=0"}})
		if text, _ := c.config(); text != moved+"version=0" {
			t.Fatal(text)
		}
	}
	c.flags = Reconfig
	c.apply(Command{Body: &SetMembers{Text: threeMembers + "version=0"}})
	ms, version := c.s.Members()
	if text, _ := c.config(); version == 0 || ms[2].Host != "h3" || text != ConfigText(ms, version) {
		t.Fatal(text, version)
	}
}

// An IPv6 address is written as Java writes it, and read in any form.
func TestMemberWithIPv6(t *testing.T) {
	const spec = "[0:0:0:0:0:0:0:1]:2888:3888:observer;[fe80:0:0:0:0:0:a:b]:2181"
	for _, text := range []string{spec, "[::1]:2888:3888:observer;[fe80::a:b]:2181"} {
		m, err := ParseMember(7, text)
		if err != nil || m.Host != "::1" || m.PeerAddr() != "[::1]:2888" || m.ClientAddr != "[fe80::a:b]:2181" || m.Spec() != spec {
			t.Errorf("%q: %+v %v, written as %q", text, m, err, m.Spec())
		}
	}
}
