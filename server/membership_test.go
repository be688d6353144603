package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/ops"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Members follow the files when they are restarted one after the other, and a server that stood
// alone is the first of them.
func TestMembersFollowTheFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var lines [5]string
	var clients [5]int
	for id := 1; id <= 4; id++ {
		lines[id] = fmt.Sprintf("server.%d=127.0.0.1:%d:%d\n", id, freePort(t), freePort(t))
		clients[id] = freePort(t)
	}
	members := map[int]*Server{}
	restart := func(id int, list ...int) {
		t.Helper()
		if s := members[id]; s != nil {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		data := filepath.Join(dir, fmt.Sprint(id))
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(data, "myid"), fmt.Sprintln(id))
		text := ""
		for _, n := range list {
			text += lines[n]
		}
		s, err := Start(mustLoad(t, data+".cfg", "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n%s", data, clients[id], text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		members[id] = s
	}
	number := func(s *Server) int { return len(s.members.list().Members) }
	restart(1)
	await(t, "a server alone", members[1].Serving)
	c := dialReal(t, members[1])
	c.connect(10 * time.Second)
	c.call(wire.OpCreate, create("/kept", []byte("data"), wire.ModePersistent))
	for id := 1; id <= 3; id++ {
		restart(id, 1, 2, 3)
	}
	for id := 1; id <= 3; id++ {
		await(t, fmt.Sprintf("member %d of three", id), func() bool { return members[id].Serving() && number(members[id]) == 3 })
	}
	restart(4, 1, 2, 3, 4)
	for id := 1; id <= 3; id++ {
		restart(id, 1, 2, 3, 4)
		await(t, fmt.Sprintf("member %d again", id), members[id].Serving)
	}
	for id := 1; id <= 4; id++ {
		await(t, fmt.Sprintf("member %d of four", id), func() bool { return members[id].Serving() && number(members[id]) == 4 })
		members[id].View(func(s *znode.Store) {
			if _, ok := s.Node("/kept"); !ok {
				t.Errorf("member %d has lost the data", id)
			}
		})
	}
}

// A standalone member cannot become one of a cluster while it runs: reconfig says so as
// ZooKeeper does, and the connection lives.
func TestReconfigOfAStandaloneMember(t *testing.T) {
	for enabled, want := range map[bool]wire.Code{false: wire.CodeReconfigDisabled, true: wire.CodeUnimplemented} {
		c := dialReal(t, startReal(t, func(cfg *Config) { cfg.Cluster.Reconfig, cfg.Auth.SkipACL = enabled, true }))
		c.connect(10 * time.Second)
		c.put(c.request(wire.OpReconfig, wire.ReconfigRequest{NullNewMembers: true, CurConfigID: -1})...)
		if h, _ := c.reply(); h.Err != want {
			t.Errorf("reconfigEnabled=%v: %v, want %v", enabled, h.Err, want)
		}
		c.call(wire.OpPing, nil)
	}
}

// The smallest and the largest number that a member may have are numbers like any other: such
// members lead, transfer the leadership, open sessions, leave and come back.
func TestMembersFromZeroTo255(t *testing.T) {
	ids := []uint8{0, 1, 255}
	members, ports := startMembers(t, ids, "reconfigEnabled=true\nskipACL=yes\nextendedTypesEnabled=true\n")
	var clients []*rawClient
	for i, s := range members {
		clients = append(clients, dialReal(t, s))
		clients[i].connect(10 * time.Second)
		clients[i].call(wire.OpCreate, create(fmt.Sprintf("/of-%d", ids[i]), nil, wire.ModeEphemeral))
	}
	for _, to := range []quorum.MemberID{0, 255, 0, quorum.NoMember, 1} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := members[1].Replica().TransferLeadership(ctx, to, nil); err != nil {
			t.Fatalf("transfer to %d: %v", to, err)
		}
		cancel()
		if led := members[1].Replica().Leader(); to != quorum.NoMember && led != to {
			t.Fatalf("%d leads, want %d", led, to)
		}
		for i, c := range clients {
			c.call(wire.OpSetData, &wire.SetDataRequest{Path: fmt.Sprintf("/of-%d", ids[i]), Version: -1})
		}
	}
	clients[2].call(wire.OpReconfig, wire.ReconfigRequest{Leaving: "0", NullNewMembers: true, CurConfigID: -1})
	if ms, _ := members[2].Replica().Members(); len(ms) != 2 || ms[0].ID != 1 || ms[1].ID != 255 {
		t.Fatalf("the members are %v, want 1 and 255", ms)
	}
	clients[2].call(wire.OpReconfig, wire.ReconfigRequest{NullNewMembers: true, CurConfigID: -1,
		Joining: fmt.Sprintf("server.0=127.0.0.1:%d:%d;127.0.0.1:%d", ports[0], ports[0]+1, members[0].ClientAddr().(*net.TCPAddr).Port)})
	await(t, "member 0 to serve again", members[0].Serving)
	back := dialReal(t, members[0])
	back.connect(10 * time.Second)
	back.call(wire.OpCreate, create("/back", nil, wire.ModeEphemeral))
}

