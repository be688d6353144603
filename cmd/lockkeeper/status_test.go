package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/freeport"
	"lockkeeper/server"
	"lockkeeper/server/ops"
	"lockkeeper/server/zoocfg"
)

var worldACL = zk.WorldACL(zk.PermAll)

// newTestClient is go-zookeeper, connected to a member.
func newTestClient(t *testing.T, s *server.Server) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{s.ClientAddr().String()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// statusOf runs status -json and decodes its output.
func statusOf(t *testing.T, servers string) (status int, s clusterStatus) {
	t.Helper()
	status, text, stderr := invoke("status", "-json", "-servers", servers)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("status %d, %q, %q: %v", status, text, stderr, err)
	}
	return status, s
}

func TestStatusAlone(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	await(t, "the member to serve", s.Serving)
	status, got := statusOf(t, s.ClientAddr().String())
	if status != exitOK || got.State != stateHealthy || got.Voters != 1 || got.Quorum != 1 || got.MayFail != 0 || len(got.Members) != 1 ||
		got.Members[0].Role != "standalone" {
		t.Errorf("status %d, %+v", status, got)
	}
	if status, text, _ := s.invoke("status"); status != exitOK || !strings.Contains(text, "healthy: 1 of 1 voters serve in term 2, 1 make a quorum") {
		t.Errorf("status %d, %s", status, text)
	}
}

// startAll starts the members of a cluster, and waits until all serve.
func startAll(t *testing.T, all []server.Member) (running []*server.Server) {
	t.Helper()
	for i := range all {
		s, err := server.Start(server.Config{
			Cluster:  zoocfg.Cluster{ID: uint8(i + 1), Members: all},
			Client:   zoocfg.Client{Addr: all[i].ClientAddr},
			Data:     zoocfg.Data{Dir: t.TempDir()},
			Sessions: zoocfg.Sessions{TickTime: 500 * time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		running = append(running, s)
	}
	for _, s := range running {
		await(t, "a leader", s.Serving)
	}
	return running
}

// TestStatusOfACluster: members fail, and the status says so. It finds members that were not named.
func TestStatusOfACluster(t *testing.T) {
	t.Parallel()
	const n = 4 // the last one observes
	ports, err := freeport.Take(3 * n)
	if err != nil {
		t.Fatal(err)
	}
	var all []server.Member
	for i := range n {
		all = append(all, server.Member{ID: uint8(i + 1), Host: "127.0.0.1", PeerPort: ports[3*i], ElectionPort: ports[3*i+1],
			ClientAddr: fmt.Sprintf("127.0.0.1:%d", ports[3*i+2]), Observer: i == n-1})
	}
	running := startAll(t, all)
	await(t, "the members", func() bool { ms, _ := running[0].Replica().Members(); return len(ms) == n })
	first := all[0].ClientAddr
	status, got := statusOf(t, first)
	roles := map[string]int{}
	for i, m := range got.Members {
		roles[m.Role]++
		if m.ID == nil || *m.ID != uint8(i+1) || m.Server != all[i].ClientAddr || m.Sessions == nil {
			t.Errorf("member %d: %+v", i+1, m)
		}
	}
	term := running[0].Status().Term
	if got.Term != term || term == 0 {
		t.Errorf("term %d, want %d", got.Term, term)
	}
	if status != exitOK || got.State != stateHealthy || got.Voters != 3 || got.Serving != 3 || got.MayFail != 1 ||
		roles["leader"] != 1 || roles["follower"] != 2 || roles["observer"] != 1 {
		t.Errorf("status %d, %+v %v", status, got, roles)
	}
	// One member under two names is one, and a voter that is gone is missed.
	_, port, _ := net.SplitHostPort(first)
	_ = running[2].Close()
	both := first + ",localhost:" + port + "," + all[1].ClientAddr
	await(t, "a leader among the others", func() bool {
		status, got = statusOf(t, both)
		return got.Serving == 2 && len(got.Notes) == 0
	})
	if status != exitDegraded || got.State != stateDegraded || got.Voters != 3 || got.MayFail != 0 || len(got.Members) != n ||
		!strings.Contains(got.Members[2].Error, "cannot be reached: connection refused") {
		t.Errorf("status %d, %+v", status, got)
	}
	_ = running[1].Close()
	servers := strings.Join([]string{first, all[1].ClientAddr, all[2].ClientAddr}, ",")
	await(t, "the loss of the quorum", func() bool { status, got = statusOf(t, servers); return got.Serving == 0 })
	if status != exitNoQuorum || got.State != stateNoQuorum || got.Voters != 3 {
		t.Errorf("status %d, %+v", status, got)
	}
	if status, text, _ := invoke("status", "-servers", servers); status != exitNoQuorum ||
		!strings.Contains(text, "serves nobody: it knows no leader") || !strings.Contains(text, "\nno quorum: 0 of 3 voters serve\n") {
		t.Errorf("status %d, %s", status, text)
	}
}

// TestStatusOfZooKeeper: a server that does not know mbrs answers ZooKeeper's words.
func TestStatusOfZooKeeper(t *testing.T) {
	answers := map[string]string{
		"srvr": "Zookeeper version: 3.8.0-abc, built on 2022-02-25 08:49 UTC\nLatency min/avg/max: 0/1.5/7\nReceived: 5\nSent: 4\n" +
			"Connections: 2\nOutstanding: 1\nZxid: 0x300000004\nMode: leader\nNode count: 9\n",
		"mntr": "zk_version\t3.8.0-abc\nzk_global_sessions\t12\n",
		"conf": "clientPort=2181\nserverId=2\n",
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			word := make([]byte, 4)
			_, _ = io.ReadFull(c, word)
			_, _ = io.WriteString(c, answers[string(word)])
			_ = c.Close()
		}
	}()
	f := clientFlags{}
	got := f.query(t.Context(), l.Addr().String(), wordPatience)
	if got.Error != "" || *got.ID != 2 || got.Role != "leader" || got.zxid != 3<<32+4 || *got.Sessions != 12 || got.Nodes != 9 ||
		got.Connections != 2 || got.Outstanding != 1 || *got.Latency != (ops.LatencyMs{Avg: 1.5, Max: 7}) || got.leaderTerm() != 3 {
		t.Errorf("%+v", got)
	}
}

// Ports that are no client ports are named as such.
func TestStatusOfSomethingElse(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closing.Close()
	go func() {
		for {
			c, err := closing.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4))
			_ = c.Close()
		}
	}()
	for address, want := range map[string]string{
		silent.Addr().String():       "no answer within 200ms",
		closing.Addr().String():      "it closes the connection without an answer: is it a client port?",
		web.Listener.Addr().String(): "the port is for HTTP, not for clients",
		"127.0.0.1:1":                "cannot be reached: connection refused",
		"no-such-host.invalid:1":     "there is no host no-such-host.invalid",
	} {
		status, text, _ := invoke("status", "-timeout", "200ms", "-servers", address)
		if status != exitNoQuorum || !strings.Contains(text, want) {
			t.Errorf("%s: status %d, %s", address, status, text)
		}
	}
}

