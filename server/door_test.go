package server

import (
	"io"
	"net/http"
	"testing"
	"time"

	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// askDoor sends a request to the HTTP port and returns the status of the answer.
func askDoor(t *testing.T, s *Server, method, path string, change func(*http.Request)) int {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+s.HTTPAddr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestDoorTurnsAwayForeignPages: a page of another site reaches no handler, neither by the name of
// its own server, pointed at this member, nor by the browser's request for it.
//
// Defends: C9.
func TestDoorTurnsAwayForeignPages(t *testing.T) {
	s := startReal(t, superSettings)
	for _, path := range []string{"/commands/dump", "/commands", "/members", "/api/v1/locks", "/api/v1/events", "/", "/commands/icfg"} {
		if status := askDoor(t, s, "GET", path, func(r *http.Request) { r.Host = "evil.example:8080" }); status != http.StatusMisdirectedRequest {
			t.Errorf("%s by a foreign name: status %d", path, status)
		}
		want := http.StatusForbidden
		if path == "/" {
			want = http.StatusOK // a link leads to it
		}
		for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"} {
			if status := askDoor(t, s, "GET", path, func(r *http.Request) { r.Header.Set(header, value) }); status != want {
				t.Errorf("%s with %s: status %d", path, header, status)
			}
		}
	}
	if status := askDoor(t, s, "POST", "/leader", func(r *http.Request) { r.Header.Set("Origin", "null") }); status != http.StatusForbidden {
		t.Errorf("POST /leader: status %d", status)
	}
	if status := askDoor(t, s, "GET", "/live", func(r *http.Request) { r.Host = "probe.example" }); status != http.StatusOK {
		t.Errorf("a probe by another name: status %d", status)
	}
}

// TestDoorLimitsGuesses: after some wrong passwords of the super user an address has to wait, and
// the right one is not taken meanwhile; other logins do not count.
//
// Defends: C9.
func TestDoorLimitsGuesses(t *testing.T) {
	s := startReal(t, superSettings)
	ask := func(auth string) int {
		return askDoor(t, s, "GET", "/api/v1/whoami", func(r *http.Request) { r.Header.Set("Authorization", auth) })
	}
	for range 3 * door.GuessesAtOnce {
		if status := ask("digest alice:any"); status != http.StatusOK {
			t.Fatalf("a login of a client: status %d", status)
		}
	}
	taken := 0
	for range 5 * door.GuessesAtOnce {
		if ask("digest super:guess") == http.StatusOK {
			taken++
		}
	}
	if taken < door.GuessesAtOnce || taken > 2*door.GuessesAtOnce {
		t.Errorf("%d guesses were looked at", taken)
	}
	if status := ask(asSuper); status != http.StatusTooManyRequests {
		t.Errorf("the right password after many guesses: status %d", status)
	}
	if status := ask(""); status != http.StatusOK {
		t.Errorf("without a login: status %d", status)
	}
}

// TestDoorAsksReaders: with admin.requireLogin nothing of the state is read without a login, on the
// port for metrics too; probes and the page need none.
//
// Defends: C9.
func TestDoorAsksReaders(t *testing.T) {
	s := startReal(t, func(c *Config) {
		superSettings(c)
		c.HTTP.Login = true
		c.HTTP.ViewerDigest = "viewer:" + c.Auth.SuperDigest // no digest of anybody
	})
	for auth, want := range map[string]int{"": http.StatusUnauthorized, "digest a:b": http.StatusForbidden, asSuper: http.StatusOK} {
		for _, path := range []string{"/commands/monitor", "/members", "/api/v1/cluster"} {
			if status := askDoor(t, s, "GET", path, func(r *http.Request) { r.Header.Set("Authorization", auth) }); status != want {
				t.Errorf("%s with %q: status %d, want %d", path, auth, status, want)
			}
		}
	}
	for path, want := range map[string]int{"/live": 200, "/ready": 200, "/stoppable": 503, "/": 200, "/fence": 400} {
		if status := askDoor(t, s, "GET", path, func(*http.Request) {}); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
}

// TestAnswersCountAsMemory: answers that nobody receives hold a part of maxClientMemory at most,
// others are refused meanwhile, and the memory is free when their clients have left.
//
// Defends: C9.
func TestAnswersCountAsMemory(t *testing.T) {
	s := startReal(t, superSettings)
	m := s.surfaces.shared.Door
	most := s.cfg.Limits.Memory / 4
	if m.Hold(most + 1) {
		t.Error("an answer may take everything")
	}
	if !m.Hold(most) {
		t.Fatal("no answer may be held")
	}
	none := func(*http.Request) {}
	if status := askDoor(t, s, "GET", "/api/v1/node?path=/", none); status != http.StatusServiceUnavailable {
		t.Errorf("beside answers that take all memory: status %d", status)
	}
	m.Release(most)
	if status := askDoor(t, s, "GET", "/api/v1/node?path=/", none); status != http.StatusOK {
		t.Errorf("afterwards: status %d", status)
	}
	if !m.Hold(most) {
		t.Error("bytes are held for nobody")
	}
}

// TestStreamsLeaveRoomForProbes: streams of an address never stop its probes.
//
// Defends: C9.
func TestStreamsLeaveRoomForProbes(t *testing.T) {
	s := startReal(t, superSettings)
	streams := 0
	for range 2 * s.cfg.HTTP.ConnsPerAddr {
		resp, err := (&http.Client{Transport: &http.Transport{}}).Get("http://" + s.HTTPAddr().String() + "/api/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			streams++
		}
	}
	if want := s.cfg.HTTP.ConnsPerAddr - door.ProbeConnsPerAddr; streams != want {
		t.Errorf("%d streams, want %d", streams, want)
	}
	for path, want := range map[string]int{"/live": 200, "/ready": 200, "/stoppable": 503, "/fence?lock=/x&token=1": 409} {
		resp, err := http.Get("http://" + s.HTTPAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		// The next probe uses the same connection if this answer is read to its end. The member may
		// count others as being served for a moment longer than their clients need them.
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s beside streams: status %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// CVE-2024-51504: nobody vouches for the address of a request. Who may read by address is whoever
// has the address, and not whoever names it in a header.
func TestNobodyVouchesForAnAddress(t *testing.T) {
	s := startReal(t, superSettings)
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	for path, addr := range map[string]string{"/near": "127.0.0.1", "/far": "10.1.2.3"} {
		c.call(wire.OpCreate, &wire.CreateRequest{Path: path, Data: []byte("x"),
			ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "ip", ID: addr}}}})
	}
	for _, header := range []string{"", "X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP", "True-Client-IP"} {
		vouch := func(r *http.Request) {
			value := "10.1.2.3"
			if header == "Forwarded" {
				value = "for=" + value
			}
			r.Header.Set(header, value)
			r.Header.Set("X-Forwarded-Host", "10.1.2.3")
		}
		if header == "" {
			vouch = func(*http.Request) {}
		}
		for path, want := range map[string]int{"/near": http.StatusOK, "/far": http.StatusForbidden} {
			if status := askDoor(t, s, "GET", "/api/v1/node?path="+path, vouch); status != want {
				t.Errorf("%s with %q: status %d, want %d", path, header, status, want)
			}
		}
		if status := askDoor(t, s, "GET", "/commands/snapshot", vouch); status != http.StatusUnauthorized {
			t.Errorf("a snapshot with %q: status %d", header, status)
		}
	}
}

// CVE-2025-58457: the right to read or to change every node is not the right to take all of them or
// to replace them. The super user has it, and no password of anybody else's.
func TestSnapshotsAreForTheSuperUser(t *testing.T) {
	viewer, err := zoocfg.Digest("", "viewer", "see")
	if err != nil {
		t.Fatal(err)
	}
	s := startReal(t, func(c *Config) {
		restorable(c)
		c.HTTP.ViewerDigest = viewer
	})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	c.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("ann:pw")})
	c.call(wire.OpSetACL, wire.SetACLRequest{Path: "/", Version: -1, ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}})
	c.call(wire.OpCreate, create("/mine", nil, wire.ModePersistent))
	for auth, want := range map[string]int{"": http.StatusUnauthorized, "digest ann:pw": http.StatusForbidden,
		"digest viewer:see": http.StatusForbidden, "digest super:guess": http.StatusForbidden, "Basic c3VwZXI6dGVzdA==": http.StatusForbidden} {
		for path, method := range map[string]string{"snapshot": "GET", "snap": "GET", "snapshot?streaming=false": "GET", "restore": "POST", "rest": "POST"} {
			if status := askDoor(t, s, method, "/commands/"+path, func(r *http.Request) { r.Header.Set("Authorization", auth) }); status != want {
				t.Errorf("%s with %q: status %d, want %d", path, auth, status, want)
			}
		}
	}
	c.call(wire.OpExists, wire.PathWatchRequest{Path: "/mine"})
}
