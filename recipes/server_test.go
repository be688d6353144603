package recipes

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is a real server that the tests talk to: one member, standalone, its
// data in a directory of its own. It is started when the first test needs it
// and serves all tests of the package; they use different paths.
type server struct {
	name    string
	missing func() error                          // names the missing program
	command func(config string) ([]string, error) // that runs it in the foreground
	// settings are more lines for its configuration, and may be nil; they may have
	// files in the directory.
	settings func(dir string) (string, error)

	once  sync.Once
	addr  string
	dir   string
	err   error
	pid   int       // of the shell that guards the process
	stdin io.Closer // the process lives until this is closed
	ended chan struct{}
}

// errMissing: something is not installed. It skips a test, except in CI.
var errMissing = errors.New("not installed")

var servers = []*server{
	{name: "zookeeper", missing: zookeeperMissing, command: zookeeperCommand},
	{name: "lockkeeper", missing: lockkeeperMissing, command: lockkeeperCommand},
}

// javaDir is where Debian's packages put their jars.
const javaDir = "/usr/share/java"

var zookeeperJar = filepath.Join(javaDir, "zookeeper.jar")

// goOnly skips a test that starts programs in other languages, with -short.
func goOnly(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Java or Python; not with -short")
	}
}

func zookeeperMissing() error {
	_, err := exec.LookPath("java")
	if _, serr := os.Stat(zookeeperJar); err != nil || serr != nil {
		return fmt.Errorf("ZooKeeper %w: apt-get install zookeeper", errMissing)
	}
	return nil
}

func zookeeperCommand(config string) ([]string, error) {
	return []string{
		"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true",
		"-cp", zookeeperJar + ":" + filepath.Join(javaDir, "slf4j-simple.jar"),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
	}, nil
}

const lockkeeperMain = "../cmd/lockkeeper"

// lockkeeperMissing: as soon as there is a main program, it has to serve.
func lockkeeperMissing() error {
	if files, _ := filepath.Glob(filepath.Join(lockkeeperMain, "*.go")); len(files) == 0 {
		return fmt.Errorf("%s is not written yet, %w", lockkeeperMain, errMissing)
	}
	return nil
}

func lockkeeperCommand(config string) ([]string, error) {
	binary := filepath.Join(filepath.Dir(config), "lockkeeper")
	if out, err := exec.Command("go", "build", "-o", binary, lockkeeperMain).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build %s: %w\n%s", lockkeeperMain, err, out)
	}
	return []string{binary, "serve", config}, nil
}

// eachServer runs a test against every server, as subtests.
func eachServer(t *testing.T, test func(t *testing.T, addr string)) {
	t.Parallel() // most of the time they wait
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if s.name == "zookeeper" {
				goOnly(t)
			}
			addr, err := s.start()
			switch {
			case errors.Is(err, errMissing) && os.Getenv("CI") == "":
				t.Skip(err)
			case err != nil:
				t.Fatal(err)
			}
			test(t, addr)
			if t.Failed() {
				t.Logf("log of the server: %s", filepath.Join(s.dir, "log"))
			}
		})
	}
}

// start returns the address of the server, which serves by then.
func (s *server) start() (string, error) {
	s.once.Do(func() { s.addr, s.err = s.run() })
	return s.addr, s.err
}