// TestStatusOfAMemberThatIsBehind: it serves, and does not count, so none of the others may fail.
func TestStatusOfAMemberThatIsBehind(t *testing.T) {
	id := func(n uint8) *uint8 { return &n }
	s := clusterStatus{Members: []*memberStatus{
		{MemberFigures: ops.MemberFigures{ID: id(1), Role: "leader", Zxid: "0x300000001", Version: "3.9.5-lockkeeper-1"}, Readiness: ops.ReadyText,
			list: []ops.ListedMember{{ID: 1, State: "leader", Term: 7}}, zxid: 3<<32 + 1},
		{MemberFigures: ops.MemberFigures{ID: id(2), Role: "follower", Version: "3.9.5-lockkeeper-1"}, Readiness: ops.NotReadyText + "it is behind"},
		{MemberFigures: ops.MemberFigures{ID: id(3)}, Error: errNotServing.Error(), Readiness: ops.NotReadyText + "it has not got from the leader yet what it missed"},
	}}
	s.judge([]ops.ListedMember{{ID: 1}, {ID: 2}, {ID: 3}})
	s.explain()
	want := "degraded: 1 of 3 voters serve in term 7, 2 make a quorum, 0 more may fail\nnote: member 2 does not count: it is behind\n"
	if text := s.text(); !strings.HasSuffix(text, want) || !strings.Contains(text, "serves nobody: it has not got from the leader yet") {
		t.Errorf("%s", text)
	}
}

// TestStatusMayStop: a member may be stopped if the others can do without it, not two at a time.
func TestStatusMayStop(t *testing.T) {
	t.Parallel()
	ports, err := freeport.Take(9)
	if err != nil {
		t.Fatal(err)
	}
	var all []server.Member
	for i := range 3 {
		all = append(all, server.Member{ID: uint8(i + 1), Host: "127.0.0.1", PeerPort: ports[3*i], ElectionPort: ports[3*i+1],
			ClientAddr: fmt.Sprintf("127.0.0.1:%d", ports[3*i+2])})
	}
	startAll(t, all)
	first := all[0].ClientAddr
	status, text, stderr := invoke("status", "-servers", first, "-may-stop", "2", "-wait", "20s")
	if status != exitOK || !strings.HasPrefix(text, "member 2 may be stopped now: ") {
		t.Fatalf("status %d, %q, %q", status, text, stderr)
	}
	status, text, _ = invoke("status", "-json", "-servers", first, "-may-stop", "3")
	var a ops.Stoppable
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != exitFailed || a.Stoppable ||
		a.Reason != "member 2 has been told that it may stop" {
		t.Errorf("status %d, %s", status, text)
	}
	if status, _, text = invoke("status", "-servers", first, "-may-stop", "4"); status != exitFailed || !strings.Contains(text, "member 4 has not been found") {
		t.Errorf("status %d, %s", status, text)
	}
	if status, _, text = invoke("status", "-servers", first, "-wait", "4s"); status != exitUsage {
		t.Errorf("status %d, %s", status, text)
	}
}
