package kazoosuite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

var (
	targetFlag = flag.String("target", "lockkeeper", "what to test: lockkeeper, or zookeeper for the reference")
	testsFlag  = flag.String("tests", "kazoo.tests", "which tests: a module, or module::class::test")
	keepFlag   = flag.Bool("keep", false, "keep the logs of the servers also when the test passes")
)

const (
	// python is the one that Debian's package python3-kazoo is for; it need not be the first on the
	// PATH.
	python = "/usr/bin/python3"
	// modules are the imports of kazoo's tests, with the Debian packages that have them.
	modules = "kazoo.tests pytest mock objgraph eventlet gevent puresasl"
	missing = "python3-kazoo python3-pytest python3-mock python3-objgraph python3-eventlet python3-gevent " +
		"python3-pure-sasl"

	// suiteTests is about the number of kazoo's tests; a run with much fewer has not found them.
	suiteTests = 450
	// patience is for all of them, where the reference takes 3 minutes.
	patience = 12 * time.Minute
	// testPatience is for one test; the slowest takes 10 s. excludedPatience is for one that is not
	// expected to pass: some of these hang.
	testPatience     = time.Minute
	excludedPatience = 8 * time.Second

	// maxAgain is the number of tests that may be tried a second time. kazoo's tests wait for their
	// conditions, but not for long (5 s for a session that is moved, 15 s for a server that
	// starts), which a busy machine can exceed. A fault of a server fails a second time, or fails
	// more of them.
	maxAgain = 5
)

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// findPython names the missing requirements of kazoo's tests.
func findPython() error {
	err := exec.Command(python, "-B", "-c", "import "+strings.ReplaceAll(modules, " ", ",")).Run()
	if err != nil {
		return fmt.Errorf("kazoo's tests import %s: %w (apt-get install %s)", modules, jepsen.ErrMissing, missing)
	}
	return nil
}

func TestKazoo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	jepsen.Need(t, findPython())
	var target jepsen.Target
	var err error
	switch *targetFlag {
	case "lockkeeper":
		target, err = tools.Lockkeeper()
	case "zookeeper":
		target, err = jepsen.ZooKeeper()
	default:
		err = fmt.Errorf("-target: there is no %q", *targetFlag)
	}
	jepsen.Need(t, err)
	// Side by side: the tests mostly wait.
	ports, err := freePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one", "three"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t, target, 1+2*i, excluded(t, target.Name, name))
			s.firstPort = ports[i]
			s.run(nil)
			if again := s.failed(); len(again) > 0 && len(again) <= maxAgain {
				t.Logf("figures: %s, %d servers: tried again: %s", target.Name, s.servers, strings.Join(again, " "))
				s.run(again)
			}
			s.judge()
		})
	}
}

// suite is one run of kazoo's tests.
type suite struct {
	t        *testing.T
	target   jepsen.Target
	servers  int
	excluded map[string]string // the reasons, by test
	dir      string

	firstPort int
}

