package pages

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// unrun are the blocks that are not run, by page and beginning, with the reason. Their commands are
// compared with the flags that exist all the same.
var unrun = []struct{ page, begins, reason string }{
	{"docs/migrate.md", "lockkeeper export", "needs a stopped member: TestImport in jepsen runs it"},
	{"docs/migrate.md", "lockkeeper serve", "needs data of ZooKeeper: TestImport in jepsen runs it"},
	{"docs/operations.md", "lockkeeper snapshot save", "needs a super user and an open HTTP port: TestSnapshotCommand runs it"},
	{"docs/operations.md", "lockkeeper snapshot restore", "ends all sessions: TestSnapshotCommand runs it"},
	{"docs/operations.md", "lockkeeper status -servers HOSTS", "needs hosts: TestStatusMayStop in cmd/lockkeeper runs it"},
	{"README.md", "for i in", "TestReadme in jepsen runs it"},
	{"README.md", "export LOCKKEEPER_SERVERS", "TestReadme in jepsen runs it"},
	{"README.md", "go run ./cmd/lockkeeper demo", "it goes on until Ctrl-C: TestDemo in cmd/lockkeeper runs it"},
	{"README.md", "go run ./cmd/lockkeeper lock", "they need the server of port 2181: TestReadme in jepsen runs such"},
	{"README.md", "go run ./cmd/lockkeeper", "it takes port 2181; TestServeWithoutFile in cmd/lockkeeper starts the same"},
	{"README.md", "./test", "it runs all tests"},
	{"docs/locks.md", "export LOCKKEEPER_SERVERS", "TestReadme in jepsen runs it"},
	{"docs/locks.md", "go mod edit", "TestReadme in jepsen does it, with the path of this module"},
	{"docs/fences.md", "lockkeeper fence", "listens until it is stopped: TestFence in cmd/lockkeeper runs it"},
	{"docs/attack.md", "go run ./cmd/jepsen", "takes minutes; TestAttacks in jepsen/attack plays it"},
	{"docs/jepsen.md", "go run ./cmd/jepsen", "takes minutes; TestRun in cmd/jepsen runs shorter ones"},
	{"docs/guarantees.md", "go run ./cmd/jepsen", "takes minutes, and needs ZooKeeper; TestLiveLoneLeader in recipes shows the same leader"},
	{"docs/simulation.md", "go run ./cmd/jepsen", "takes hours; ./test runs shorter ones"},
	{"docs/model.md", "go run ./cmd/jepsen", "needs the sources; TestModel in cmd/jepsen runs shorter ones"},
	{"docs/split-brain.md", "go run ./cmd/jepsen", "takes minutes; the tests of jepsen/splitbrain run shorter ones"},
	{"docs/lock-lab.md", "go run ./cmd/jepsen", "takes minutes; TestBrief in jepsen/locklab plays the short form"},
	{"docs/performance.md", "jepsen/compare.sh", "takes minutes, on a machine that does nothing else"},
	{"docs/deploy.md", "install ", "needs root and systemd; TestUnit in deploy checks the unit"},
}

// readings are the replacements in a block before it is run: addresses and files of the page by the
// test's.
func (s *stage) readings() *strings.Replacer {
	c := s.cluster.Members()
	return strings.NewReplacer(
		"127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183", s.cluster.Servers(),
		"server.4=10.0.0.4:2888:3888;2181", s.newLine,
		"127.0.0.1:8080", c[0].HTTPAddr, "10.0.0.1:8080", c[0].HTTPAddr,
		"127.0.0.1:2181", c[0].ClientAddr,
		"/etc/lockkeeper/", s.dir+"/", "A,B,C", s.cluster.Servers(), "-duration 4s", "-duration 100ms",
		"-tls-ca ca.pem -tls-cert m.pem -tls-key m.key", "", // the members of the test speak no TLS
	)
}

// stage is where the commands run: a directory, a cluster of three, and a fourth member that is to
// be added.
type stage struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	cluster *jepsen.Cluster
	newLine string // the server line of the fourth
}

