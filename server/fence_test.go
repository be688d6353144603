package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
	"lockkeeper/locknode"
	"lockkeeper/server/ops"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// askFence asks over HTTP, as any program would.
func askFence(t *testing.T, s *Server, query url.Values, auth string) (int, ops.FenceAnswer, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s/fence?%s", s.HTTPAddr(), query.Encode()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		ops.FenceAnswer
		Error string
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body.FenceAnswer, body.Error
}

// endpoints are the plain endpoints of a member that need not have an HTTP port.
func endpoints(s *Server) http.Handler {
	mux := http.NewServeMux()
	ops.NewEndpoints(s.surfaces.shared, s.stopping).Register(mux)
	return mux
}

func about(lock string, token int64) url.Values {
	return url.Values{"lock": {lock}, "token": {fmt.Sprint(token)}}
}

// contend makes a node of a queue and returns its path and its token.
func contend(t *testing.T, c *rawClient, lock, kind string) (path string, token int64) {
	t.Helper()
	var made wire.Create2Response
	if err := wire.Decode(c.call(wire.OpCreate2, create(lock+"/"+kind, nil, wire.ModeEphemeralSequential)), &made); err != nil {
		t.Fatal(err)
	}
	return made.Path, int64(made.Stat.Czxid)
}

func TestFence(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) { c.HTTP.Addr = "127.0.0.1:0" })
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	check := func(lock string, token int64, status int, newest int64, reason string) {
		t.Helper()
		got, a, _ := askFence(t, s, about(lock, token), "")
		if got != status || a.Valid != (status == http.StatusOK) || a.Newest != newest || !strings.Contains(a.Reason, reason) || (reason == "") != (a.Reason == "") {
			t.Errorf("%s, token %d: %d %+v", lock, token, got, a)
		}
	}
	check("/m", 5, http.StatusConflict, 0, "no such lock")
	c.call(wire.OpCreate, create("/m", nil, wire.ModePersistent))
	c.call(wire.OpCreate, create("/m/no-contender", nil, wire.ModePersistent))
	first, one := contend(t, c, "/m", "_c_0123-lock-")
	_, two := contend(t, c, "/m", "fed__lock__")
	check("/m", one, http.StatusOK, one, "")
	check("/m", two, http.StatusConflict, one, "behind _c_0123-lock-0000000001")
	check("/m", two+1, http.StatusConflict, one, "no node of the lock has this token")
	if _, a, _ := askFence(t, s, about("/m", one), ""); a.Node != first || a.Session != ops.Hex(c.id.SessionID) || a.Lock != "/m" || a.Token != one {
		t.Errorf("%+v", a)
	}
	c.call(wire.OpDelete, &wire.DeleteRequest{Path: first, Version: -1})
	check("/m", one, http.StatusConflict, two, "released the lock, or lost it")
	check("/m", two, http.StatusOK, two, "")

	// Readers share, and contenders behind a writer wait.
	c.call(wire.OpCreate, create("/rw", nil, wire.ModePersistent))
	_, r1 := contend(t, c, "/rw", "a__READ__")
	_, r2 := contend(t, c, "/rw", "b__rlock__")
	_, w := contend(t, c, "/rw", "c__WRIT__")
	_, r3 := contend(t, c, "/rw", "d__READ__")
	check("/rw", r1, http.StatusOK, r1, "")
	check("/rw", r2, http.StatusOK, r1, "")
	check("/rw", w, http.StatusConflict, r1, "behind")
	check("/rw", r3, http.StatusConflict, r1, "behind c__WRIT__")

	// A lock may be one node.
	var made wire.Create2Response
	if err := wire.Decode(c.call(wire.OpCreate2, create("/one", nil, wire.ModeEphemeral)), &made); err != nil {
		t.Fatal(err)
	}
	check("/one", int64(made.Stat.Czxid), http.StatusOK, int64(made.Stat.Czxid), "")
	check("/one", 1, http.StatusConflict, int64(made.Stat.Czxid), "another has the lock")

	for _, bad := range []url.Values{{}, about("", 5), about("relative", 5), about("/m", 0), about("/m", -1), {"lock": {"/m"}, "token": {"x"}}} {
		if status, _, text := askFence(t, s, bad, ""); status != http.StatusBadRequest || text == "" {
			t.Errorf("%v: %d %q", bad, status, text)
		}
	}
}