// A member that is told to have other ports listens there, without a restart; connections stay.
func TestPortsMove(t *testing.T) {
	ports := make([]int, 5)
	for i := range ports {
		ports[i] = freePort(t)
	}
	line := func(peer, client int) Member {
		return Member{ID: 1, Host: "127.0.0.1", PeerPort: peer, ElectionPort: ports[0], ClientAddr: fmt.Sprintf("127.0.0.1:%d", client)}
	}
	before, after := line(ports[1], ports[2]), line(ports[3], ports[4])
	s := startReal(t, func(cfg *Config) {
		cfg.Cluster.Members, cfg.Cluster.ID, cfg.Cluster.Reconfig, cfg.Cluster.LoneVoter, cfg.Auth.SkipACL = []Member{before}, 1, true, true, true
		cfg.Client.Addr, cfg.Sessions.TickTime = before.ClientAddr, 500*time.Millisecond
		allWords(cfg)
	})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	await(t, "the members", func() bool { _, v := s.Replica().Members(); return v != 0 })
	var d wire.GetDataResponse
	body := c.call(wire.OpReconfig, wire.ReconfigRequest{Joining: after.String(), NullNewMembers: true, CurConfigID: -1})
	if err := wire.Decode(body, &d); err != nil || !strings.HasPrefix(string(d.Data), after.String()+"\nversion=") {
		t.Fatalf("%s %v", d.Data, err)
	}
	await(t, "the new ports", func() bool { return s.ClientAddr().String() == after.ClientAddr })
	c.call(wire.OpCreate, create("/a", nil, wire.ModePersistent)) // the old connection still serves
	second := dialReal(t, s)
	second.connect(10 * time.Second)
	second.call(wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
	await(t, "the new peer port", func() bool {
		c, err := net.Dial("tcp", after.PeerAddr())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	for _, addr := range []string{before.ClientAddr, before.PeerAddr()} {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			t.Errorf("somebody still listens on %s", addr)
		}
	}
	if conf := dialReal(t, s).word("conf"); !strings.Contains(conf, after.String()) || !strings.Contains(conf, fmt.Sprintf("quorumPort=%d\n", after.PeerPort)) {
		t.Errorf("conf:\n%s", conf)
	}
}

// The members that have been agreed upon count; where the file differs from them, a notice names
// the line.
func TestNoticesOfOtherMembers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	writeFile(t, filepath.Join(dir, "myid"), "1")
	writeFile(t, file, "dataDir="+dir+"\nclientPort=2181\nreconfigEnabled=true\nserver.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\n")
	cfg, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	agreed, _, err := znode.ParseConfigText("server.1=a:1:2:participant\nserver.2=x:1:2:participant;0.0.0.0:1\nserver.4=d:1:2:observer\nversion=5")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range differences(&cfg, ops.Membership{Members: agreed, Version: 5}) {
		got = append(got, fmt.Sprintf("%d %s %s", n.Line, n.Key, n.Text))
	}
	want := []string{
		"5 server.2 has other addresses in the cluster, which count: server.2=x:1:2:participant;0.0.0.0:1",
		"6 server.3 is no member of the cluster any more, or not yet: the members that have been agreed upon count (/zookeeper/config), not those of the file",
		"0 server.4 is missing in the file, and a member of the cluster: server.4=d:1:2:observer",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each member says of all of them how they are and where their clients connect, though no server
// line says that.
func TestMembersTellWhereTheirClientsConnect(t *testing.T) {
	t.Parallel()
	members, ports := startCluster(t, "")
	for _, s := range members {
		await(t, "the members to be ready", func() bool { ok, _ := s.Ready(); return ok })
	}
	newestProtocol := members[0].replica.PeerStats().Version
	check := func(list []ops.ListedMember, down int) {
		t.Helper()
		leaders := 0
		for i, l := range list {
			want := ops.ListedMember{ID: uint8(i + 1), Role: "participant", State: l.State, Peers: fmt.Sprintf("127.0.0.1:%d", ports[i]), Clients: members[i].ClientAddr().String(), Protocol: newestProtocol, PeerAuth: "loopback", Readiness: ops.ReadyText, Term: l.Term}
			if i == down {
				want.Protocol, want.PeerAuth, want.Readiness = 0, "", ""
			}
			if l != want || (l.Term == 0) != (i == down) || (l.State == ops.NoAnswer) != (i == down) {
				t.Errorf("got %+v, want %+v", l, want)
			}
			if l.State == "leader" {
				leaders++
			}
		}
		if len(list) != 3 || leaders != 1 {
			t.Errorf("%d members, %d leaders: %v", len(list), leaders, list)
		}
	}
	for _, s := range members {
		status := statusWord(t, s)
		check(status.Members, -1)
		if *status.ID != s.cfg.Cluster.ID || status.Role == "" || status.Zxid == "" || *status.Sessions != 0 || status.Version == "" {
			t.Errorf("mbrs: %+v", status)
		}
	}
	var list []ops.ListedMember
	check(members[0].Ops().Cluster().Listed(), -1)
	// Of one that is down it is known where its clients connected.
	if err := members[2].Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the list without member 3", func() bool {
		list = members[0].Ops().Cluster().Listed()
		return list[2].State == ops.NoAnswer && (list[0].State == "leader" || list[1].State == "leader")
	})
	check(list, 2)
}

// A member that stands alone has no list of members.
func TestNoMembersOfAStandaloneMember(t *testing.T) {
	s := startReal(t, func(c *Config) { c.HTTP.Addr = "127.0.0.1:0" })
	resp, err := http.Get("http://" + s.HTTPAddr().String() + "/members")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); string(b) != "[]\n" || err != nil {
		t.Errorf("GET /members: %q, %v", b, err)
	}
	if status := statusWord(t, s); len(status.Members) > 0 || status.Role != "standalone" {
		t.Errorf("mbrs: %+v", status)
	}
}

// statusWord returns the answer to mbrs.
func statusWord(t *testing.T, s *Server) (status ops.MemberStatus) {
	t.Helper()
	if text := dialReal(t, s).word("mbrs"); json.Unmarshal([]byte(text), &status) != nil {
		t.Fatalf("mbrs: %q", text)
	}
	return status
}