func newStage(t *testing.T, target jepsen.Target) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a hang ends the test
	t.Cleanup(cancel)
	s := &stage{t: t, ctx: ctx, dir: t.TempDir()}
	var err error
	s.cluster, err = jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: 3, Dir: t.TempDir(), Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.cluster.Logs())
		}
	})
	s.write("super.txt", jepsen.AdminAuth+"\n")
	s.write("zoo.cfg", "dataDir="+s.dir+"/data\nclientPort=2181\nlogStore=wal\n")
	if err := os.Symlink(target.Tool().Path, filepath.Join(s.dir, "lockkeeper")); err != nil {
		t.Fatal(err)
	}
	s.startFourth(target)
	return s
}

func (s *stage) write(name, text string) {
	s.t.Helper()
	name = filepath.Join(s.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		s.t.Fatal(err)
	}
}

// startFourth starts a member as docs/cluster.md says before it is added.
func (s *stage) startFourth(target jepsen.Target) {
	s.t.Helper()
	ports, err := freeport.Take(3)
	if err != nil {
		s.t.Fatal(err)
	}
	s.newLine = fmt.Sprintf("server.4=127.0.0.1:%d:%d:participant;127.0.0.1:%d", ports[0], ports[1], ports[2])
	text := "tickTime=1000\ndataDir=" + s.dir + "/fourth\nreconfigEnabled=true\n4lw.commands.whitelist=*\n"
	for _, m := range s.cluster.Members() {
		text += m.Line() + "\n"
	}
	s.write("fourth/myid", "4\n")
	s.write("fourth.cfg", text+s.newLine+"\n")
	p, err := jepsen.StartProcess("member 4", target.Command(filepath.Join(s.dir, "fourth.cfg")), filepath.Join(s.dir, "fourth.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("member 4:\n%s", p.LogTail(8<<10))
		}
		if err := p.Kill(); err != nil {
			s.t.Error(err)
		}
	})
}

// play runs the blocks of a page in one shell.
func (s *stage) play(all []block) {
	s.t.Helper()
	var script strings.Builder
	script.WriteString("set -eux\n")
	for _, b := range all {
		script.WriteString(s.readings().Replace(b.text) + "\n")
	}
	cmd := exec.CommandContext(s.ctx, "bash", "-c", script.String())
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.dir+":"+os.Getenv("PATH"), "LOCKKEEPER_SERVERS="+s.cluster.Servers(),
		"XDG_CONFIG_HOME="+filepath.Join(s.dir, "config"))
	cmd.Stdin = strings.NewReader("a password\na password\n")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("%s:%d: %v\n%s", all[0].page, all[0].line, err, out)
	} else if testing.Verbose() {
		s.t.Logf("%s\n%s", all[0].page, out)
	}
}

// TestPages runs every command of every page, or says why not.
func TestPages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		jepsen.Need(t, fmt.Errorf("curl: %w (apt-get install curl)", jepsen.ErrMissing))
	}
	module, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	target, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	check := newChecker(t, module, target.Tool().Path)
	s := newStage(t, target)
	const changing = "cluster.md"
	used := map[int]bool{}
	var plays [][]block
	for _, page := range pages(t, module) {
		text, err := os.ReadFile(filepath.Join(module, page))
		if err != nil {
			t.Fatal(err)
		}
		var run []block
		all := blocks(page, string(text))
		for _, b := range slices.Concat(all, spans(page, string(text))) {
			for _, line := range b.commands() {
				if err := check.check(line); err != nil {
					t.Errorf("%s:%d: %s: %v", page, b.line, line, err)
				}
			}
		}
		for _, b := range all {
			i := slices.IndexFunc(unrun, func(u struct{ page, begins, reason string }) bool {
				return u.page == page && strings.HasPrefix(b.text, u.begins)
			})
			if i < 0 {
				run = append(run, b)
			}
			used[i] = true
		}
		if len(run) > 0 {
			plays = append(plays, run)
		}
	}
	// The page that changes the members comes last: the others want all of them to serve.
	slices.SortStableFunc(plays, func(a, b []block) int {
		return cmp.Compare(strings.Count(a[0].page, changing), strings.Count(b[0].page, changing))
	})
	for _, run := range plays {
		s.play(run)
	}
	for i, u := range unrun {
		if !used[i] {
			t.Errorf("no block of %s begins with %q: it needs no reason for not being run", u.page, u.begins)
		}
	}
}

// pages are all pages with commands for users and developers.
func pages(t *testing.T, module string) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(module, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		for _, file := range found {
			name, err := filepath.Rel(module, file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(name))
		}
	}
	return all
}
