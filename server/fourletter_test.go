package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// match checks that the whole text matches the pattern, in which a line may have blanks around it.
func match(t *testing.T, what, text, pattern string) {
	t.Helper()
	re := regexp.MustCompile(`\A` + pattern + `\z`)
	if !re.MatchString(text) {
		t.Errorf("%s: got\n%q\nwant\n%s", what, text, pattern)
	}
}

// versionPattern is the pattern in ZooKeeper's own tests, and in go-zookeeper's.
const versionPattern = `3\.9\.5-lockkeeper-[0-9A-Za-z.-]+, built on \d\d/\d\d/\d{4} \d\d:\d\d GMT`

func TestWords(t *testing.T) {
	checkGoroutines(t)
	var dir string
	s := startReal(t, func(c *Config) {
		allWords(c)
		dir = c.Data.Dir
		c.Client.MaxCnxnsPerAddr = Unlimited
	})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	c.call(wire.OpCreate, create("/e", []byte("data"), wire.ModeEphemeral))
	c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/e", Watch: true})
	c.call(wire.OpGetChildren, &wire.PathWatchRequest{Path: "/", Watch: true})
	ask := func(w string) string { return dialReal(t, s).word(w) }

	match(t, "ruok", ask("ruok"), "imok")
	match(t, "isro", ask("isro"), "rw")
	stats := `Latency min/avg/max: \d+/\d+\.\d{1,4}/\d+\n` +
		`Received: \d+\nSent: \d+\nConnections: \d+\nOutstanding: 0\nZxid: 0x[0-9a-f]+\nMode: standalone\nNode count: 6\n`
	match(t, "srvr", ask("srvr"), "Zookeeper version: "+versionPattern+"\n"+stats)
	match(t, "stat", ask("stat"), "Zookeeper version: "+versionPattern+"\nClients:\n"+
		` /127\.0\.0\.1:\d+\[[15]\]\(queued=0,recved=4,sent=4\)\n`+
		`( /127\.0\.0\.1:\d+\[1\]\(queued=0,recved=0,sent=0\)\n)*`+
		` /127\.0\.0\.1:\d+\[0\]\(queued=0,recved=1,sent=0\)\n\n`+stats)
	match(t, "cons", ask("cons"), fmt.Sprintf(` /127\.0\.0\.1:\d+\[[15]\]\(queued=0,recved=4,sent=4,sid=0x%x,lop=GETC,est=\d{13},to=10000,`+
		`lcxid=0x3,lzxid=0x[0-9a-f]+,lresp=\d+,llat=\d+,minlat=\d+,avglat=\d+,maxlat=\d+\)\n`, uint64(c.id.SessionID))+
		`( /127\.0\.0\.1:\d+\[\d\]\(queued=0,recved=\d,sent=0\)\n)+\n`)
	match(t, "conf", ask("conf"), fmt.Sprintf(`clientPort=%d
secureClientPort=-1
dataDir=%s
dataDirSize=\d{4,}
dataLogDir=%s
dataLogSize=\d{4,}
tickTime=3000
maxClientCnxns=0
minSessionTimeout=6000
maxSessionTimeout=60000
clientPortListenBacklog=-1
serverId=0
`, s.ClientAddr().(*net.TCPAddr).Port, regexp.QuoteMeta(dir), regexp.QuoteMeta(dir)))
	match(t, "dirs", ask("dirs"), `datadir_size: \d{4,}\nlogdir_size: \d{4,}\n`)
	match(t, "wchs", ask("wchs"), `1 connections watching 1 paths\nTotal watches:1\n`)
	match(t, "envi", ask("envi"), `Environment:\nzookeeper\.version=`+versionPattern+`\nhost\.name=.+\n(?s:.*)os\.memory\.total=\d+MB\n`)
	match(t, "mntr", ask("mntr"), `zk_version\t`+versionPattern+`\nzk_server_state\tstandalone\n(zk_[a-z0-9_]+\t-?\d+(\.\d+)?\n){20,}`)
	values := mntrValues(t, ask("mntr"))
	for key, want := range map[string]string{
		"zk_znode_count": "6", "zk_ephemerals_count": "1", "zk_watch_count": "2", "zk_global_sessions": "1",
		"zk_approximate_data_size": "50", "zk_outstanding_requests": "0", "zk_connection_request_count": "1",
	} {
		if values[key] != want {
			t.Errorf("mntr: %s is %q, want %s", key, values[key], want)
		}
	}
	for _, key := range []string{"zk_open_file_descriptor_count", "zk_max_file_descriptor_count", "zk_uptime", "zk_packets_received", "zk_packets_sent"} {
		if n, err := strconv.ParseInt(values[key], 10, 64); err != nil || n <= 0 {
			t.Errorf("mntr: %s is %q", key, values[key])
		}
	}

	match(t, "srst", ask("srst"), "Server stats reset.\n")
	match(t, "srvr after srst", ask("srvr"), `(?s:.*)Latency min/avg/max: 0/0\.0/0\nReceived: 1\nSent: 1\n(?s:.*)`)
	id := fmt.Sprintf("0x%x", uint64(c.id.SessionID))
	match(t, "wchc", ask("wchc"), id+`\n\t/e\n\n`)
	match(t, "wchp", ask("wchp"), `/e\n\t`+id+`\n\n`)
	match(t, "hash", ask("hash"), `[0-9a-f]+: -?\d+\n`)
	expiry := `expire at \w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}:\n`
	match(t, "dump", ask("dump"), `SessionTracker dump:\nSession Sets \(1\)/\(1\):\n1 `+expiry+`\t`+id+`\n`+
		`ephemeral nodes dump:\nSessions with Ephemerals \(1\):\n`+id+`:\n\t/e\n`+
		`Connections dump:\nConnections Sets \(\d+\)/\(\d+\):\n(\d+ `+expiry+`(\tip: /127\.0\.0\.1:\d+ sessionId: 0x[0-9a-f]+\n)+)+`)
	match(t, "gtmk", ask("gtmk"), `306`)
	match(t, "stmk", ask("stmk\x00\x00\x00\x00\x00\x00\x01\x02"), `258`)
	match(t, "gtmk after stmk", ask("gtmk"), `258`)
	match(t, "crst", ask("crst"), `Connection stats reset\.\n`)
	match(t, "cons after crst", ask("cons"), ` /127\.0\.0\.1:\d+\[[15]\]\(queued=0,recved=0,sent=0,sid=`+id+
		`,lop=NA,est=\d{13},to=10000,lzxid=0xffffffffffffffff,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0\)\n(?s:.*)`)
}

