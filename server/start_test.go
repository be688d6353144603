package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/internal/simnet"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// mustFail starts a member that must not start, and checks its error.
func mustFail(t *testing.T, cfg Config, want string) error {
	t.Helper()
	s, err := Start(cfg)
	if err == nil {
		_ = s.Close()
		t.Fatalf("it started; want %s", want)
	}
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	return err
}

func TestPortInUse(t *testing.T) {
	checkGoroutines(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	writeFile(t, filepath.Join(dir, "myid"), "2\n")

	cfg := mustLoad(t, file, "# comment\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%d\n", dir, port)
	why := fmt.Sprintf("cannot listen on 127.0.0.1:%d: address already in use; stop the program that uses the port, or choose another one", port)
	err = mustFail(t, cfg, fmt.Sprintf("%s:4: clientPort: %s", file, why))
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the cause is lost in %#v", err)
	}

	// Both ports at once, and the client port from the server line.
	cfg = mustLoad(t, file, "dataDir=%s\nserver.1=a:1:2\nserver.2=127.0.0.1:%d:3888;127.0.0.1:%d\nserver.3=c:1:2\n", dir, port, port)
	mustFail(t, cfg, fmt.Sprintf("%s:3: server.2: %s\n%s:3: server.2: %s", file, why, file, why))

	// Without a file there is none to name.
	mustFail(t, Config{
		Client: zoocfg.Client{Addr: taken.Addr().String()},
		Data:   zoocfg.Data{Dir: dir},
		Logger: testLogger(),
	}, "clientPort: "+why)

	// The directory is free again.
	cfg = mustLoad(t, file, "dataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%d\n", dir, freePort(t))
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAddressOfAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	writeFile(t, filepath.Join(dir, "myid"), "1\n")
	cfg := mustLoad(t, file, "dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nserver.1=192.0.2.1:2888:3888\nserver.2=b:1:2\nserver.3=c:1:2\n", dir, freePort(t))
	mustFail(t, cfg, file+":4: server.1: cannot listen on 192.0.2.1:2888: cannot assign requested address; this machine does not have that address (quorumListenOnAllIPs=true listens on all)")
	cfg = mustLoad(t, file, "dataDir=%s\nclientPort=%d\nclientPortAddress=192.0.2.1\n", dir, freePort(t))
	mustFail(t, cfg, fmt.Sprintf("%s:2: clientPort: cannot listen on %s: cannot assign requested address; this machine does not have that address", file, cfg.Client.Addr))
}

func TestDataDirInUse(t *testing.T) {
	checkGoroutines(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	text := "dataDir=%s\ndataLogDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"
	cfg := mustLoad(t, file, text, dir+"/data", dir+"/log", freePort(t))
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = s.Close()
		}
	}()
	inUse := "%s is in use by another process: stop the member that runs on it, or give this one a directory of its own"
	// A start waits for the directory for seconds, here virtual ones.
	synctest.Test(t, func(t *testing.T) {
		err := mustFail(t, mustLoad(t, file, text, dir+"/data", dir+"/other", freePort(t)), fmt.Sprintf("%s:1: dataDir: "+inUse, file, dir+"/data"))
		if !errors.Is(err, store.ErrInUse) {
			t.Errorf("the cause is lost in %#v", err)
		}
		mustFail(t, mustLoad(t, file, text, dir+"/other", dir+"/log", freePort(t)), fmt.Sprintf("%s:2: dataLogDir: "+inUse, file, dir+"/log"))
	})
	closed = true
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Start(cfg); err != nil {
		t.Fatalf("after the other one has stopped: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestDataDirThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "")
	cfg := Config{Client: zoocfg.Client{Addr: "127.0.0.1:0"}, Logger: testLogger()}
	cfg.Data.Dir = filepath.Join(dir, "file", "data")
	mustFail(t, cfg, "dataDir: cannot create the directory: mkdir "+dir+"/file: not a directory")
	cfg.Data.Dir, cfg.Data.MustExist = filepath.Join(dir, "data"), true
	mustFail(t, cfg, "dataDir: "+cfg.Data.Dir+" does not exist, and datadir.autocreate=false forbids to create it")
}

// TestDBAutocreate: with db.autocreate=false a member that finds no data starts only if an operator
// says so, once.
func TestDBAutocreate(t *testing.T) {
	dir := t.TempDir()
	initialize := filepath.Join(dir, "data", "initialize")
	file := filepath.Join(dir, "zoo.cfg")
	cfg := mustLoad(t, file, "clientPort=%d\nclientPortAddress=127.0.0.1\ndb.autocreate=false\ndataDir=%s/data\n", freePort(t), dir)
	want := file + ":3: db.autocreate: is false, and " + dir + "/data/raft.db does not exist: if this member is new, create the file " + initialize
	mustFail(t, cfg, want)
	writeFile(t, initialize, "")
	for range 2 { // the second time there is data
		s, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "data", "raft.db")); err != nil {
		t.Fatal(err)
	}
	mustFail(t, cfg, want)
}

