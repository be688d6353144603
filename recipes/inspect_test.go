package recipes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// sketch draws contenders, for comparison: held ones with a star, those that may hold
// with a tilde, orphans with a question mark, and the nodes that they may ignore in brackets.
func sketch(cs []Contender) (lines []string) {
	for _, c := range cs {
		line := fmt.Sprintf("%s %s %d", c.Kind, c.Library, c.Session)
		if c.Held {
			line = "*" + line
		}
		if c.MayHold {
			line = "~" + line
		}
		if len(c.MayIgnore) > 0 {
			line += fmt.Sprint(c.MayIgnore)
		}
		if c.Orphan {
			line += "?"
		}
		lines = append(lines, line)
	}
	return lines
}

func wantContenders(t *testing.T, s *Session, path string, want ...string) []Contender {
	t.Helper()
	cs, err := s.Contenders(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if got := sketch(cs); !slices.Equal(got, want) {
		t.Errorf("contenders of %s: %q, want %q", path, got, want)
	}
	return cs
}

// The beginnings of the names of nodes of Curator and of kazoo.
const (
	curatorID = "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-"
	kazooID   = "b7bfcd3227404d3880a0eccd4e5100c"
)

// foreignQueues are queues with nodes of several libraries, and how they are reported: * holds, ~
// may hold, ? may be an orphan; the names in brackets may be ignored.
var foreignQueues = []struct {
	about string
	nodes []string // session, path; made in this order
	want  []string
}{
	{"nobody", nil, nil},
	{"a mutex", []string{
		"9 /q/" + curatorID + "lock-0000000009", "3 /q/" + kazooID + "0__lock__0000000002", "4 /q/_c_" + kazooID + "1-lock-0000000004",
	}, []string{"*write kazoo 3[lock-]", "write go-zookeeper 4", "write curator 9[__lock__]"}},
	{"kazoo behind Curator", []string{
		"1 /q/" + curatorID + "lock-0000000001", "2 /q/" + kazooID + "2__lock__0000000002", "3 /q/" + kazooID + "3__lock__0000000003",
		"4 /q/" + curatorID + "lock-0000000004",
	}, []string{"*write curator 1[__lock__]", "~write kazoo 2[lock-]", "write kazoo 3[lock-]", "write curator 4[__lock__]"}},
	{"Curator behind kazoo", []string{
		"1 /q/" + kazooID + "1__lock__0000000001", "2 /q/" + curatorID + "lock-0000000002",
	}, []string{"*write kazoo 1[lock-]", "~write curator 2[__lock__]"}},
	{"kazoo with Curator's names waits for all, and Curator for it", []string{
		"1 /q/" + kazooID + "1__lock__0000000001", "2 /q/" + kazooID + "2-lock-0000000002", "3 /q/" + curatorID + "lock-0000000003",
	}, []string{"*write kazoo 1[lock-]", "write kazoo 2", "write curator 3[__lock__]"}},
	{"Curator's mutex and its read-write lock", []string{
		"1 /q/" + curatorID + "lock-0000000001", "2 /q/" + curatorID + "__READ__0000000002", "3 /q/" + curatorID + "__WRIT__0000000003",
	}, []string{"*write curator 1[__READ__ __WRIT__]", "~read curator 2[lock-]", "write curator 3[lock-]"}},
	{"kazoo's Lock may ignore kazoo's readers", []string{
		"1 /q/" + kazooID + "1__rlock__0000000001", "2 /q/" + kazooID + "2__lock__0000000002",
	}, []string{"*read kazoo 1", "~write kazoo 2"}},
	{"ZooKeeper's recipe", []string{
		"1 /q/x-72057594037927937-0000000001", "2 /q/" + kazooID + "1__lock__0000000002", "3 /q/x-100c0ffee-0000000003",
	}, []string{"*write zookeeper 1[__lock__]", "~write kazoo 2[x-]", "write zookeeper 3[__lock__]"}},
	{"a lock on a semaphore's path", []string{
		"1 /q/leases/" + curatorID + "lease-0000000001", "2 /q/" + curatorID + "lock-0000000001", "4 /q/_c_" + kazooID + "1-lock-0000000004",
	}, []string{"*lease curator 1[lock-]", "~write curator 2[lease-]", "write go-zookeeper 4"}},
	{"a lock on the path of kazoo's semaphore", []string{
		"1 /q/" + kazooID + "1", "2 /q/" + curatorID + "lock-0000000001", "4 /q/_c_" + kazooID + "1-lock-0000000004",
	}, []string{"*lease kazoo 1", "~write curator 2[kazoo lease]", "write go-zookeeper 4"}},
	{"readers in front", []string{
		"1 /q/" + curatorID + "__READ__0000000001", "2 /q/" + kazooID + "0__rlock__0000000002",
		"3 /q/" + curatorID + "__WRIT__0000000003", "4 /q/" + curatorID + "__READ__0000000004",
	}, []string{"*read curator 1", "*read kazoo 2[__WRIT__]", "write curator 3[__rlock__]", "read curator 4"}},
	{"a writer in front", []string{
		"1 /q/" + curatorID + "__WRIT__0000000001", "2 /q/" + curatorID + "__READ__0000000002",
	}, []string{"*write curator 1", "read curator 2"}},
	{"orphans", []string{
		"1 /q/" + curatorID + "lock-0000000001", "2 /q/" + curatorID + "lock-0000000002", "1 /q/" + curatorID + "lock-0000000003",
	}, []string{"*write curator 1?", "write curator 2", "write curator 1?"}},
	{"unknown names", []string{"1 /q/some_0000000001", "2 /q/config"}, []string{"*unknown  1"}},
	{"Curator's semaphore, one waits with a lease made", []string{
		"1 /q/leases/" + curatorID + "lease-0000000001", "2 /q/leases/" + curatorID + "lease-0000000002",
		"3 /q/locks/" + curatorID + "lock-0000000003", "4 /q/locks/" + curatorID + "lock-0000000004",
		"3 /q/leases/" + curatorID + "lease-0000000003",
	}, []string{"*lease curator 1", "*lease curator 2", "lease curator 3", "lease curator 4"}},
	{"Curator's semaphore, one has a lease and wants another", []string{
		"1 /q/leases/" + curatorID + "lease-0000000001", "1 /q/locks/" + curatorID + "lock-0000000003",
	}, []string{"*lease curator 1", "lease curator 1"}},
	{"kazoo's semaphore", []string{
		"2 /q/" + kazooID + "2", "1 /q/" + kazooID + "1", "3 /q-__lock__/" + kazooID + "3__lock__0000000007",
	}, []string{"*lease kazoo 2", "*lease kazoo 1", "lease kazoo 3"}},
	{"kazoo's semaphore, nobody has a lease yet", []string{
		"0 /q", "3 /q-__lock__/" + kazooID + "3__lock__0000000007", "4 /q-__lock__/" + kazooID + "4__lock__0000000008",
	}, []string{"lease kazoo 3", "lease kazoo 4"}},
	{"Curator's semaphore and kazoo's", []string{
		"1 /q/leases/" + curatorID + "lease-0000000001", "2 /q/" + kazooID + "2", "3 /q/locks/" + curatorID + "lock-0000000003",
		"4 /q-__lock__/" + kazooID + "4__lock__0000000004",
	}, []string{"*lease curator 1", "*lease kazoo 2", "lease curator 3", "lease kazoo 4"}},
	{"a lock beside kazoo's semaphore where Curator's was", []string{
		"1 /q/leases/n", "2 /q/" + kazooID + "2", "3 /q/" + curatorID + "lock-0000000003",
	}, []string{"*lease kazoo 2", "~write curator 3[kazoo lease]"}},
}

// TestContendersForeign: queues of all libraries.
func TestContendersForeign(t *testing.T) {
	for _, tt := range foreignQueues {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster()
			s, _ := newTestSession(c)
			defer s.Close()
			for _, n := range tt.nodes {
				var session int64
				var path string
				fmt.Sscan(n, &session, &path)
				c.with(func() {
					for i, r := range path[1:] {
						if r == '/' {
							c.createLocked(path[:i+1], nil, zk.FlagContainer, 0)
						}
					}
					if _, err := c.createLocked(path, []byte("them"), zk.FlagEphemeral, session); err != nil {
						t.Fatal(err)
					}
				})
			}
			t.Log(tt.about)
			cs := wantContenders(t, s, "/q", tt.want...)
			for _, c := range cs {
				if c.Info != nil || string(c.Data) != "them" || c.Token == 0 || c.Created.IsZero() {
					t.Errorf("%+v", c)
				}
			}
			holders, err := s.Holders(t.Context(), "/q")
			n := 0
			for _, line := range tt.want {
				if strings.HasPrefix(line, "*") || strings.HasPrefix(line, "~") {
					n++
				}
			}
			if err != nil || len(holders) != n {
				t.Errorf("%d holders, %v, want %d", len(holders), err, n)
			}
		})
	}
}

