package server

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/wire"
)

// askStoppable asks a member over HTTP whether it may be stopped.
func askStoppable(t *testing.T, s *Server, query string) (status int, a ops.Stoppable) {
	t.Helper()
	resp, err := http.Get("http://" + s.HTTPAddr().String() + "/stoppable" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, a
}

// A member may be stopped when the others can do without it: not two at a time, not while another
// one is away, and again when that one is back. Looking reserves nothing.
func TestStoppable(t *testing.T) {
	t.Parallel()
	members, _ := startMembers(t, []uint8{1, 2, 3}, "admin.enableServer=true\nadmin.serverAddress=127.0.0.1\nadmin.serverPort=FREE_PORT\n")
	for _, s := range members {
		await(t, "the members to be ready", func() bool { ok, _ := s.Ready(); return ok })
	}
	dialReal(t, members[0]).connect(10 * time.Second)
	for _, s := range members { // a new leader says no for a moment
		if status, a := askStoppable(t, s, "?reserve=false&wait=10s"); status != http.StatusOK || !a.Stoppable || a.HoldsMs != 0 {
			t.Fatalf("a look at member %d: %d %+v", s.cfg.Cluster.ID, status, a)
		}
	}
	status, a := askStoppable(t, members[0], "?wait=10s")
	if status != http.StatusOK || !a.Stoppable || a.HoldsMs < 1000 || a.Sessions != 1 || a.Member != 1 {
		t.Fatalf("member 1: %d %+v", status, a)
	}
	var word ops.Stoppable
	if err := json.Unmarshal([]byte(dialReal(t, members[1]).word("mays")), &word); err != nil || word.Stoppable ||
		word.Reason != "member 1 has been told that it may stop" {
		t.Fatalf("member 2: %+v, %v", word, err)
	}
	if err := members[0].Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "member 2 to miss member 1", func() bool {
		status, a = askStoppable(t, members[1], "")
		return status == http.StatusServiceUnavailable && !a.Hopeless && strings.Contains(a.Reason, "member 1 does not answer")
	})
	cfg := members[0].cfg
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if status, a = askStoppable(t, members[1], "?wait=20s"); status != http.StatusOK {
		t.Errorf("member 2, with member 1 back: %d %+v", status, a)
	}
	if ok, why := s.Ready(); !ok {
		t.Errorf("member 2 may be stopped, and member 1 is not ready: %s", why)
	}
	for _, query := range []string{"?wait=x", "?wait=11m", "?reserve=x"} {
		if status, _ := askStoppable(t, members[1], query); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, status)
		}
	}
}

// A member alone says that waiting does not help.
func TestMemberAloneIsNotStoppable(t *testing.T) {
	s := startReal(t, func(c *Config) { c.HTTP.Addr = "127.0.0.1:0" })
	begin := time.Now()
	status, a := askStoppable(t, s, "?wait=1m")
	if want := (ops.Stoppable{Member: s.cfg.Cluster.ID, Reason: "it stands alone: nobody else serves its clients", Hopeless: true}); a != want {
		t.Errorf("%d %+v, want %+v", status, a, want)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("it took %v", took)
	}
	if status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
}

// A member that drains waits until the others can do without it, transfers the leadership, takes no
// more clients and moves its own; clients of the others notice nothing.
func TestDrain(t *testing.T) {
	t.Parallel()
	members, _ := startMembers(t, []uint8{1, 2, 3}, "")
	for _, s := range members {
		await(t, "the members to be ready", func() bool { ok, _ := s.Ready(); return ok })
	}
	leads := members[int(members[0].replica.Leader())-1]
	stays := members[int(leads.cfg.Cluster.ID)%3]
	moved, kept := dialReal(t, leads), dialReal(t, stays)
	moved.connect(10 * time.Second)
	kept.connect(10 * time.Second)
	absent := members[(int(leads.cfg.Cluster.ID)+1)%3]
	if err := absent.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		leads.Drain(t.Context(), time.Minute)
	}()
	await(t, "the member to be told no", func() bool {
		a := stays.Ops().Stoppable(t.Context(), false)
		return strings.Contains(a.Reason, "does not answer")
	})
	moved.call(wire.OpCreate, create("/while-it-waits", nil, wire.ModePersistent))
	if ok, why := leads.Ready(); !ok {
		t.Errorf("while it waits: %s", why)
	}
	back, err := Start(absent.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it waits although the others can do without it")
	}
	if !back.replica.Joined() {
		t.Error("it left before the other one had caught up")
	}
	moved.expectClosed()
	if ok, _ := leads.Ready(); ok || stays.replica.Leader() == leads.replica.ID() {
		t.Errorf("ready: %v, member %d leads", ok, stays.replica.Leader())
	}
	if c, err := net.Dial("tcp", leads.ClientAddr().String()); err == nil {
		_ = c.Close()
		t.Error("it takes clients")
	}
	kept.call(wire.OpCreate, create("/afterwards", nil, wire.ModePersistent))
}

// When all members are told to stop, they do not wait for each other.
func TestDrainOfAll(t *testing.T) {
	t.Parallel()
	members, _ := startMembers(t, []uint8{1, 2, 3}, "")
	for _, s := range members {
		await(t, "the members to be ready", func() bool { ok, _ := s.Ready(); return ok })
	}
	var wg sync.WaitGroup
	begin := time.Now()
	for _, s := range members {
		wg.Go(func() {
			s.Drain(t.Context(), 2*patience)
			_ = s.Close()
		})
	}
	wg.Wait()
	if took := time.Since(begin); took > patience {
		t.Errorf("it took %v", took)
	}
}

// A super user, and nobody else, moves a share of the clients to other members.
func TestShedCommand(t *testing.T) {
	s := startReal(t, superSettings)
	for range 4 {
		dialReal(t, s).connect(10 * time.Second)
	}
	addr := s.HTTPAddr().String()
	for _, tt := range []struct {
		method, path, auth string
		status             int
		body               string
	}{
		{http.MethodPost, "/commands/shed?percentage=50", "", http.StatusUnauthorized, "Auth info is missing"},
		{http.MethodPost, "/commands/shed?percentage=50", "digest super:wrong", http.StatusForbidden, ""},
		{http.MethodGet, "/commands/shed?percentage=50", superAuth, http.StatusMethodNotAllowed, ""},
		{http.MethodPost, "/commands/shed?percentage=101", superAuth, http.StatusBadRequest, "from 0 to 100"},
		{http.MethodPost, "/commands/shed", superAuth, http.StatusBadRequest, "from 0 to 100"},
		{http.MethodPost, "/commands/shed?percentage=50", superAuth, http.StatusOK, `"connections_shed" : 2`},
		{http.MethodPost, "/commands/shed_connections?percentage=100", superAuth, http.StatusOK, `"connections_shed" : 2`},
	} {
		status, body := askAdmin(t, tt.method, addr, tt.path, tt.auth)
		if status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, status, body, tt.status, tt.body)
		}
	}
}