func mntrValues(t *testing.T, text string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if _, twice := values[key]; !ok || twice {
			t.Errorf("mntr: line %q", line)
		}
		values[key] = value
	}
	return values
}

// TestWhitelist: srvr, mays and mbrs are answered whatever the list says, and isro in a member that
// has the read-only mode.
func TestWhitelist(t *testing.T) {
	s := startReal(t, nil)
	for _, word := range zoocfg.FourLetterWords() {
		got := dialReal(t, s).word(word)
		refusal := word[:4] + " is not executed because it is not in the whitelist.\n"
		if (got == refusal) != (word != "srvr" && word != "mbrs" && word != "mays") {
			t.Errorf("%s: %q", word, got)
		}
	}
	for _, readOnly := range []bool{false, true} {
		some := startReal(t, func(c *Config) { c.Client.FourLetterWords, c.Client.ReadOnlyMode = []string{"ruok", "conf"}, readOnly })
		isro := "isro is not executed"
		if readOnly {
			isro = "rw"
		}
		for word, want := range map[string]string{"ruok": "imok", "conf": "clientPort=", "srvr": "Zookeeper version: ", "isro": isro, "mntr": "mntr is not executed"} {
			if got := dialReal(t, some).word(word); !strings.HasPrefix(got, want) {
				t.Errorf("read-only mode %v: %s: %q", readOnly, word, got)
			}
		}
	}
}

// TestWordWithMoreBehind: the line end that echo adds, and whatever else comes, neither changes the
// answer nor lets a reset destroy it.
func TestWordWithMoreBehind(t *testing.T) {
	s := startReal(t, allWords)
	for range 20 {
		c := dialReal(t, s)
		c.put(append([]byte("mntr\r\n"), bytes.Repeat([]byte("x"), 200_000)...)...)
		_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		b, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(b), "zk_uptime\t") {
			t.Fatalf("got %d bytes, %v", len(b), err)
		}
	}
}