// TestContenders: the recipes' own queues, and their data about their owners.
func TestContenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		other, conn := newTestSession(c)
		defer other.Close()
		opts := MutexOptions{Note: "the reason"}
		start := time.Now()
		time.Sleep(time.Hour)
		g := must(t, NewMutex(s, "/m", opts).Lock)
		time.Sleep(time.Minute)
		next := later(t, NewMutex(other, "/m", MutexOptions{Data: []byte("mine")}).Lock)
		cs := wantContenders(t, s, "/m", "*write lockkeeper 1", "write curator 2")
		if string(cs[1].Data) != "mine" || cs[1].Info != nil {
			t.Errorf("%+v", cs[1])
		}
		host, _ := os.Hostname()
		i := cs[0].Info
		if i.Note != "the reason" || i.PID != os.Getpid() || i.Host != host || i.Program == "" || i.Since.Sub(start) != time.Hour {
			t.Errorf("%+v", i)
		}
		if cs[0].Path+"/"+cs[0].Node != g.Node() || cs[0].Token != g.Token() || cs[0].Created.Sub(start) != time.Hour {
			t.Errorf("%+v", cs[0])
		}
		text, err := json.Marshal(cs[0])
		if err != nil || !strings.Contains(string(text), `"kind":"write"`) {
			t.Errorf("%s, %v", text, err)
		}
		mustUnlock(t, g)
		mustUnlock(t, <-next)
		wantContenders(t, s, "/m")
		wantContenders(t, s, "/not-there")

		g = must(t, NewSimpleMutex(s, "/simple", opts).Lock)
		wantContenders(t, s, "/simple", "*write lockkeeper 1")
		mustUnlock(t, g)

		m := NewSemaphore(other, "/s", SemaphoreOptions{Leases: 1})
		g = must(t, m.Lock)
		next = later(t, NewSemaphore(s, "/s", SemaphoreOptions{Leases: 1}).Lock)
		wantContenders(t, s, "/s", "*lease lockkeeper 2", "lease lockkeeper 1")
		mustUnlock(t, g)
		mustUnlock(t, <-next)

		// Through a lost connection, and no longer than ctx.
		c.with(conn.cutLocked)
		wantContenders(t, other, "/m")
		c.with(func() { conn.reconnect = time.Hour })
		c.with(conn.cutLocked)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := other.Contenders(ctx, "/m"); err == nil {
			t.Error("contenders without a connection")
		}
	})
}