// TestFenceOfSemaphores: the holder of a lease is told from who waits for one, whichever of the
// paths that a program may have the question names.
func TestFenceOfSemaphores(t *testing.T) {
	s := startReal(t, func(c *Config) { c.HTTP.Addr = "127.0.0.1:0" })
	session := func() *rawClient {
		c := dialReal(t, s)
		c.connect(10 * time.Second)
		return c
	}
	holder, next := session(), session()
	check := func(about string, lock string, token int64, valid bool, newest int64, reason string) {
		t.Helper()
		status, a, _ := askFence(t, s, url.Values{"lock": {lock}, "token": {fmt.Sprint(token)}}, "")
		if a.Valid != valid || (status == http.StatusOK) != valid || a.Newest != newest || !strings.Contains(a.Reason, reason) {
			t.Errorf("%s, %s: %d %+v", about, lock, status, a)
		}
	}
	for _, path := range []string{"/s", "/s/leases", "/s/locks", "/k", "/k-__lock__", "/own", "/own/leases"} {
		holder.call(wire.OpCreate, create(path, nil, wire.ModePersistent))
	}
	// Curator's: who is next has made its lease, and keeps its place until the lease is its own.
	held, one := contend(t, holder, "/s/leases", "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lease-")
	place, queued := contend(t, next, "/s/locks", "_c_34c73d33-a364-4285-8dd6-8b05f149fed8-lock-")
	lease, two := contend(t, next, "/s/leases", "_c_34c73d33-a364-4285-8dd6-8b05f149fed7-lease-")
	for _, lock := range []string{"/s", "/s/leases", "/s/locks", held} {
		check("the holder", lock, one, true, one, "")
	}
	for _, lock := range []string{"/s", "/s/leases", "/s/locks", lease} {
		check("the next", lock, two, false, one, "waits for a lease")
		check("its place", lock, queued, false, one, "waits for a lease")
	}
	next.call(wire.OpDelete, &wire.DeleteRequest{Path: place, Version: -1})
	check("the next has its lease", "/s", two, true, one, "")

	// kazoo's: a lease is a child of the path, and those who wait have a lock beside it.
	const kazoo = "b7bfcd3227404d3880a0eccd4e5100c"
	var made wire.Create2Response
	if err := wire.Decode(holder.call(wire.OpCreate2, create("/k/"+kazoo+"1", nil, wire.ModeEphemeral)), &made); err != nil {
		t.Fatal(err)
	}
	token := int64(made.Stat.Czxid)
	_, behind := contend(t, next, "/k-__lock__", kazoo+"2__lock__")
	for _, lock := range []string{"/k", "/k-__lock__", made.Path} {
		check("kazoo's holder", lock, token, true, token, "")
		check("who waits for it", lock, behind, false, token, "waits for a lease")
	}

	// A lock of its own may be called like a queue of a semaphore.
	_, own := contend(t, holder, "/own/leases", "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-")
	check("a lock that is called leases", "/own/leases", own, true, own, "")
	check("somebody else's token", "/s", own, false, one, "no node of the lock")
}

// TestFenceNeedsRead: HTTP does not show nodes that a client may not read.
func TestFenceNeedsRead(t *testing.T) {
	s := startReal(t, func(c *Config) { c.HTTP.Addr = "127.0.0.1:0" })
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	c.call(wire.OpAuth, &wire.AuthPacket{Scheme: "digest", Auth: []byte("me:secret")})
	lock := create("/mine", nil, wire.ModePersistent)
	lock.ACL = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}
	c.call(wire.OpCreate, lock)
	_, token := contend(t, c, "/mine", "lock-")
	for auth, want := range map[string]int{
		"": http.StatusForbidden, "digest me:wrong": http.StatusForbidden, "Basic me:secret": http.StatusForbidden, "digest me:secret": http.StatusOK,
	} {
		if status, _, _ := askFence(t, s, about("/mine", token), auth); status != want {
			t.Errorf("%q: %d, want %d", auth, status, want)
		}
	}
}