func (s *server) run() (string, error) {
	if err := s.missing(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "recipes-"+s.name+"-")
	if err != nil {
		return "", err
	}
	s.dir = dir
	config := filepath.Join(dir, "zoo.cfg")
	args, err := s.command(config)
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	// Sessions may be short, so that tests that wait for one to end are too.
	text := fmt.Sprintf("tickTime=200\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"+
		"maxClientCnxns=0\nminSessionTimeout=400\nmaxSessionTimeout=60000\n", filepath.Join(dir, "data"), port)
	if s.settings != nil {
		more, err := s.settings(dir)
		if err != nil {
			return "", err
		}
		text += more
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	// The shell kills the server when its own stdin ends, and so also when this
	// process dies without a chance to clean up.
	const guard = `"$@" </dev/null & cat >/dev/null; kill -9 $!; wait`
	cmd := exec.Command("sh", append([]string{"-c", guard, "sh"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.stdin, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	s.pid = cmd.Process.Pid
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		cmd.Wait()
	}()
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	if err := awaitServing(addr, s.ended); err != nil {
		text, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("%s does not serve: %w\n%s", s.name, err, text)
	}
	return addr, nil
}

// stop kills the server and removes its files, unless a test failed.
func (s *server) stop(keep bool) {
	if s.stdin != nil {
		s.stdin.Close()
		<-s.ended
	}
	if s.dir != "" && !keep {
		os.RemoveAll(s.dir)
	}
}

// awaitServing waits until the server says that it serves. It asks with srvr, as
// test harnesses do: ZooKeeper may leave the socket of a handshake that comes
// while it starts open for ever.
func awaitServing(addr string, ended <-chan struct{}) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		text, err := srvr(addr)
		if strings.Contains(text, "Mode: ") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("srvr answers %q, %v", text, err)
		}
		select {
		case <-ended:
			return errors.New("it has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func srvr(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// impatientHosts is a HostProvider for one server. go-zookeeper's own makes it
// wait for a second before it goes round its list again, which for a list of one
// is before every reconnect.
type impatientHosts struct {
	mu    sync.Mutex
	addr  string
	fails int
}

func (h *impatientHosts) Init(servers []string) error { h.addr = servers[0]; return nil }
func (h *impatientHosts) Len() int                    { return 1 }

func (h *impatientHosts) Next() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails++; h.fails > 1 {
		time.Sleep(20 * time.Millisecond)
	}
	return h.addr, false
}

func (h *impatientHosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails = 0
}

// usedPorts are those that freePort has returned: servers that are started at the
// same time have not bound theirs yet.
var (
	usedPorts   = make(map[int]bool)
	usedPortsMu sync.Mutex
)

// freePort looks for a port that nobody listens on, below those that the kernel
// gives to outgoing connections. It returns none twice.
func freePort() (int, error) {
	const first, last = 24000, 25000
	start := os.Getpid() * 31 % (last - first)
	usedPortsMu.Lock()
	defer usedPortsMu.Unlock()
	for i := range last - first {
		port := first + (start+i)%(last-first)
		if usedPorts[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			usedPorts[port] = true
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port")
}

func TestMain(m *testing.M) {
	if path := os.Getenv(contenderEnv); path != "" {
		os.Exit(contend(path))
	}
	flag.Parse()
	// The tests with real servers wait most of the time: more of them at once than
	// there are processors.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		flag.Set("test.parallel", "12")
	}
	// Examples cannot skip themselves.
	if err := exampleTarget().missing(); err != nil && os.Getenv("CI") == "" {
		fmt.Println("examples are not run:", err)
		skip := "^Example"
		if also := flag.Lookup("test.skip").Value.String(); also != "" {
			skip += "|" + also
		}
		flag.Set("test.skip", skip)
	}
	code := m.Run()
	for _, s := range servers {
		s.stop(code != 0)
	}
	os.Exit(code)
}

// exampleTarget is the server of the examples: lockkeeper, or else ZooKeeper.
func exampleTarget() *server {
	last := servers[len(servers)-1]
	if last.missing() == nil {
		return last
	}
	return servers[0]
}

func exampleServer() (string, error) { return exampleTarget().start() }

// needTool ends a test that needs a file of another language that is not there.
func needTool(t *testing.T, file, pkg string) {
	t.Helper()
	goOnly(t)
	if _, err := os.Stat(file); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s: apt-get install %s", file, pkg)
		}
		t.Skipf("%s: apt-get install %s", file, pkg)
	}
}

// syncBuffer collects the output of a process.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
