package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/recipes"
	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

// TestHistoryAndSessions: the output of the two commands for a lock that was held and released.
func TestHistoryAndSessions(t *testing.T) {
	t.Parallel()
	m, err := server.Start(server.Config{
		Client:   zoocfg.Client{Addr: "127.0.0.1:0"},
		HTTP:     zoocfg.HTTP{Addr: "127.0.0.1:0"},
		Data:     zoocfg.Data{Dir: t.TempDir()},
		Sessions: zoocfg.Sessions{TickTime: 500 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := recipes.Connect(recipes.Config{Servers: []string{m.ClientAddr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g, err := recipes.NewMutex(s, "/jobs/nightly", recipes.MutexOptions{Note: "monthly report"}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("0x%x", uint64(s.Conn().SessionID()))
	at := m.HTTPAddr().String()
	has := func(parts []string, args ...string) {
		t.Helper()
		status, stdout, stderr := invoke(args...)
		for _, part := range parts {
			if status != exitOK || !strings.Contains(stdout, part) {
				t.Errorf("%v: status %d, %q is not in %q %s", args, status, part, stdout, stderr)
			}
		}
	}
	has([]string{"holds it", id, "monthly report", "since then this member has run"}, "locks", "-http", at, "-history", "/jobs/nightly")
	has([]string{id, "1 ephemerals"}, "sessions", "-http", at)
	has([]string{id, "holds /jobs/nightly", "ephemeral /jobs/nightly/"}, "sessions", "-http", "http://"+at+"/", id)
	if err := g.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	has([]string{"released", id}, "locks", "-http", at, "-history", "/jobs/nightly")
	has([]string{`"end":"released"`}, "locks", "-http", at, "-history", "-json", "/jobs/nightly")
	has([]string{"nobody has held it"}, "locks", "-http", at, "-history", "/jobs/daily")
	for _, tt := range []struct {
		status int
		says   string
		args   []string
	}{
		{exitFailed, "there is no session", []string{"sessions", "-http", at, "0x99"}},
		{exitFailed, "should be a session", []string{"sessions", "-http", at, "x"}},
		{exitFailed, "no member serves HTTP", []string{"sessions", "-http", "127.0.0.1:1"}},
		{exitUsage, "one lock", []string{"locks", "-history"}},
	} {
		if status, _, stderr := invoke(tt.args...); status != tt.status || !strings.Contains(stderr, tt.says) {
			t.Errorf("%v: status %d, %s", tt.args, status, stderr)
		}
	}
}
