package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
	"lockkeeper/server"
)

const patience = 20 * time.Second

// cluster starts a member and has the commands of this test use it. Its sessions may be as short as a second.
func cluster(t *testing.T, change func(*server.Config)) *server.Server {
	t.Helper()
	cfg := server.Config{ClientAddr: "127.0.0.1:0", DataDir: t.TempDir(), TickTime: 500 * time.Millisecond, FourLetterWords: []string{"cons"}}
	if change != nil {
		change(&cfg)
	}
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	t.Setenv(serversVariable, s.ClientAddr().String())
	return s
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// wait is the exit status of a command that ends by itself, and the rest of what it printed.
func (p *process) wait() (status int, rest []string) {
	p.t.Helper()
	late := time.AfterFunc(patience, func() { _ = p.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	for l := range p.lines {
		rest = append(rest, l)
	}
	_ = p.Wait() // the status says more
	return p.ProcessState.ExitCode(), rest
}

// TestEveryCommandNamesItsFlags, and none that does not exist.
func TestEveryCommandNamesItsFlags(t *testing.T) {
	for _, c := range commands() {
		for _, flag := range regexp.MustCompile(`(?m)^\t-(\S+)`).FindAllStringSubmatch(c.usage, -1) {
			// Whether 1 is a good value or not, it does not come to anything.
			if _, _, stderr := invoke(c.name, "-"+flag[1]+"=1", "-h"); strings.Contains(stderr, "not defined") {
				t.Errorf("%s has no flag -%s", c.name, flag[1])
			}
		}
	}
}

// TestLockUsage: a wrong command line never ends with a status that CMD could have meant.
func TestLockUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"lock"}, "a path and a command are needed"},
		{[]string{"lock", "/a"}, "a path and a command are needed"},
		{[]string{"lock", "/a", "--"}, "a path and a command are needed"},
		{[]string{"lock", "a", "true"}, `begins with / and has a name behind it, unlike "a"`},
		{[]string{"lock", "/", "true"}, `unlike "/"`},
		{[]string{"lock", "-x", "/a", "true"}, "flag provided but not defined: -x"},
		{[]string{"lock", "-on-lost", "panic", "/a", "true"}, `-on-lost must be kill, warn or continue, not "panic"`},
		{[]string{"lock", "-shared", "-n", "2", "/a", "true"}, "-shared and -n are different locks"},
		{[]string{"lock", "-n", "-1", "/a", "true"}, "-n: there must be at least one lease"},
		{[]string{"lock", "-delay", "2h", "/a", "true"}, "-delay: must be between 0 and 1m0s"},
		{[]string{"lock", "-session", "1ms", "/a", "true"}, "-session: 1ms is less than a second"},
		{[]string{"lock", "-servers", "", "/a", "true"}, "-servers: no server is named"},
		{[]string{"lock", "-servers", "h:x", "/a", "true"}, `-servers: "h:x" is not host:port`},
		{[]string{"lock", "-servers", "h:1/root", "/a", "true"}, "chroot"},
		{[]string{"elect", "-auth", "me", "/a", "true"}, "-auth: must be user:password"},
	} {
		status, stdout, stderr := invoke(c.args...)
		if status != exitTrouble || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %q, %q", c.args, status, stdout, stderr)
		}
	}
	if status, _, stderr := invoke("lock", "/a", "no-such-command"); status != exitNotFound || !strings.Contains(stderr, "no-such-command") {
		t.Errorf("no command: %d %q", status, stderr)
	}
	if status, _, _ := invoke("lock", "/a", "/etc/passwd"); status != exitCannot {
		t.Errorf("a file that is no command: %d", status)
	}
}

func TestLockPassesStatusAndEnvironment(t *testing.T) {
	cluster(t, nil)
	var tokens []int64
	for range 2 {
		p := start(t, "", "lock", "/l", "--", "sh", "-c", `echo "$LOCKKEEPER_LOCK $LOCKKEEPER_TOKEN"; exit 7`)
		status, lines := p.wait()
		lock, token, _ := strings.Cut(strings.Join(lines, "\n"), " ")
		n, err := strconv.ParseInt(token, 10, 64)
		if status != 7 || lock != "/l" || err != nil || p.stderr.Len() > 0 {
			t.Errorf("status %d, %q, %s", status, lines, p.stderr.String())
		}
		tokens = append(tokens, n)
	}
	if tokens[0] <= 0 || tokens[1] <= tokens[0] {
		t.Errorf("tokens %v", tokens)
	}
	if status, _ := start(t, "", "lock", "/l", "sh", "-c", "kill -9 $$").wait(); status != exitSignal+int(syscall.SIGKILL) {
		t.Errorf("status %d of a command that a signal ended", status)
	}
}

