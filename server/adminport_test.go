package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
)

// superSettings make super:test the super user, over HTTP too.
func superSettings(c *Config) {
	c.Auth.SuperDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
	c.HTTP.Addr = "127.0.0.1:0"
}

const superAuth = "digest super:test"

// askAdmin sends a request to an HTTP port.
func askAdmin(t *testing.T, method, addr, path, auth string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+addr+path, nil)
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
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// adminCommands are the commands that are compared as texts, with their aliases.
var adminCommands = []string{
	"configuration", "conf", "config", "connections", "cons", "dirs", "dump", "get_trace_mask", "gtmk",
	"is_read_only", "isro", "last_snapshot", "lsnp", "leader", "lead", "observers", "obsr", "ruok", "server_stats", "srvr",
	"stats", "stat", "voting_view", "watch_summary", "wchs", "watches", "wchc", "watches_by_path", "wchp", "zabstate",
	"set_trace_mask", "stmk?traceMask=x", "stmk?traceMask=12", "gtmk", "connection_stat_reset", "crst", "stat_reset", "srst",
	"observer_connection_stat_reset", "orst", "nonesuch", "a/b", "",
}

// adminShape is an answer without its particular values.
func adminShape(text string) string {
	text = adminVersion.ReplaceAllString(text, `"version" : ""`)
	text = adminDir.ReplaceAllString(text, `"$1" : ""`)
	text = adminRole.ReplaceAllString(text, `"$1" : role`)
	text = adminOptional.ReplaceAllString(text, "")
	text = adminClient.ReplaceAllString(text, `"client_address" : ""`)
	text = adminWildcard.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "localhost", "127.0.0.1")
	text = adminHex.ReplaceAllString(text, `"$1" : "N"`)
	return regexp.MustCompile(`N\.N\.N\.N`).ReplaceAllString(numbers.ReplaceAllString(text, "N"), "ip")
}

var (
	adminVersion = regexp.MustCompile(`"version" : "[^"]*"`)
	adminDir     = regexp.MustCompile(`"(data_dir|data_log_dir)" : "[^"]*"`)
	adminHex     = regexp.MustCompile(`"(zxid|last_zxid)" : "[^"]*"`)
	adminRole    = regexp.MustCompile(`"(server_state)" : "(leader|follower)"`)
	// Fields of a ZooKeeper leader's connections to observers.
	adminOptional = regexp.MustCompile(`(?m),\n    "established" : \d+,\n    "queued_packets" [^}]*"last_zxid" : \d+$`)
	// A member knows its own and those in the server lines.
	adminClient = regexp.MustCompile(`"client_address" : "[^"]*"`)
	// ZooKeeper's buckets of sessions that expire at the same time may be empty.
	adminWildcard = regexp.MustCompile(`(?m)^    "\d+" : \[ \],?\n`)
)

// sortedFields are the lines of an answer in the order of their texts.
func sortedFields(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, ",\n", "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func compareAdmin(t *testing.T, theirs, ours string) {
	t.Helper()
	for _, name := range adminCommands {
		path := "/commands/" + name
		theirStatus, theirText := askAdmin(t, http.MethodGet, theirs, path, "")
		status, text := askAdmin(t, http.MethodGet, ours, path, superAuth)
		want, got := adminShape(theirText), adminShape(text)
		if strings.Contains(want, `"server_stats" : {`) || strings.Contains(want, `"quorum_address" : {`) {
			want, got = sortedFields(want), sortedFields(got) // Java has them in any order
		}
		if want != got || theirStatus != status {
			if name == "" { // these came later
				got = strings.NewReplacer("<a href=\"/commands/restore\">restore</a>\n<br/>\n", "",
					"<a href=\"/commands/shed_connections\">shed_connections</a>\n<br/>\n", "",
					"<a href=\"/commands/snapshot\">snapshot</a>\n<br/>\n", "").Replace(got)
			}
			if want != got || theirStatus != status {
				t.Errorf("%s: ZooKeeper %d\n%s\nlockkeeper %d\n%s", name, theirStatus, theirText, status, text)
			}
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		theirStatus, _ := askAdmin(t, method, theirs, "/commands/ruok", "")
		if status, _ := askAdmin(t, method, ours, "/commands/ruok", ""); status != theirStatus {
			t.Errorf("%s: ZooKeeper %d, lockkeeper %d", method, theirStatus, status)
		}
	}
	keys := func(addr, name string) (keys []string) {
		_, text := askAdmin(t, http.MethodGet, addr, "/commands/"+name, superAuth)
		var all map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		for line := range strings.Lines(text) {
			if key, _, ok := strings.Cut(line, `" : `); ok {
				keys = append(keys, strings.Trim(key, ` "`))
			}
		}
		return keys
	}
	inOrder := func(name string, own func(string) bool) {
		their, our := keys(theirs, name), keys(ours, name)
		at := -1
		for _, key := range our {
			// ZooKeeper's monitor is in the order of a hash table.
			i := slices.Index(their, key)
			if i < 0 && !own(key) {
				t.Errorf("%s: ZooKeeper has no %s", name, key)
			} else if i >= 0 && i < at && name != "monitor" {
				t.Errorf("%s: %s is out of its place", name, key)
			}
			at = max(at, i)
		}
		if want := their[:2]; name == "monitor" && !slices.Equal(our[:2], want) || !slices.Equal(our[len(our)-2:], their[len(their)-2:]) {
			t.Errorf("%s begins with %v and ends with %v", name, our[:2], our[len(our)-2:])
		}
	}
	inOrder("environment", func(key string) bool { return key == "go.version" })
	inOrder("system_properties", func(key string) bool { return key == "go.version" || strings.HasPrefix(key, "zookeeper.") })
	inOrder("initial_configuration", func(string) bool { return false })
	inOrder("hash", func(key string) bool { return key == "zxid" || key == "digest" })
	inOrder("monitor", func(key string) bool {
		return isOwnMetric(key)
	})
}

// useBoth has the same traffic at both addresses, of clients that stay.
func useBoth(t *testing.T, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(patience))
		c := &rawClient{Conn: nc, t: t}
		c.connect(10 * time.Second)
		c.call(wire.OpCreate, create("/e", []byte("data"), wire.ModeEphemeral))
		c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/e", Watch: true})
		c.call(wire.OpGetChildren, &wire.PathWatchRequest{Path: "/", Watch: true})
	}
}