// TestWithin: the sessions that a program is told of by its environment.
func TestWithin(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                  nil,
		"0x1":                               {"0x1"},
		"0x1,0xffffffffffffffff":            {"0x1", "0xffffffffffffffff"},
		"1,x,0x,0xg,,0x2":                   {"0x2"},
		strings.Repeat("0x1,", 100) + "0x2": append(slices.Repeat([]string{"0x1"}, maxWithin-1), "0x2"),
	} {
		if got := within(text); !slices.Equal(got, want) {
			t.Errorf("within(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestCandidatesLead: candidates of an election have a kind of their own.
func TestCandidatesLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, _ := newTestSession(c)
		b, _ := newTestSession(c)
		defer a.Close()
		defer b.Close()
		leader, err := NewElection(a, testPath, ElectionOptions{}).Campaign(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go NewElection(b, testPath, ElectionOptions{}).Campaign(ctx, nil)
		synctest.Wait()
		all, err := a.Contenders(t.Context(), testPath)
		if err != nil || len(all) != 2 || !all[0].Held || all[1].Held || all[1].MayHold || all[0].Kind != KindLead || all[1].Kind != KindLead {
			t.Errorf("the candidates are %+v, %v", all, err)
		}
		if leader.Session() != all[0].Session {
			t.Errorf("the leader's session is %x, its node's %x", leader.Session(), all[0].Session)
		}
		cancel()
		synctest.Wait()
		leader.Resign(t.Context())
	})
}
