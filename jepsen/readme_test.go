package jepsen

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
)

// TestReadme follows the instructions of README.md and docs/locks.md for a new user: it makes
// n1.cfg, starts three members with the shell commands of the README, and runs the programs of
// docs/locks.md in shell, Java, Python and Go, each alone and then each pair against each other.
// Only ports and directories differ.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	r := newReadme(t)
	r.startCluster()
	programs := []*readmeProgram{
		{name: "shell", line: "The shell has the lock", build: r.shell},
		{name: "java", line: "Java has the lock", build: r.java},
		{name: "python", line: "Python has the lock", build: r.python},
		{name: "go", line: "Go has the lock: true true", build: r.golang},
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			p.command = p.build(t)
			r.run(t, p.line, p.command())
		})
	}
	for _, first := range programs {
		for _, second := range programs {
			t.Run(second.name+" while "+first.name+" holds", func(t *testing.T) { r.exclude(t, first, second) })
		}
	}
	t.Run("strangers", func(t *testing.T) { r.strangers(t, programs[0]) })
	r.checkLockIsFree()
	r.stopCluster()
}

// readmeProgram is a program of the README that prints a line while it has the lock.
type readmeProgram struct {
	name    string
	line    string
	build   func(*testing.T) func() *exec.Cmd
	command func() *exec.Cmd // nil if build has skipped the program, or failed
}

// readme is the blocks of readmePages, with a cluster that the README describes.
type readme struct {
	t      *testing.T
	ctx    context.Context
	module string // the directory that has README.md
	dir    string
	prefix string            // of the client ports: prefix+"1", ...
	blocks map[string]string // the fenced blocks by language, ports replaced

	cluster *Process // the shell that started the members
	stop    *os.File // its standard input
}

// readmePages are the pages with the fenced blocks that the test runs. A block may stand on both of
// them.
var readmePages = []string{"README.md", "docs/locks.md"}

// readmeLanguages are the languages of the fenced blocks. The configuration has none.
var readmeLanguages = []string{"", "bash", "go", "java", "python", "sh"}