// TestAdminAgainstZooKeeper compares the commands of the HTTP port with a real ZooKeeper's, as
// texts: the same fields in the same order, with values of the same kind.
func TestAdminAgainstZooKeeper(t *testing.T) {
	zk, zkAdmin := fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	startZooKeeperAt(t, zk, "", adminLines(zkAdmin))
	awaitZooKeeper(t, zk)
	s := startReal(t, superSettings)
	useBoth(t, zk, s.ClientAddr().String())
	// After the same traffic, the sizes of replies are equal too.
	sizes := func(addr string) []string {
		_, text := askAdmin(t, http.MethodGet, addr, "/commands/server_stats", "")
		return responseSize.FindAllString(text, -1)
	}
	if theirs, ours := sizes(zkAdmin), sizes(s.HTTPAddr().String()); len(ours) != 6 || !slices.Equal(theirs, ours) || strings.Contains(ours[0], "-") {
		t.Errorf("sizes of replies: ZooKeeper %v, lockkeeper %v", theirs, ours)
	}
	compareAdmin(t, zkAdmin, s.HTTPAddr().String())
}

var responseSize = regexp.MustCompile(`"(last|min|max)_buffer_size" : -?\d+`)

func adminLines(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return "admin.serverAddress=" + host + "\nadmin.serverPort=" + port + "\n"
}

// TestAdminAgainstZooKeeperCluster does the same with a leader and a follower of a cluster of two
// voters and an observer.
func TestAdminAgainstZooKeeperCluster(t *testing.T) {
	lines := ""
	for id := range 3 {
		lines += fmt.Sprintf("server.%d=127.0.0.1:%d:%d%s\n", id+1, freePort(t), freePort(t), []string{"", "", ":observer"}[id])
	}
	var zk, zkAdmin []string
	for id := range 3 {
		zk, zkAdmin = append(zk, fmt.Sprintf("127.0.0.1:%d", freePort(t))), append(zkAdmin, fmt.Sprintf("127.0.0.1:%d", freePort(t)))
		more := "initLimit=10\nsyncLimit=5\n" + lines + adminLines(zkAdmin[id])
		if id == 2 {
			more += "peerType=observer\n"
		}
		startZooKeeperAt(t, zk[id], fmt.Sprint(id+1), more)
	}
	ours := ""
	for id := range 3 {
		ours += fmt.Sprintf("server.%d=127.0.0.1:%d:%d%s\n", id+1, freePort(t), freePort(t), []string{"", "", ":observer"}[id])
	}
	var members []*Server
	for id := range 3 {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "myid"), fmt.Sprint(id+1))
		// ZooKeeper has its default of tickTime, and all ports are of loopback here too.
		cfg := mustLoad(t, filepath.Join(dir, "zoo.cfg"), "clientPortAddress=127.0.0.1\nclientPort=%d\ndataDir=%s\ninitLimit=10\nsyncLimit=5\n%s",
			freePort(t), dir, ours)
		cfg.Logger = testLogger()
		superSettings(&cfg)
		s, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		members = append(members, s)
	}
	find := func(what, leads string, ask func(i int) string) (found int) {
		found = -1
		await(t, what, func() bool {
			for i := range 2 {
				if strings.Contains(ask(i), `"is_leader" : `+leads) {
					found = i
				}
			}
			return found >= 0
		})
		return found
	}
	for i := range 3 {
		awaitZooKeeper(t, zk[i])
		awaitServing(t, members[i])
	}
	await(t, "the observers", func() bool {
		synced := 0
		for i := range 2 {
			for _, addr := range []string{zkAdmin[i], members[i].HTTPAddr().String()} {
				if _, text := askAdmin(t, http.MethodGet, addr, "/commands/observers", ""); strings.Contains(text, `"synced_observers" : 1`) {
					synced++
				}
			}
		}
		return synced == 2
	})
	for _, leads := range []string{"true", "false"} {
		their := find("ZooKeeper", leads, func(i int) string {
			_, text := askAdmin(t, http.MethodGet, zkAdmin[i], "/commands/leader", "")
			return text
		})
		our := find("lockkeeper", leads, func(i int) string {
			_, text := askAdmin(t, http.MethodGet, members[i].HTTPAddr().String(), "/commands/leader", "")
			return text
		})
		if leads == "true" {
			useBoth(t, zk[their], members[our].ClientAddr().String())
		}
		compareAdmin(t, zkAdmin[their], members[our].HTTPAddr().String())
	}
}