// TestLostLog: a member that has lost its log must not go on with its snapshots: it may have voted.
func TestLostLog(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "snapshots", "1-2-3"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustFail(t, Config{Client: zoocfg.Client{Addr: "127.0.0.1:0"}, Data: zoocfg.Data{Dir: dir}, Logger: testLogger()},
		"dataLogDir: "+dir+"/raft.db is missing although "+dir+" has snapshots: a member that has lost its log must not go on (was dataLogDir changed?)")
}

// A start waits for another process that is about to leave the data directory, as one does that has
// just been killed.
func TestStartWaitsForTheDataDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := Start(Config{
		Client: zoocfg.Client{Addr: "127.0.0.1:0"},
		Data:   zoocfg.Data{Dir: dir},
		Logger: testLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{}, 10)
	log := slog.New(slog.NewTextHandler(writerFunc(func(line []byte) {
		if bytes.Contains(line, []byte("waiting for it to end")) {
			waits <- struct{}{}
		}
	}), nil))
	closed := make(chan error)
	go func() {
		<-waits
		closed <- first.Close()
	}()
	second, err := Start(Config{Client: zoocfg.Client{Addr: "127.0.0.1:0"}, Data: zoocfg.Data{Dir: dir}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-closed, second.Close()); err != nil {
		t.Error(err)
	}
	if n := len(waits); n > 0 {
		t.Errorf("the log says %d times that it waits", n+1)
	}
}

// writerFunc is an io.Writer that cannot fail.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// TestZooKeeperData: a member does not start in a directory with ZooKeeper's data, unless it is
// told to leave that alone; with data of our own it does. An empty version-2 is no data.
func TestZooKeeperData(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "version-2"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "version-2", "acceptedEpoch"), "0")
	cfg := Config{Client: zoocfg.Client{Addr: "127.0.0.1:0"}, Data: zoocfg.Data{Dir: dir}, Logger: testLogger()}
	if err := datadir.CheckZooKeeperData(&cfg); err != nil {
		t.Errorf("without snapshot and log: %v", err)
	}
	for _, name := range []string{"log.1", "snapshot.0"} {
		writeFile(t, filepath.Join(dir, "version-2", name), "ZKSN")
		mustFail(t, cfg, "dataDir: "+dir+"/version-2 has data of ZooKeeper, and this member has none yet: stop ZooKeeper on all hosts, then "+
			"'lockkeeper serve -import' (or 'lockkeeper import' before) takes over what is there, with its sessions. If the data "+
			"is not needed, start it once with -ignore-zookeeper-data")
		if err := os.Remove(filepath.Join(dir, "version-2", name)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "version-2", "snapshot.0"), "ZKSN")
	cfg.Data.IgnoreZooKeeper = true
	for _, want := range []bool{true, false} {
		var log bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s, err := Start(cfg)
		cfg.Data.IgnoreZooKeeper = false
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "this directory has data of ZooKeeper, which is left alone and not read"); got != want {
			t.Errorf("warned: %v, want %v\n%s", got, want, log.String())
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "version-2", "snapshot.0")); err != nil || string(b) != "ZKSN" {
		t.Errorf("ZooKeeper's file is now %q, %v", b, err)
	}
}