func newReadme(t *testing.T) *readme {
	t.Helper()
	r := &readme{t: t, ctx: testTimeout(t, 3*time.Minute), dir: KeptDir(t, *keepFlag), blocks: make(map[string]string)}
	var err error
	if r.module, err = filepath.Abs(".."); err != nil {
		t.Fatal(err)
	}
	if r.prefix, err = portPrefix(); err != nil {
		t.Fatal(err)
	}
	peerPrefix, err := portPrefix()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.NewReplacer(
		"218", r.prefix, // clientPort, in all its spellings
		"127.0.0.1:288", "127.0.0.1:"+peerPrefix,
		"/tmp/lk", filepath.Join(r.dir, "lk"),
	)
	for _, page := range readmePages {
		text, err := os.ReadFile(filepath.Join(r.module, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range fencedBlocks(string(text)) {
			if b.language == "ini" { // a unit of systemd
				continue
			}
			if strings.HasSuffix(b.language, " fenced") { // TestLocksPage in jepsen/clients runs it
				continue
			}
			commands := elsewhere.Replace(b.text)
			if known, double := r.blocks[b.language]; double && known != commands ||
				!slices.Contains(readmeLanguages, b.language) {
				t.Errorf("%s has a block (language %q) that this test does not run:\n%s", page, b.language, b.text)
			}
			r.blocks[b.language] = commands
		}
	}
	for _, language := range readmeLanguages {
		if r.blocks[language] == "" {
			t.Errorf("%q have no block in the language %q", readmePages, language)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return r
}

// portPrefix finds free ports that differ only in their last digit, 1 to 3, as the README's do, and
// returns the rest of their digits.
func portPrefix() (string, error) {
	for {
		port, err := freeport.Take(1)
		if err != nil {
			return "", err
		}
		if port[0]%10 != 1 {
			continue
		}
		next, err := freeport.Take(2)
		if err != nil {
			return "", err
		}
		if next[0] == port[0]+1 && next[1] == port[0]+2 {
			return fmt.Sprint(port[0] / 10), nil
		}
	}
}

// A block is a fenced code block of a Markdown file.
type block struct{ language, text string }

func fencedBlocks(markdown string) []block {
	const fence = "```"
	var blocks []block
	inside := false
	for line := range strings.Lines(markdown) {
		rest, isFence := strings.CutPrefix(line, fence)
		switch {
		case isFence && !inside:
			blocks = append(blocks, block{language: strings.TrimSpace(rest)})
			inside = true
		case isFence:
			inside = false
		case inside:
			blocks[len(blocks)-1].text += line
		}
	}
	return blocks
}

// write makes a file in the test's directory.
func (r *readme) write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// aroundReadme is the shell script that runs the commands of the README, which
// start members in the background, where they are nobody's Process. The line
// "stop" on standard input ends them as a user does, the end of the input (this
// test has died) as kill -9 does. The shell around it takes the kernel's signal
// at the death of this test (see procAttr), and leaves the script its time.
const aroundReadme = `trap : TERM
sh -c 'exec 3<&0
%s
trap : TERM
read -r word <&3
[ "$word" = stop ] || kill -9 0
kill 0
wait'
exit $?
`

// startCluster starts three members as the README says and waits until each
// of them serves clients.
func (r *readme) startCluster() {
	r.t.Helper()
	target, err := tools.Lockkeeper()
	Need(r.t, err)
	if err := os.Symlink(target.command("").Path, filepath.Join(r.dir, "lockkeeper")); err != nil {
		r.t.Fatal(err)
	}
	r.write(r.t, "n1.cfg", r.blocks[""])
	stdin, stop, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	defer stdin.Close()
	if strings.Contains(r.blocks["sh"], "'") {
		r.t.Fatal("the shell commands have a quote, which aroundReadme cannot hold")
	}
	script := r.write(r.t, "script", fmt.Sprintf(aroundReadme, strings.TrimSpace(r.blocks["sh"])))
	cmd := exec.Command("sh", script)
	cmd.Dir, cmd.Stdin = r.dir, stdin
	if r.cluster, err = StartProcess("the README's shell", cmd, filepath.Join(r.dir, "members.log")); err != nil {
		_ = stop.Close()
		r.t.Fatal(err)
	}
	r.stop = stop
	r.t.Cleanup(func() {
		_ = r.stop.Close()
		<-r.cluster.Done()
		if r.t.Failed() {
			r.t.Logf("the end of the members' log:\n%s", r.cluster.LogTail(8<<10))
		}
	})
	modes := make(map[string]int)
	for i := 1; i <= 3; i++ {
		err := Poll(r.ctx, 20*time.Millisecond, func() error {
			// With the line feed that echo sends.
			answer, err := FourLetter(r.ctx, fmt.Sprintf("127.0.0.1:%s%d", r.prefix, i), "srvr\n")
			if err != nil {
				return err
			}
			mode, err := parseMode(answer)
			modes[mode]++
			return err
		})
		if err != nil {
			r.t.Fatalf("member %d does not serve: %v", i, err)
		}
	}
	if modes["leader"] != 1 || modes["follower"] != 2 {
		r.t.Errorf("the members say they are %v, want one leader and two followers", modes)
	}
}

// stopCluster has the members end by themselves.
func (r *readme) stopCluster() {
	r.t.Helper()
	if _, err := r.stop.WriteString("stop\n"); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.cluster.Done():
	case <-r.ctx.Done():
		r.t.Fatal("the members do not stop")
	}
	log := r.cluster.LogTail(1 << 20)
	if n := strings.Count(log, "lockkeeper listens on "); n != 3 {
		r.t.Errorf("%d members said that they listen, want 3", n)
	}
	if r.cluster.err != nil {
		r.t.Errorf("the members, stopped: %v", r.cluster.err)
	}
}

// run runs one of the README's programs, and checks that it succeeds and that
// it prints the line want.
func (r *readme) run(t *testing.T, want string, cmd *exec.Cmd) {
	t.Helper()
	cmd.Dir = r.dir
	name := filepath.Base(t.Name())
	p, err := StartProcess("the README's "+name, cmd, filepath.Join(r.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-p.Done():
	case <-r.ctx.Done():
		t.Fatalf("it does not end; it printed:\n%s", p.LogTail(4<<10))
	}
	out := p.LogTail(64 << 10)
	if p.err != nil {
		t.Fatalf("%v; it printed:\n%s", p.err, out)
	}
	if !slices.Contains(strings.Split(out, "\n"), want) {
		t.Errorf("it printed:\n%s\nwant the line %q", out, want)
	}
}

func (r *readme) shell(t *testing.T) func() *exec.Cmd {
	script := r.write(t, "report.sh", r.blocks["bash"])
	return func() *exec.Cmd { return exec.Command("sh", "-e", script) }
}

func (r *readme) java(t *testing.T) func() *exec.Cmd {
	_, err := tools.Curator()
	Need(t, err)
	jars, err := classPath(curatorJars...)
	Need(t, err)
	source := r.write(t, "Report.java", r.blocks["java"])
	if out, err := exec.CommandContext(r.ctx, "javac", "-cp", jars, "-d", r.dir, source).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	classes := strings.Join([]string{r.dir, jars}, string(os.PathListSeparator))
	return func() *exec.Cmd { return exec.Command("java", append(javaFlags(), "-cp", classes, "Report")...) }
}

func (r *readme) python(t *testing.T) func() *exec.Cmd {
	kazoo, err := tools.Kazoo()
	Need(t, err)
	script := r.write(t, "report.py", r.blocks["python"])
	return func() *exec.Cmd {
		cmd := exec.Command(kazoo.Command[0], script)
		// So that print writes before the lock is released.
		cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
		return cmd
	}
}

// golang builds the Go program in a module of its own, as the README says. Its go mod tidy may ask
// the network, so this takes over the contents of this module's go.mod and go.sum.
func (r *readme) golang(t *testing.T) func() *exec.Cmd {
	dir := filepath.Dir(r.write(t, "report/main.go", r.blocks["go"]))
	sums, err := os.ReadFile(filepath.Join(r.module, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "report/go.sum", string(sums))
	list := exec.CommandContext(r.ctx, "go", "list", "-m")
	list.Dir = r.module
	list.Env = append(os.Environ(), "GOWORK=off")
	path, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	module := strings.TrimSpace(string(path))
	for _, args := range [][]string{
		{"mod", "init", "report"},
		{"mod", "edit", "-require=" + module + "@v0.0.0", "-replace=" + module + "=" + r.module},
		{"build", "-mod=mod", "-o", filepath.Join(r.dir, "report.bin"), "."},
	} {
		cmd := exec.CommandContext(r.ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-buildvcs=false", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
	return func() *exec.Cmd { return exec.Command(filepath.Join(r.dir, "report.bin")) }
}

// checkLockIsFree fails the test for everything that the programs left behind.
func (r *readme) checkLockIsFree() {
	r.t.Helper()
	conn := r.connect(r.t)
	defer conn.Close()
	children, err := contendersOf(conn)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(children) != 0 {
		r.t.Errorf("%s has %q after all programs have ended", readmeLock, children)
	}
}