// TestFenceWithoutLeader: a member that cannot know says so.
func TestFenceWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoneMember(t, simnet.New(simnet.Config{}))
		defer s.Close()
		w := httptest.NewRecorder()
		endpoints(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/fence?lock=/m&token=5", nil))
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no leader") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// TestHTTPKeys: HTTP is served where the file asks for it, and only there.
func TestHTTPKeys(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "admin.enableServer=true": ":8080", "admin.serverPort=9000": ":9000",
		"admin.serverAddress=127.0.0.1": "127.0.0.1:8080", "admin.serverAddress=127.0.0.1\nadmin.enableServer=false": "",
		"admin.enableServer=false\nadmin.serverPort=9000":          "",
		"zookeeper.admin.serverPort=9000\nadmin.serverAddress=::1": "[::1]:9000",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "zoo.cfg")
		if err := os.WriteFile(file, []byte("clientPort=2181\ndataDir="+dir+"\n"+text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := LoadConfig(file)
		if err != nil || c.HTTP.Addr != want {
			t.Errorf("%q: %q, %v; want %q", text, c.HTTP.Addr, err, want)
		}
	}
}

// TestFenceOnEveryMember: each member knows the updates that were answered by another one.
func TestFenceOnEveryMember(t *testing.T) {
	checkGoroutines(t)
	members, _ := startCluster(t, "")
	for _, s := range members {
		awaitServing(t, s)
	}
	ask := func(s *Server, lock string, token int64) int {
		w := httptest.NewRecorder()
		endpoints(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/fence?"+about(lock, token).Encode(), nil))
		return w.Code
	}
	c := dialReal(t, members[0])
	c.connect(40 * time.Second)
	c.call(wire.OpCreate, create("/m", nil, wire.ModePersistent))
	for range 20 {
		path, token := contend(t, c, "/m", "lock-")
		for i, s := range members {
			if status := ask(s, "/m", token); status != http.StatusOK {
				t.Errorf("member %d does not know of a holder: %d", i+1, status)
			}
		}
		c.call(wire.OpDelete, &wire.DeleteRequest{Path: path, Version: -1})
		for i, s := range members {
			if status := ask(s, "/m", token); status != http.StatusConflict {
				t.Errorf("member %d takes somebody for the holder who has released the lock: %d", i+1, status)
			}
		}
	}
}

// TestFenceAgreesWithLocks: on random directories, GET /fence tells of each contender the same as
// package locknode does for `lockkeeper locks`, by the paths of its lock, its queue and its node.
func TestFenceAgreesWithLocks(t *testing.T) {
	s := startReal(t, func(c *Config) { c.HTTP.Addr = "127.0.0.1:0" })
	sessions := make([]*rawClient, 3)
	for i := range sessions {
		sessions[i] = dialReal(t, s)
		sessions[i].connect(30 * time.Second)
	}
	const uuid = "b7bfcd3227404d3880a0eccd4e5100c"
	names := []string{"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-", "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lease-",
		"a__READ__", "b__WRIT__", uuid + "1__lock__", uuid + "2__rlock__", "x-72057594037927937-", "n_", "other-"}
	for round := range 40 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		lock := fmt.Sprint("/f", round)
		dirs := []string{lock}
		for _, dir := range []string{lock + "/leases", lock + "/locks", lock + "-__lock__"} {
			if rng.IntN(2) == 0 {
				dirs = append(dirs, dir)
			}
		}
		for _, dir := range dirs {
			sessions[0].call(wire.OpCreate, create(dir, nil, wire.ModePersistent))
		}
		for range rng.IntN(10) {
			c, dir := sessions[rng.IntN(len(sessions))], dirs[rng.IntN(len(dirs))]
			if rng.IntN(8) == 0 {
				c.call(wire.OpCreate, create(fmt.Sprintf("%s/%032x", dir, rng.Uint64()), nil, wire.ModeEphemeral))
				continue
			}
			c.call(wire.OpCreate, create(dir+"/"+names[rng.IntN(len(names))], nil, wire.ModeEphemeralSequential))
		}
		for at, queue := range locksBelow(s, lock) {
			for _, c := range queue {
				for _, path := range []string{at, c.Path, c.Path + "/" + c.Node} {
					if status, a, why := askFence(t, s, about(path, c.Token), ""); status != http.StatusOK && status != http.StatusConflict || a.Valid != c.Held {
						t.Errorf("seed %d: %s of %s/%s: %d %+v, %s; locknode says held: %t", seed, path, c.Path, c.Node, status, a, why, c.Held)
					}
				}
			}
		}
	}
}

// locksBelow are the locks with a prefix, as package locknode judges all nodes of the state.
func locksBelow(s *Server, prefix string) map[string][]locknode.Contender {
	queues := map[string][]locknode.Contender{}
	s.replica.View(func(store *znode.Store) {
		isSemaphore := func(path string) bool {
			_, is := store.Node(locknode.LeasesPath(path))
			return is
		}
		for n := range store.AllNodes() {
			dir, name := locknode.Split(n.Path)
			if lock, plain := locknode.Place(n.Path, isSemaphore); n.Session != 0 && !plain && strings.HasPrefix(n.Path, prefix) {
				queues[lock] = append(queues[lock], locknode.New(dir, name, int64(n.Session), time.UnixMilli(n.CtimeMs), int64(n.Czxid), n.Data))
			}
		}
	})
	for lock, queue := range queues {
		queues[lock] = locknode.Resolve(locknode.Sorted(lock, queue))
	}
	return queues
}