// TestNoticesAreLogged at the start, where an operator sees them.
func TestNoticesAreLogged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	cfg := mustLoad(t, file, "clientPort=%d\nclientPortAddress=127.0.0.1\ndataDir=%s\ntickTimeMs=1\npreAllocSize=1\n", freePort(t), dir)
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`level=WARN msg="neither ZooKeeper nor lockkeeper knows this key; ignored. The nearest known key is tickTime" file=` + file + " line=4 key=tickTimeMs",
		`level=INFO msg="ZooKeeper has these settings and lockkeeper does not need them: ignored: preAllocSize"`,
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not logged once: %s\n%s", want, log.String())
		}
	}
}

// TestRestart: answered updates are there again, sessions included.
func TestRestart(t *testing.T) {
	checkGoroutines(t)
	cfg := Config{Client: zoocfg.Client{Addr: "127.0.0.1:0"}, Data: zoocfg.Data{Dir: t.TempDir()}, Logger: testLogger()}
	first, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	awaitServing(t, first)
	c := dialReal(t, first)
	c.connect(30 * time.Second)
	c.call(wire.OpCreate, create("/a", []byte("kept"), wire.ModePersistent))
	c.call(wire.OpCreate, create("/a/e", nil, wire.ModeEphemeral))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := first.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	c.expectClosed()

	second, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	awaitServing(t, second)
	again := dialReal(t, second)
	again.req.SessionID, again.req.Password = c.id.SessionID, c.id.Password
	again.connect(30 * time.Second)
	if again.id.SessionID != c.id.SessionID {
		t.Fatalf("the session has gone: %+v", again.id)
	}
	var data wire.GetDataResponse
	if err := wire.Decode(again.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/a"}), &data); err != nil || string(data.Data) != "kept" || data.Stat.NumChildren != 1 {
		t.Errorf("got %+v, %v", data, err)
	}
}

// TestCloseInEveryState: nothing is left of a member, whatever its connections were about. In
// virtual time a goroutine that is left stops the test.
func TestCloseInEveryState(t *testing.T) {
	for _, how := range []string{"Close", "Shutdown"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, simnet.Config{BufferBytes: 4 << 10}, allWords, func(t *testing.T, s *Server, h *simnet.Host) {
				idle, half, word, held, deaf := dialSim(t, h), dialSim(t, h), dialSim(t, h), dialSim(t, h), dialSim(t, h)
				half.put(0, 0)
				word.put([]byte("ruok")...)
				held.connect(time.Minute)
				deaf.connect(time.Minute)
				held.call(wire.OpCreate, create("/big", bytes.Repeat([]byte("x"), 100_000), wire.ModePersistent))
				deaf.put(deaf.request(wire.OpGetData, &wire.PathWatchRequest{Path: "/big"})...)
				time.Sleep(time.Second)
				if got := s.port.count(); got != 5 {
					t.Fatalf("%d connections", got)
				}
				start := time.Now()
				limit := lingerTimeout
				if how == "Close" {
					limit = time.Second
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				} else {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if err := s.Shutdown(ctx); err != nil {
						t.Error(err)
					}
				}
				took := time.Since(start)
				if took > limit {
					t.Errorf("it took %v", took)
				}
				if how == "Shutdown" && took < lingerTimeout/4 {
					t.Errorf("it took only %v: the last answer was not given its time", took)
				}
				idle.expectClosed()
				half.expectClosed()
				held.expectClosed()
			})
		})
	}
}

// TestCloseDuringHandshake: a handshake that waits for a leader does not hold up the end.
func TestCloseDuringHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		s := startLoneMember(t, n)
		c := dialSim(t, n.Host("client"))
		c.put(wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 60000})...)
		time.Sleep(500 * time.Millisecond)
		if got := s.port.counters.connectRequests.Load() - s.port.counters.refusedHandshakes.Load(); got != 1 {
			t.Fatalf("%d handshakes wait", got)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		c.expectClosed()
	})
}