// TestAdminIsForEverybodyToRead: reading is open, changing is for super users, and a page of
// another site cannot have their browser do it.
func TestAdminIsForEverybodyToRead(t *testing.T) {
	s := startReal(t, superSettings)
	addr := s.HTTPAddr().String()
	for auth, want := range map[string]int{"": http.StatusUnauthorized, "digest a:b": http.StatusForbidden, superAuth: http.StatusOK} {
		for _, name := range []string{"stat_reset", "srst", "crst", "orst", "stmk?traceMask=1"} {
			if status, text := askAdmin(t, http.MethodGet, addr, "/commands/"+name, auth); status != want {
				t.Errorf("%s with %q: %d %s", name, auth, status, text)
			}
		}
		if status, text := askAdmin(t, http.MethodGet, addr, "/commands/monitor", auth); status != http.StatusOK {
			t.Errorf("monitor with %q: %d %s", auth, status, text)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, "http://"+addr+"/commands/srst", nil)
	req.Header.Set("Authorization", superAuth)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %v, %v", resp, err)
	}
}

// TestAdminListingsAreBounded: a listing ends where maxResponseBytes does, is JSON all the same,
// and says so.
func TestAdminListingsAreBounded(t *testing.T) {
	s := startReal(t, func(c *Config) {
		superSettings(c)
		c.Limits.Response = 4 << 10
	})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	for i := range 500 {
		path := fmt.Sprintf("/e%d", i)
		c.call(wire.OpCreate, create(path, nil, wire.ModeEphemeral))
		c.call(wire.OpGetData, &wire.PathWatchRequest{Path: path, Watch: true})
	}
	for _, name := range []string{"watches", "watches_by_path", "dump"} {
		_, text := askAdmin(t, http.MethodGet, s.HTTPAddr().String(), "/commands/"+name, "")
		var answer struct{ Error string }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(text) > 5<<10 || !strings.Contains(answer.Error, "maxResponseBytes") {
			t.Errorf("%s: %d bytes, %v\n%s", name, len(text), err, text)
		}
	}
}

// TestAdminObeysACLs: the commands name no path below a node that the request may not read.
func TestAdminObeysACLs(t *testing.T) {
	s := startReal(t, superSettings)
	addr := s.HTTPAddr().String()
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	vault := create("/vault", nil, wire.ModePersistent)
	vault.ACL = []wire.ACL{{Perms: wire.PermAll &^ wire.PermRead, ID: wire.OpenACL[0].ID}}
	c.call(wire.OpCreate, vault)
	c.call(wire.OpCreate, create("/vault/merger", nil, wire.ModeEphemeral))
	c.call(wire.OpCreate, create("/open", nil, wire.ModeEphemeral))
	for _, path := range []string{"/vault/merger", "/open"} {
		c.call(wire.OpExists, &wire.PathWatchRequest{Path: path, Watch: true})
	}
	for _, name := range []string{"dump", "watches", "watches_by_path"} {
		for auth, want := range map[string]bool{"": false, superAuth: true} {
			_, text := askAdmin(t, http.MethodGet, addr, "/commands/"+name, auth)
			if strings.Contains(text, "merger") != want || !strings.Contains(text, "/open") {
				t.Errorf("%s with %q: %s", name, auth, text)
			}
		}
	}
}