// TestLockExcludes: many processes, one counter in a file, no update lost.
func TestLockExcludes(t *testing.T) {
	cluster(t, nil)
	file := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(file, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	const programs = 8
	var all []*process
	for range programs {
		all = append(all, start(t, "", "lock", "/l", "sh", "-c", fmt.Sprintf(`n=$(cat %s); sleep 0.02; echo $((n+1)) > %[1]s`, file)))
	}
	for _, p := range all {
		if status, _ := p.wait(); status != 0 {
			t.Errorf("status %d", status)
		}
	}
	if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(programs) {
		t.Errorf("the counter is %q, %v", got, err)
	}
}

// holding starts a command that holds a lock, and returns when it does.
func holding(t *testing.T, args ...string) *process {
	t.Helper()
	p := start(t, "", append(args, "sh", "-c", `trap 'echo got TERM; exit 3' TERM; trap 'echo got USR1' USR1; echo runs $$; while :; do sleep 0.02; done`)...)
	if l := p.line(); !strings.HasPrefix(l, "runs ") {
		t.Fatalf("it says %q", l)
	}
	return p
}

func TestLockTimeout(t *testing.T) {
	cluster(t, nil)
	p := holding(t, "lock", "/l")
	late := start(t, "", "lock", "-timeout", "0", "/l", "echo", "ran")
	if status, lines := late.wait(); status != exitTimedOut || len(lines) > 0 {
		t.Errorf("-timeout 0: status %d, %q", status, lines)
	}
	expectTimeout(t, "/l", "echo", "ran")
	// Another kind of holding, several at a time.
	for _, args := range [][]string{{"-shared", "/rw"}, {"-n", "2", "/sem"}} {
		one := holding(t, append([]string{"lock"}, args...)...)
		two := holding(t, append([]string{"lock"}, args...)...)
		_, _ = one.signal(syscall.SIGTERM), two.signal(syscall.SIGTERM)
	}
	one, two := holding(t, "lock", "-n", "2", "/sem"), holding(t, "lock", "-n", "2", "/sem")
	expectTimeout(t, "-n", "2", "/sem", "echo", "ran")
	_, _, _ = one.signal(syscall.SIGTERM), two.signal(syscall.SIGTERM), p.signal(syscall.SIGTERM)
}

// expectTimeout runs the command lock on what others hold, with a timeout that is enough to connect on this machine at this time: with less, the
// cluster was not reached.
func expectTimeout(t *testing.T, args ...string) {
	t.Helper()
	for timeout := 50 * time.Millisecond; ; timeout *= 2 {
		status, lines := start(t, "", append([]string{"lock", "-timeout", timeout.String()}, args...)...).wait()
		if status == exitTrouble && timeout < patience/2 {
			continue
		}
		if status != exitTimedOut || len(lines) > 0 {
			t.Errorf("-timeout %s %q: status %d, %q", timeout, args, status, lines)
		}
		return
	}
}

func TestLockHandsSignalsOn(t *testing.T) {
	cluster(t, nil)
	p := holding(t, "lock", "/l")
	if err := p.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if l := p.line(); l != "got USR1" {
		t.Errorf("it says %q", l)
	}
	if status := p.signal(syscall.SIGTERM); status != 3 {
		t.Errorf("status %d", status)
	}
	// One that waits ends with the signal, and leaves nothing in the queue.
	holder := holding(t, "lock", "/l")
	waiter := start(t, "", "lock", "/l", "true")
	await(t, "a waiter", func() bool { return len(contenders(t, "/l")) == 2 })
	if status := waiter.signal(syscall.SIGINT); status != exitSignal+int(syscall.SIGINT) {
		t.Errorf("a waiter's status: %d", status)
	}
	if n := len(contenders(t, "/l")); n != 1 {
		t.Errorf("%d contenders are left", n)
	}
	holder.signal(syscall.SIGTERM)
}

// contenders asks the command locks.
func contenders(t *testing.T, path string) []contender {
	t.Helper()
	status, stdout, stderr := invoke("locks", "-json", path)
	if status != exitOK {
		t.Fatalf("locks: %d %s", status, stderr)
	}
	var l lockState
	if stdout == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(stdout), &l); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	return l.Contenders
}