func newSuite(t *testing.T, target jepsen.Target, servers int, excluded map[string]string) *suite {
	dir, err := os.MkdirTemp("", "lockkeeper-kazoo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || *keepFlag {
			t.Logf("logs are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []string{"logs", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &suite{t: t, target: target, servers: servers, excluded: excluded, dir: dir}
}

// file is a file of the run.
func (s *suite) file(name string) string { return filepath.Join(s.dir, name) }

// run runs some of the tests, all of them if only is empty. That some fail is for judge to see.
func (s *suite) run(only []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	here, err := filepath.Abs(".")
	if err != nil {
		s.t.Fatal(err)
	}
	// The configuration file is the last word, and the stand-in appends its own.
	words := s.target.Command("").Args
	// -B: compiled tests would be written into the installed package.
	cmd := exec.Command(python, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-p", "standin",
		"--rootdir", s.dir, "-q", "--tb=short", "--pyargs", *testsFlag)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(),
		"PYTHONPATH="+here,
		"TMPDIR="+s.file("tmp"), // where kazoo puts its servers
		"STANDIN_COMMAND="+s.list(words[:len(words)-1]),
		"STANDIN_LOGS="+s.file("logs"),
		"STANDIN_RESULTS="+s.file("results"),
		"STANDIN_EXCLUDED="+s.list(slices.Sorted(maps.Keys(s.excluded))),
		"STANDIN_ONLY="+s.list(only),
		fmt.Sprintf("STANDIN_PATIENCE=%d", int(testPatience.Seconds())),
		fmt.Sprintf("STANDIN_EXCLUDED_PATIENCE=%d", int(excludedPatience.Seconds())),
		"ZOOKEEPER_VERSION=3.8.0", "ZOOKEEPER_CLASSPATH=unused", "TRAVIS=", "ZOOKEEPER_JAAS_AUTH=",
		fmt.Sprintf("ZOOKEEPER_CLUSTER_SIZE=%d", s.servers),
		fmt.Sprintf("ZOOKEEPER_PORT_OFFSET=%d", s.firstPort),
	)
	began := time.Now()
	err = jepsen.Run(ctx, "pytest", cmd, s.file("pytest.log"))
	s.t.Logf("figures: pytest ran for %.0f s", time.Since(began).Seconds())
	if ctx.Err() != nil {
		s.t.Error(err)
	}
}

// list is a list of words for the stand-in.
func (s *suite) list(words []string) string {
	s.t.Helper()
	text, err := json.Marshal(append([]string{}, words...)) // [] and not null
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// result is the result of one test, as the stand-in records it.
type result struct {
	ID      string
	Outcome string // passed, failed, skipped
	Seconds float64
	Text    string
}

// record is all that the stand-in wrote down.
type record struct {
	collected []string
	results   map[string]result
	faults    []string
}

func (s *suite) read() record {
	s.t.Helper()
	file, err := os.Open(s.file("results"))
	if err != nil {
		s.t.Fatalf("%v; the end of pytest's output:\n%s", err, tail(s.file("pytest.log")))
	}
	defer file.Close()
	r := record{results: make(map[string]result)}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Collected []string
			Fault     string
			result
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			s.t.Fatalf("results: %v: %.200s", err, lines.Text())
		}
		switch {
		case line.Collected != nil && r.collected == nil: // the second run has some of them
			r.collected = line.Collected
		case line.Collected != nil:
		case line.Fault != "":
			r.faults = append(r.faults, line.Fault)
		default:
			r.results[line.ID] = line.result
		}
	}
	if err := lines.Err(); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// failed are the tests that should have passed and did not.
func (s *suite) failed() []string {
	s.t.Helper()
	r := s.read()
	var all []string
	for _, id := range r.collected {
		if s.excluded[id] == "" && r.results[id].Outcome != "passed" {
			all = append(all, id)
		}
	}
	return all
}

// judge compares the passed tests with the expected ones.
func (s *suite) judge() {
	s.t.Helper()
	r := s.read()
	whole := *testsFlag == "kazoo.tests"
	if whole && len(r.collected) < suiteTests {
		s.t.Errorf("only %d tests were found; the end of pytest's output:\n%s", len(r.collected),
			tail(s.file("pytest.log")))
	}
	passed, listed, seconds := 0, 0, 0.0
	for _, id := range r.collected {
		res, ran := r.results[id]
		reason, excluded := s.excluded[id]
		seconds += res.Seconds
		switch {
		case !ran:
			s.t.Errorf("%s: did not come to an end", id)
		case res.Outcome == "passed" && excluded:
			s.t.Errorf("%s passes: take it out of excluded.txt (%s)", id, reason)
		case res.Outcome == "passed":
			passed++
		case excluded:
			listed++
		default:
			s.t.Errorf("%s: %s after %.1f s:\n%s", id, res.Outcome, res.Seconds, res.Text)
		}
	}
	for id := range s.excluded {
		if whole && !slices.Contains(r.collected, id) {
			s.t.Errorf("excluded.txt: kazoo has no test %s", id)
		}
	}
	for _, fault := range r.faults {
		s.t.Error(fault)
	}
	s.complaints()
	s.t.Logf("figures: %s, %d servers: of %d tests %d passed, %d are listed as not passing, in %.0f s",
		s.target.Name, s.servers, len(r.collected), passed, listed, seconds)
}

// complaints fails the test for faults of the servers in their logs.
func (s *suite) complaints() {
	s.t.Helper()
	logs, err := filepath.Glob(s.file("logs/*"))
	if err != nil || len(logs) == 0 {
		s.t.Errorf("no logs of servers (%v)", err)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			s.t.Error(err)
			continue
		}
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			for _, distress := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: ", "SIGQUIT: "} {
				if strings.HasPrefix(line, distress) {
					s.t.Errorf("%s: %s", name, strings.Join(lines[i:min(len(lines), i+40)], "\n"))
				}
			}
		}
	}
}

// tail is the end of a text file.
func tail(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// freePorts finds n blocks of free ports and returns the first port of each. kazoo gives four to
// each of up to three servers, ten apart. They lie below those that the kernel takes for outgoing
// connections, so that a server that is stopped gets its own back.
func freePorts(n int) ([]int, error) {
	const first, last, block = 21000, 25000, 30
	start := os.Getpid() * 37 % (last - first)
	var found []int
	for i := 0; i < last-first && len(found) < n; i += block {
		port := first + (start+i)%(last-first)
		if blockIsFree(port, block) {
			found = append(found, port)
		}
	}
	if len(found) < n {
		return nil, errors.New("no free ports")
	}
	return found, nil
}

func blockIsFree(first, size int) bool {
	for port := first; port < first+size; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
