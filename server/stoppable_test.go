package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// askStoppable asks a member over HTTP whether it may be stopped.
func askStoppable(t *testing.T, s *Server, query string) (status int, a Stoppable) {
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
	members, _ := startMembers(t, []uint8{1, 2, 3}, "admin.enableServer=true\nadmin.serverAddress=127.0.0.1\nadmin.serverPort=FREE_PORT\n")
	for _, s := range members {
		await(t, "the members to be ready", func() bool { ok, _ := s.Ready(); return ok })
	}
	dialReal(t, members[0]).connect(10 * time.Second)
	for _, s := range members { // a new leader says no for a moment
		if status, a := askStoppable(t, s, "?reserve=false&wait=10s"); status != http.StatusOK || !a.Stoppable || a.HoldsMs != 0 {
			t.Fatalf("a look at member %d: %d %+v", s.cfg.ID, status, a)
		}
	}
	status, a := askStoppable(t, members[0], "?wait=10s")
	if status != http.StatusOK || !a.Stoppable || a.HoldsMs < 1000 || a.Sessions != 1 || a.Member != 1 {
		t.Fatalf("member 1: %d %+v", status, a)
	}
	var word Stoppable
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
	s := startReal(t, func(c *Config) { c.HTTPAddr = "127.0.0.1:0" })
	begin := time.Now()
	status, a := askStoppable(t, s, "?wait=1m")
	if want := (Stoppable{Member: s.cfg.ID, Reason: "it stands alone: nobody else serves its clients", Hopeless: true}); a != want {
		t.Errorf("%d %+v, want %+v", status, a, want)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("it took %v", took)
	}
	if status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
}