// TestLockLost: when the cluster is gone, the command is ended, gently and then not.
func TestLockLost(t *testing.T) {
	s := cluster(t, nil)
	gentle := holding(t, "lock", "-session", "1s", "/a")
	deaf := start(t, "", "lock", "-session", "1s", "-kill-after", "50ms", "/b", "sh", "-c", `trap '' TERM; echo runs; while :; do sleep 0.02; done`)
	deaf.line()
	warned := start(t, "", "lock", "-session", "1s", "-on-lost", "warn", "-json", "/c", "sh", "-c", `echo runs; read line; exit 5`)
	_ = warned
	warned.line()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if status, lines := gentle.wait(); status != exitLost || strings.Join(lines, "|") != "got TERM" {
		t.Errorf("status %d, %q", status, lines)
	}
	if !strings.Contains(gentle.stderr.String(), "lockkeeper lock: lost /a: recipes: nothing heard from the cluster") {
		t.Errorf("it says: %s", gentle.stderr.String())
	}
	if status, _ := deaf.wait(); status != exitLost {
		t.Errorf("one that does not listen: status %d", status)
	}
	if status, _ := warned.wait(); status != 5 { // its input is at its end
		t.Errorf("-on-lost warn: status %d", status)
	}
}

// TestLockKilled: what is run ends when its lock's keeper is killed.
func TestLockKilled(t *testing.T) {
	cluster(t, nil)
	p := start(t, "", "lock", "/l", "sh", "-c", `echo $$; while :; do sleep 0.02; done`)
	pid, err := strconv.Atoi(p.line())
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Process.Kill()
	await(t, "the end of the command", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func TestUnreachable(t *testing.T) {
	t.Setenv(serversVariable, "127.0.0.1:1")
	for _, args := range [][]string{{"lock", "-timeout", "100ms", "/l", "true"}, {"locks", "-timeout", "100ms"}} {
		status, _, stderr := invoke(args...)
		want := map[string]int{"lock": exitTrouble, "locks": exitFailed}[args[0]]
		if status != want || !strings.Contains(stderr, "cannot reach the cluster at 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused") {
			t.Errorf("%q: %d %s", args, status, stderr)
		}
	}
}

// TestElect: one leads; when it is stopped, the next one does; CMD's end is the end of the leadership.
func TestElect(t *testing.T) {
	cluster(t, nil)
	first := holding(t, "elect", "-data", "one", "/e")
	second := start(t, "", "elect", "/e", "sh", "-c", `echo leads; exit 4`)
	await(t, "a candidate", func() bool { return len(contenders(t, "/e")) == 2 })
	if got := contenders(t, "/e"); string(got[0].Data) != "one" || got[1].Info == nil {
		t.Errorf("%+v", got)
	}
	if status := first.signal(syscall.SIGTERM); status != 3 {
		t.Errorf("status %d", status)
	}
	if status, lines := second.wait(); status != 4 || strings.Join(lines, "|") != "leads" {
		t.Errorf("status %d, %q", status, lines)
	}
}

// TestElectAgain: a leader whose session has expired stands again, and runs its command again.
func TestElectAgain(t *testing.T) {
	dir := t.TempDir()
	var addr string
	s := cluster(t, func(c *server.Config) { c.DataDir = dir })
	addr = s.ClientAddr().String()
	p := start(t, "", "elect", "-session", "1s", "/e", "sh", "-c", `echo runs; while :; do sleep 0.02; done`)
	p.line()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the loss", func() bool { return exec.Command("pgrep", "-P", strconv.Itoa(p.Process.Pid)).Run() != nil })
	cluster(t, func(c *server.Config) { c.DataDir, c.ClientAddr = dir, addr })
	if l := p.line(); l != "runs" {
		t.Errorf("it says %q", l)
	}
	if status := p.signal(syscall.SIGTERM); status != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("status %d", status)
	}
}

// TestLocks: what people see.
func TestLocks(t *testing.T) {
	cluster(t, nil)
	if status, stdout, _ := invoke("locks"); status != exitOK || stdout != "nobody holds or waits for a lock\n" {
		t.Errorf("%d %q", status, stdout)
	}
	holder := holding(t, "lock", "-note", "monthly report", "/jobs/report")
	reader := holding(t, "lock", "-shared", "/jobs/rw")
	waiter := start(t, "", "lock", "/jobs/report", "true")
	await(t, "a waiter", func() bool { return len(contenders(t, "/jobs/report")) == 2 })
	line := ` +(\w+) +since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\S+\)  token \d+  session 0x[0-9a-f]+  127\.0\.0\.1:\d+  lockkeeper  \S+\[\d+\]@\S+`
	want := `\A/jobs/report\n  holds` + line + ` "monthly report"\n  waits 1` + line + `\n/jobs/rw\n  holds` + line + `\n\z`
	for _, args := range [][]string{{"locks"}, {"locks", "/jobs"}} {
		if status, stdout, stderr := invoke(args...); status != exitOK || !regexp.MustCompile(want).MatchString(stdout) || stderr != "" {
			t.Errorf("%q: %d\n%s%s", args, status, stdout, stderr)
		}
	}
	if status, stdout, _ := invoke("locks", "/jobs/rw"); status != exitOK || strings.Count(stdout, "\n") != 2 {
		t.Errorf("%d\n%s", status, stdout)
	}
	watcher := start(t, "", "locks", "-watch", "-json", "/jobs/rw")
	if l := watcher.line(); !strings.Contains(l, `"path":"/jobs/rw"`) {
		t.Errorf("-watch: %s", l)
	}
	_, _ = reader.signal(syscall.SIGTERM), holder.signal(syscall.SIGTERM)
	if status, _ := waiter.wait(); status != 0 {
		t.Errorf("the waiter: %d", status)
	}
	if status := watcher.signal(syscall.SIGINT); status != exitOK {
		t.Errorf("-watch: status %d", status)
	}
}

// TestStrangers: kazoo's node, behind one that kazoo's library does not wait for, may be that of a holder; and who runs
// 'lock' beside it hears of it.
func TestStrangers(t *testing.T) {
	cluster(t, nil)
	holder := holding(t, "lock", "/mixed")
	s, err := recipes.Connect(recipes.Config{Servers: []string{usualServers()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kazoo := s.Conn()
	node, err := kazoo.Create("/mixed/b7bfcd3227404d3880a0eccd4e5100cf__lock__", []byte("py"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := invoke("locks", "/mixed")
	for _, want := range []string{"\n  holds    write", "\n  may hold write", "\n  warning: __lock__ of kazoo may not wait for lock-: there may be two holders\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "waits") || strings.Contains(stdout, "lock- of lockkeeper") {
		t.Errorf("a holder may be called a waiter, or we are said not to wait:\n%s", stdout)
	}
	_ = holder.signal(syscall.SIGTERM)
	status, _, stderr := invoke("lock", "-timeout", "0", "/mixed", "true")
	if status != exitTimedOut || !strings.Contains(stderr, "may not wait for this one") || !strings.Contains(stderr, "/mixed") {
		t.Errorf("lock behind kazoo: %d %s", status, stderr)
	}
	if err := kazoo.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := invoke("lock", "-timeout", "0", "/mixed", "true"); status != 0 || stderr != "" {
		t.Errorf("lock without kazoo: %d %s", status, stderr)
	}
}

// TestMarks: what cannot come to a good end is marked.
func TestMarks(t *testing.T) {
	lock := func(path string, contenders ...contender) lockState {
		return lockState{Path: path, Contenders: contenders}
	}
	one := func(session int64, held bool, kind recipes.Kind) contender {
		return contender{Contender: recipes.Contender{Session: session, Held: held, Kind: kind}}
	}
	const r, w = recipes.KindRead, recipes.KindWrite
	for _, c := range []struct {
		what string
		list lockList
		want string // which of the contenders are in a deadlock
	}{
		{"a queue", lockList{lock("/a", one(1, true, w), one(2, false, w), one(3, false, w))}, ""},
		{"each has what the other wants", lockList{
			lock("/a", one(1, true, w), one(2, false, w), one(9, false, w)), lock("/b", one(2, true, w), one(1, false, w))}, "/a 2, /b 1"},
		{"three in a circle", lockList{lock("/a", one(1, true, w), one(2, false, w)), lock("/b", one(2, true, w), one(3, false, w)),
			lock("/c", one(3, true, w), one(1, false, w))}, "/a 2, /b 3, /c 1"},
		{"readers share", lockList{lock("/a", one(1, true, r), one(2, true, r)), lock("/b", one(2, true, w), one(1, false, w))}, ""},
		{"a session in its own way", lockList{lock("/a", one(1, true, w), one(1, false, w))}, ""},
	} {
		c.list.markDeadlocks()
		var got []string
		for _, l := range c.list {
			for _, one := range l.Contenders {
				if one.Deadlock {
					got = append(got, fmt.Sprintf("%s %d", l.Path, one.Session))
				}
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