// TestWordAndClientThatStays: a client that does not close its side is cut off.
func TestWordAndClientThatStays(t *testing.T) {
	inBubble(t, simnet.Config{}, allWords, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h)
		c.put([]byte("ru")...)
		time.Sleep(5 * time.Second)
		c.put([]byte("ok")...)
		start := time.Now()
		if b, err := io.ReadAll(c); err != nil || string(b) != "imok" || time.Since(start) != 0 {
			t.Errorf("got %q, %v after %v", b, err, time.Since(start))
		}
		for s.port.count() > 0 && time.Since(start) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(start).Round(10 * time.Millisecond); took != lingerTimeout {
			t.Errorf("the connection was kept for %v", took)
		}
	})
}

// TestWordsWithoutLeader: one member of three that cannot reach the others.
func TestWordsWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		s := startLoneMember(t, n)
		defer s.Close()
		time.Sleep(30 * time.Second)
		for _, word := range zoocfg.FourLetterWords() {
			want := "This ZooKeeper instance is not currently serving requests\n"
			switch {
			case word == "ruok":
				want = "imok"
			case word == "gtmk":
				want = "306"
			case word == "stmk":
				// The words come in any order.
				word, want = "stmk\x00\x00\x00\x00\x00\x00\x01\x32", "306"
			case word == "isro":
				want = "null"
			case word == "mbrs":
				want = `{"id":1,"connections":0,`
			case word == "mays":
				want = `{"member":1,"stoppable":false,"reason":"the leader does not say: quorum: no leader"`
			case word == "envi":
				want = "Environment:\n"
			}
			if got := dialSim(t, n.Host("client")).word(word); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", word, got, want)
			}
		}
		c := dialSim(t, n.Host("client"))
		c.put(wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 10000})...)
		c.expectClosed()
	})
}

// askWord returns the answer to a four-letter word.
func askWord(t *testing.T, addr, word string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	return (&rawClient{Conn: c, t: t}).word(word)
}

// TestWordsAgainstZooKeeper compares the answers with a real ZooKeeper's, line by line: the same
// keys in the same order, and values of the same kind.
func TestWordsAgainstZooKeeper(t *testing.T) {
	zk := startZooKeeper(t)
	s := startReal(t, allWords)
	ask := func(addr, word string) string { return askWord(t, addr, word) }
	compare := func(others int, words ...string) {
		t.Helper()
		for _, word := range words {
			// The connection of the word before may be listed for a moment longer.
			await(t, "the end of other connections", func() bool { return s.port.count() == others })
			compareWord(t, word, ask(zk, word), ask(s.ClientAddr().String(), word))
		}
	}
	compare(0, "ruok", "isro", "srvr", "stat", "conf", "cons", "wchs", "wchc", "wchp", "dump", "dirs", "srst", "gtmk",
		"stmk\x00\x00\x00\x00\x00\x00\x01\x32")
	for _, addr := range []string{zk, s.ClientAddr().String()} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(patience))
		c := &rawClient{Conn: nc, t: t}
		c.connect(10 * time.Second)
		c.call(wire.OpCreate, create("/e", []byte("data"), wire.ModeEphemeral))
		c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/e", Watch: true})
		c.call(wire.OpGetChildren, &wire.PathWatchRequest{Path: "/", Watch: true})
	}
	compare(1, "wchs", "wchc", "wchp", "dump", "cons", "crst", "cons", "stat")
	theirs, ours := mntrValues(t, ask(zk, "mntr")), mntrValues(t, ask(s.ClientAddr().String(), "mntr"))
	for key, value := range ours {
		their, ok := theirs[key]
		if isOwnMetric(key) {
			continue
		}
		if !ok {
			t.Errorf("mntr: ZooKeeper has no %s", key)
		}
		if key != "zk_version" && shape(their) != shape(value) {
			t.Errorf("mntr: %s is %q there and %q here", key, their, value)
		}
	}
	ourText, theirText := ask(s.ClientAddr().String(), "mntr"), ask(zk, "mntr")
	if firstKeys(ourText, 2) != firstKeys(theirText, 2) {
		t.Errorf("mntr begins with %q, ZooKeeper's with %q", firstKeys(ourText, 2), firstKeys(theirText, 2))
	}
}