// TestShutdownThatIsCutShort: the context bounds how long clients may take.
func TestShutdownThatIsCutShort(t *testing.T) {
	inBubble(t, simnet.Config{}, allWords, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h)
		c.put([]byte("ruok")...) // and it does not close its side
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestFailedLog: a member that cannot write its log lets its clients go, answers nothing more, and
// says so.
func TestFailedLog(t *testing.T) {
	disk := simdisk.New()
	inBubble(t, simnet.Config{}, func(c *Config) { c.Machine.Stores = diskStores(disk) }, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h)
		c.connect(time.Minute)
		c.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
		broken := errors.New("no space left on device")
		disk.Fail(broken)
		c.put(c.request(wire.OpCreate, create("/b", nil, wire.ModePersistent))...)
		c.expectClosed()
		<-s.Failed()
		if err := s.Err(); !errors.Is(err, broken) {
			t.Errorf("the reason is %v", err)
		}
		if _, err := h.Dial(t.Context(), "tcp", simAddr); err == nil {
			t.Error("it still takes connections")
		}
	})
}

// TestCluster starts three members from three configuration files, as an operator would.
func TestCluster(t *testing.T) {
	checkGoroutines(t)
	members, ports := startCluster(t, "")
	text := fmt.Sprintf("server.1=127.0.0.1:%d:%d:participant\nserver.2=127.0.0.1:%d:%d:participant\nserver.3=127.0.0.1:%d:%d:participant\nversion=0",
		ports[0], ports[0]+1, ports[1], ports[1]+1, ports[2], ports[2]+1)
	var clients []*rawClient
	modes := map[string]int{}
	for i, s := range members {
		awaitServing(t, s)
		c := dialReal(t, s)
		c.connect(10 * time.Second)
		clients = append(clients, c)
		mode := regexp.MustCompile(`Mode: (\w+)`).FindStringSubmatch(dialReal(t, s).word("srvr"))
		if mode == nil {
			t.Fatal("srvr shows no mode")
		}
		modes[mode[1]]++
		conf := dialReal(t, s).word("conf")
		match(t, "conf", conf, fmt.Sprintf(`(?s:.*)serverId=%d\ninitLimit=10\nsyncLimit=5\nelectionAlg=3\nelectionPort=%d\nquorumPort=%d\npeerType=0\nmembership: \n%s`,
			i+1, ports[i]+1, ports[i], regexp.QuoteMeta(text)))
		mntr := dialReal(t, s).word("mntr")
		state := map[string]string{"leader": "leading", "follower": "following"}[mode[1]]
		match(t, "mntr", mntr, `zk_version\t.*\nzk_server_state\t`+mode[1]+`\nzk_peer_state\t`+state+` - broadcast\n(?s:.*)zk_quorum_size\t3\n(?s:.*)`)
		if got := strings.Contains(mntr, "zk_synced_followers\t"); got != (mode[1] == "leader") {
			t.Errorf("%s shows synced_followers: %v", mode[1], got)
		}
	}
	if modes["leader"] != 1 || modes["follower"] != 2 {
		t.Errorf("modes: %v", modes)
	}
	clients[0].call(wire.OpCreate, create("/a", []byte("x"), wire.ModePersistent))
	for _, c := range clients {
		c.call(wire.OpSync, &wire.SyncRequest{Path: "/"})
		c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/a"})
	}
	// The leader writes the configuration soon after its election.
	var data wire.GetDataResponse
	await(t, "/zookeeper/config", func() bool {
		if err := wire.Decode(clients[2].call(wire.OpGetData, &wire.PathWatchRequest{Path: "/zookeeper/config"}), &data); err != nil {
			t.Fatal(err)
		}
		return len(data.Data) > 0
	})
	if string(data.Data) != text || data.Stat.Version != -1 || data.Stat.Aversion != -1 {
		t.Errorf("/zookeeper/config: %q %+v", data.Data, data.Stat)
	}
	// The leader is shut down, the others go on with the clients they have.
	leader := -1
	for i, s := range members {
		if s.Status().Role == "leader" {
			leader = i
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := members[leader].Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for i, c := range clients {
		if i == leader {
			c.expectClosed()
			continue
		}
		c.call(wire.OpCreate, create("/after-", nil, wire.ModePersistentSequential))
	}
	for i, s := range members {
		if i != leader {
			s.View(func(store *znode.Store) {
				if err := store.Check(); err != nil {
					t.Errorf("member %d: %v", i+1, err)
				}
			})
		}
	}
}

// startCluster starts three members with files of their own on loopback ports, each with more in
// its file. The i-th peer port is ports[i].
func startCluster(t *testing.T, more string) (members []*Server, ports []int) {
	t.Helper()
	return startMembers(t, []uint8{1, 2, 3}, more)
}

// startMembers is startCluster for members with these numbers. FREE_PORT in more is a port of each
// member's own.
func startMembers(t *testing.T, ids []uint8, more string) (members []*Server, ports []int) {
	t.Helper()
	dir := t.TempDir()
	var lines strings.Builder
	for i, id := range ids {
		ports = append(ports, freePort(t))
		fmt.Fprintf(&lines, "server.%d=127.0.0.1:%d:%d\n", id, ports[i], ports[i]+1)
	}
	for _, id := range ids {
		data := filepath.Join(dir, fmt.Sprintf("data%d", id))
		if err := os.MkdirAll(data, 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(data, "myid"), fmt.Sprintf("%d\n", id))
		cfg := mustLoad(t, filepath.Join(dir, fmt.Sprintf("zoo%d.cfg", id)),
			"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n4lw.commands.whitelist=*\n%s%s", data, freePort(t), lines.String(), strings.ReplaceAll(more, "FREE_PORT", strconv.Itoa(freePort(t))))
		s, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, s)
		t.Cleanup(func() { _ = s.Close() }) // the test may have stopped it
	}
	return members, ports
}

func TestBuildInfo(t *testing.T) {
	from := time.Date(2026, time.February, 10, 23, 0, 0, 0, time.UTC)
	repository := &debug.BuildInfo{GoVersion: "go1.26", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-02-11T00:00:00+01:00"}, {Key: "vcs.modified", Value: "true"}}}
	for name, c := range map[string]struct {
		info                  *debug.BuildInfo
		version, commit, date string
		want                  Build
		line                  string
	}{
		"repository": {repository, "", "", "", Build{Version, "0123456789ab", true, from, "go1.26"},
			"3.9.5-lockkeeper-" + Version + "-0123456789ab-dirty, built on 02/10/2026 23:00 GMT"},
		"nothing": {&debug.BuildInfo{}, "", "", "", Build{Version: Version}, "3.9.5-lockkeeper-" + Version + ", built on 01/01/1970 00:00 GMT"},
		"packager": {repository, "1.2~rc+1", "fedcba9876543210", "2026-03-01T12:00:00Z", Build{"1.2~rc+1", "fedcba9876543210", false, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), "go1.26"},
			"3.9.5-lockkeeper-1.2-rc-1-fedcba987654, built on 03/01/2026 12:00 GMT"},
		"packager's commit, date unknown": {repository, "", "fedcba", "yesterday", Build{Version, "fedcba", false, time.Time{}, "go1.26"},
			"3.9.5-lockkeeper-" + Version + "-fedcba, built on 01/01/1970 00:00 GMT"},
	} {
		b := buildFrom(c.info, c.version, c.commit, c.date)
		if b != c.want || b.zooKeeperLine() != c.line {
			t.Errorf("%s: %+v, %q; want %+v, %q", name, b, b.zooKeeperLine(), c.want, c.line)
		}
		// ZooKeeper's own tests demand this of the line in srvr.
		if !regexp.MustCompile(`^.*\s\d+\.\d+\.\d+-.*$`).MatchString("Zookeeper version: " + b.zooKeeperLine()) {
			t.Errorf("%s: ZooKeeper would not know %q for a version", name, b.zooKeeperLine())
		}
	}
}
