package main

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/server"
	"lockkeeper/server/ops"
	"lockkeeper/server/zoocfg"
)

func TestClusterUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "say what to do"},
		{[]string{"ad"}, `unknown "ad"`},
		{[]string{"list", "x"}, `unexpected "x"`},
		{[]string{"add"}, "add needs a server line"},
		{[]string{"add", "server.4=h:1:2"}, "the client port is missing"},
		{[]string{"add", "server.4=h:1;3"}, "must be host:peerPort:electionPort"},
		{[]string{"add", "server.400=h:1:2;3"}, "between 0 and 255"},
		{[]string{"remove"}, `"" is not the number of a member`},
		{[]string{"remove", "1,x"}, `"x" is not the number of a member`},
		{[]string{"transfer-leader", "256"}, `"256" is not the number of a member`},
		{[]string{"transfer-leader", "1", "2"}, `unexpected "2"`},
		{[]string{"remove", "1", "-x"}, "flag provided but not defined: -x"},
	} {
		status, stdout, stderr := invoke(append([]string{"cluster"}, c.args...)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %q, %q", c.args, status, stdout, stderr)
		}
	}
}

func TestClusterCommands(t *testing.T) {
	t.Parallel()
	const n = 4
	ports, err := freeport.Take(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	var all []server.Member
	for i := range n {
		all = append(all, server.Member{ID: uint8(i + 1), Host: "127.0.0.1", PeerPort: ports[4*i], ElectionPort: ports[4*i+1],
			ClientAddr: fmt.Sprintf("127.0.0.1:%d", ports[4*i+2])})
	}
	sum := sha1.Sum([]byte("super:pw"))
	start := func(i int, members []server.Member) *server.Server {
		s, err := server.Start(server.Config{
			Cluster:  zoocfg.Cluster{ID: uint8(i + 1), Members: members, Reconfig: true},
			Client:   zoocfg.Client{Addr: all[i].ClientAddr, FourLetterWords: []string{"*"}},
			Data:     zoocfg.Data{Dir: t.TempDir()},
			Sessions: zoocfg.Sessions{TickTime: 500 * time.Millisecond},
			HTTP:     zoocfg.HTTP{Addr: fmt.Sprintf("127.0.0.1:%d", ports[4*i+3])},
			Auth:     zoocfg.Auth{SuperDigest: "super:" + base64.StdEncoding.EncodeToString(sum[:])},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var running []*server.Server
	for i := range 3 {
		running = append(running, start(i, all[:3]))
	}
	for _, s := range running {
		await(t, "a leader", s.Serving)
	}
	await(t, "the members", func() bool { ms, v := running[0].Replica().Members(); return len(ms) == 3 && v != 0 })
	u := user{t: t, variables: map[string]string{serversVariable: all[0].ClientAddr + "," + all[1].ClientAddr}}
	for _, args := range [][]string{{"cluster", "remove", ""}, {"cluster", "transfer-leader", ""}, {"status", "-may-stop", ""}} {
		if got := u.completed(args...); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("%q is completed with %q", args, got)
		}
	}
	ok := func(args ...string) string {
		t.Helper()
		status, stdout, stderr := u.invoke(append([]string{"cluster"}, args...)...)
		if status != exitOK {
			t.Fatalf("%q: status %d, %q, %q", args, status, stdout, stderr)
		}
		return stdout + stderr
	}
	refused := func(want string, args ...string) {
		t.Helper()
		status, stdout, stderr := u.invoke(append([]string{"cluster"}, args...)...)
		if status != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%q: status %d, %q, %q, want %q", args, status, stdout, stderr, want)
		}
	}
	// on a busy machine there may be an election
	await(t, "a list with a leader and two followers", func() bool {
		text := ok("list")
		return strings.Count(text, "follower") == 2 && strings.Count(text, "leader") == 1 && strings.Contains(text, "version ")
	})
	const auth = "-auth=super:pw"
	refused("-auth must be the super user", "remove", "3")
	refused("there is no member 9", "remove", "9", auth)
	if !testing.Short() { // the leader waits ten seconds for it
		refused("no answer from server.4 at 127.0.0.1:"+strconv.Itoa(all[3].PeerPort), "add", all[3].String(), auth)
	}
	if text := ok("list"); strings.Contains(text, "no answer") || strings.Count(text, "participant") != 3 {
		t.Errorf("after a member that never answered:\n%s", text)
	}
	running = append(running, start(3, all))
	if text := ok("add", all[3].String(), auth); !strings.Contains(text, "4 voters, 4 of them answer: 1 more may fail") {
		t.Error(text)
	}
	await(t, "the new member to know of itself", func() bool { ms, _ := running[3].Replica().Members(); return len(ms) == 4 })
	http := fmt.Sprintf("-http=127.0.0.1:%d", ports[3])
	refused("WRITE on /zookeeper/config is needed", "transfer-leader", http)
	refused("there is no member 77", "transfer-leader", http, auth, "77")
	refused("is it the HTTP port of a member?", "transfer-leader", "-http="+fakeHTTP(t), auth)
	for _, to := range []string{"4", "2"} {
		await(t, "member "+to+" to lead", func() bool { return transferred(t, to, http, auth) })
	}
	ok("remove", "3", auth)
	if err := running[3].Close(); err != nil {
		t.Fatal(err)
	}
	refused("would leave 1 of 2 live, as seen from this machine: missing server.4 (127.0.0.1:"+strconv.Itoa(all[3].PeerPort)+")", "remove", "1", auth)
	ok("remove", "server.4", auth)
	if text := ok("list", "-json"); strings.Count(text, `"role":"participant"`) != 2 {
		t.Error(text)
	}
}

// After a change the command prints the number of members that may fail.
func TestTolerance(t *testing.T) {
	list := func(states ...string) (all []ops.ListedMember) {
		for i, state := range states {
			role, state, _ := strings.Cut(state, "/")
			all = append(all, ops.ListedMember{ID: uint8(i + 1), Role: role, State: state, Peers: fmt.Sprintf("h%d:1", i+1)})
		}
		return all
	}
	const leads, follows, silent = "participant/leader", "participant/follower", "participant/no answer"
	for want, states := range map[string][]string{
		"3 voters, 3 of them answer: 1 more may fail":                                      {leads, follows, follows},
		"4 voters, 3 of them answer: none may fail; no answer from member 4 (h4:1)":        {leads, follows, follows, silent},
		"2 voters, 1 of them answer: they are no majority; no answer from member 2 (h2:1)": {leads, silent, "observer/observer"},
		"The members do not say how they are: see 'cluster list'":                          nil,
	} {
		if _, _, got := tolerance(list(states...)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	lines := []string{"server.1=h1:1:2;3", "server.2=other:1:2;3", "server.3=h3:1:2;3", "server.4=h4:1:2;3"}
	if got := fmt.Sprint(silentOf(list(leads, follows, silent), lines)); strings.Contains(got, "server.1") || strings.Count(got, "server.") != 3 {
		t.Error(got)
	}
}

// transferred transfers the leadership to a member. It returns false if another one leads, as may
// be after an election on a busy machine.
func transferred(t *testing.T, to string, flags ...string) bool {
	t.Helper()
	_, stdout, stderr := invoke(append([]string{"cluster", "transfer-leader", to}, flags...)...)
	if strings.Contains(stderr, "leads instead") || strings.Contains(stderr, "no leader") {
		return false
	}
	if !strings.Contains(stdout+stderr, "member "+to+" leads") {
		t.Fatal(stdout, stderr)
	}
	return true
}

// fakeHTTP is the address of a server that answers in another language.
func fakeHTTP(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