// isOwnMetric reports whether ZooKeeper 3.8.0 has no such line of mntr, with or without zk_. A
// summary has several lines; snapshot_error_count is there since 3.9.
func isOwnMetric(key string) bool {
	key = strings.TrimPrefix(key, "zk_")
	_, base, _ := strings.Cut(key, "_")
	return !metrics.InZooKeeper(key) && !metrics.InZooKeeper(base) || key == "snapshot_error_count"
}

func compareWord(t *testing.T, word, theirs, ours string) {
	t.Helper()
	normal := func(text string) string {
		lines := slices.Collect(strings.Lines(shape(text)))
		switch word {
		case "cons", "stat": // ZooKeeper lists connections in the order of a hash table
			slices.Sort(lines)
		case "dump": // the number that expires at one time depends on the clock
			slices.Sort(lines)
			lines = slices.Compact(lines)
		}
		return strings.Join(lines, "")
	}
	if theirs, ours = normal(theirs), normal(ours); theirs != ours {
		t.Errorf("%s: ZooKeeper\n%s\nlockkeeper\n%s", word, theirs, ours)
	}
}

var (
	versions = regexp.MustCompile(`(?m)^(Zookeeper version: ).*$`)
	dirValue = regexp.MustCompile(`(?m)^(dataDir|dataLogDir)=.*$`)
	numbers  = regexp.MustCompile(`-?\b(0x[0-9a-f]+|\d+)\b`)
)

// shape is a text without its particular values.
func shape(text string) string {
	text = versions.ReplaceAllString(text, "$1")
	text = dirValue.ReplaceAllString(text, "$1=")
	text = strings.ReplaceAll(text, "127.0.0.1", "ip")
	return numbers.ReplaceAllStringFunc(text, func(n string) string {
		if strings.HasPrefix(n, "0x") {
			return "0xN"
		}
		return strings.TrimLeft(n, "-0123456789") + "N"
	})
}

func firstKeys(text string, n int) string {
	var keys []string
	for line := range strings.Lines(text) {
		key, _, _ := strings.Cut(line, "\t")
		keys = append(keys, key)
	}
	return strings.Join(keys[:min(n, len(keys))], " ")
}

// startZooKeeper starts the ZooKeeper that Debian packages, and returns its client address.
func startZooKeeper(t *testing.T) string {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	startZooKeeperAt(t, addr, "", "admin.enableServer=false\n")
	awaitZooKeeper(t, addr)
	return addr
}

// startZooKeeperAt starts a ZooKeeper with the client address addr, with more lines in its zoo.cfg
// and, unless it stands alone, the number id.
func startZooKeeperAt(t *testing.T, addr, id, more string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a Java machine; not with -short")
	}
	const jars = "/usr/share/java/zookeeper.jar:/usr/share/java/servlet-api.jar"
	java, err := exec.LookPath("java")
	if _, statErr := os.Stat("/usr/share/java/zookeeper.jar"); err != nil || statErr != nil {
		why := errors.Join(err, statErr)
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI needs ZooKeeper (apt-get install zookeeper): %v", why)
		}
		t.Skipf("no ZooKeeper to compare with (apt-get install zookeeper): %v", why)
	}
	dir := t.TempDir()
	_, port, _ := net.SplitHostPort(addr)
	file := filepath.Join(dir, "zoo.cfg")
	writeFile(t, file, "tickTime=3000\nclientPortAddress=127.0.0.1\nclientPort="+port+"\ndataDir="+dir+"\n4lw.commands.whitelist=*\n"+more)
	if id != "" {
		writeFile(t, filepath.Join(dir, "myid"), id)
	}
	cmd := exec.Command(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
		if t.Failed() {
			t.Logf("ZooKeeper said:\n%s", log.String())
		}
	})
}

func awaitZooKeeper(t *testing.T, addr string) {
	t.Helper()
	await(t, "ZooKeeper", func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		defer c.Close()
		// While it starts, ZooKeeper may never answer.
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte("srvr"))
		b, _ := io.ReadAll(c)
		return bytes.Contains(b, []byte("Mode: "))
	})
}

// TestFourLetterWordsTable keeps the words and their answers together.
func TestFourLetterWordsTable(t *testing.T) {
	words := slices.Sorted(slices.Values(zoocfg.FourLetterWords()))
	if got, want := strings.Join(words, " "), "conf cons crst dirs dump envi gtmk hash isro mays mbrs mntr ruok srst srvr stat stmk wchc wchp wchs"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
