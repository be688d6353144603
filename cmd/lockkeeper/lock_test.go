package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

	"lockkeeper/internal/freeport"
	"lockkeeper/recipes"
	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session/sasl"
)

const patience = 20 * time.Second

// member is a server, and the user of commands that connect to it.
type member struct {
	*server.Server
	user
}

// cluster starts a member. Its sessions may be as short as a second.
func cluster(t *testing.T, change func(*server.Config)) *member {
	t.Helper()
	cfg := server.Config{
		Client:   zoocfg.Client{Addr: "127.0.0.1:0", FourLetterWords: []string{"cons"}},
		Data:     zoocfg.Data{Dir: t.TempDir()},
		Sessions: zoocfg.Sessions{TickTime: 500 * time.Millisecond},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &member{s, user{t: t, variables: map[string]string{serversVariable: s.ClientAddr().String()}}}
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// wait is the exit status of a command that ends by itself, and the rest of its output.
func (p *process) wait() (status int, rest []string) {
	p.t.Helper()
	for late, open := time.After(patience), true; open; {
		select {
		case l, ok := <-p.lines:
			if open = ok; ok {
				rest = append(rest, l)
			}
		case <-late:
			p.t.Fatalf("it, or a process that it has started, runs after %v", patience)
		}
	}
	_ = p.Wait() // the status says more
	return p.ProcessState.ExitCode(), rest
}

// TestLockUsage: a wrong command line never ends with a status that CMD could have meant.
func TestLockUsage(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	s := cluster(t, nil)
	var tokens []int64
	for range 2 {
		p := s.start("", "lock", "/l", "--", "sh", "-c", `echo "$LOCKKEEPER_LOCK $LOCKKEEPER_TOKEN"; exit 7`)
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
	if status, _ := s.start("", "lock", "/l", "sh", "-c", "kill -9 $$").wait(); status != exitSignal+int(syscall.SIGKILL) {
		t.Errorf("status %d of a command that a signal ended", status)
	}
}

// TestLockExcludes: many processes, one counter in a file, no update lost.
func TestLockExcludes(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	file := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(file, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	const programs = 8
	var all []*process
	for range programs {
		all = append(all, s.start("", "lock", "/l", "sh", "-c", fmt.Sprintf(`n=$(cat %s); sleep 0.02; echo $((n+1)) > %[1]s`, file)))
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
func (u *user) holding(args ...string) *process {
	u.t.Helper()
	p := u.start("", append(args, "sh", "-c", `trap 'echo got TERM; exit 3' TERM; trap 'echo got USR1' USR1; echo runs $$; while :; do sleep 0.02; done`)...)
	if l := p.line(); !strings.HasPrefix(l, "runs ") {
		u.t.Fatalf("it says %q", l)
	}
	return p
}

func TestLockTimeout(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	p := s.holding("lock", "/l")
	late := s.start("", "lock", "-timeout", "0", "/l", "echo", "ran")
	if status, lines := late.wait(); status != exitTimedOut || len(lines) > 0 {
		t.Errorf("-timeout 0: status %d, %q", status, lines)
	}
	s.expectTimeout("/l", "echo", "ran")
	// Another kind of holding, several at a time.
	for _, args := range [][]string{{"-shared", "/rw"}, {"-n", "2", "/sem"}} {
		one := s.holding(append([]string{"lock"}, args...)...)
		two := s.holding(append([]string{"lock"}, args...)...)
		_, _ = one.signal(syscall.SIGTERM), two.signal(syscall.SIGTERM)
	}
	one, two := s.holding("lock", "-n", "2", "/sem"), s.holding("lock", "-n", "2", "/sem")
	s.expectTimeout("-n", "2", "/sem", "echo", "ran")
	_, _, _ = one.signal(syscall.SIGTERM), two.signal(syscall.SIGTERM), p.signal(syscall.SIGTERM)
}

// expectTimeout runs the command lock on a lock that others hold, with a timeout that is enough to
// connect on this machine at this time: with less, the cluster was not reached.
func (u *user) expectTimeout(args ...string) {
	u.t.Helper()
	for timeout := 50 * time.Millisecond; ; timeout *= 2 {
		status, lines := u.start("", append([]string{"lock", "-timeout", timeout.String()}, args...)...).wait()
		if status == exitTrouble && timeout < patience/2 {
			continue
		}
		if status != exitTimedOut || len(lines) > 0 {
			u.t.Errorf("-timeout %s %q: status %d, %q", timeout, args, status, lines)
		}
		return
	}
}

func TestLockHandsSignalsOn(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	p := s.holding("lock", "/l")
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
	holder := s.holding("lock", "/l")
	waiter := s.start("", "lock", "/l", "true")
	await(t, "a waiter", func() bool { return len(s.contenders("/l")) == 2 })
	if status := waiter.signal(syscall.SIGINT); status != exitSignal+int(syscall.SIGINT) {
		t.Errorf("a waiter's status: %d", status)
	}
	if n := len(s.contenders("/l")); n != 1 {
		t.Errorf("%d contenders are left", n)
	}
	holder.signal(syscall.SIGTERM)
}

// TestSignalWithTheGrant: a signal comes in the moment in which the lock is acquired, and the
// cluster is gone in the next one. The command ends, sooner if there is another signal.
func TestSignalWithTheGrant(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		s := cluster(t, nil)
		session, err := recipes.Connect(recipes.Config{
			Servers:        []string{s.ClientAddr().String()},
			SessionTimeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		g, err := recipes.NewMutex(session, "/l", recipes.MutexOptions{}).Lock(t.Context())
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		f := holdFlags{clientFlags: clientFlags{session: time.Second, e: env{stderr: t.Output()}}}
		if again {
			f.session = time.Hour // no more than releaseTimeout
		}
		signals := make(chan os.Signal, 2)
		signals <- syscall.SIGTERM
		began := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := f.acquire(&client{Session: session, flags: &f.clientFlags}, signals, -1,
				func(ctx context.Context) (*recipes.Grant, error) {
					<-ctx.Done()
					if again {
						signals <- syscall.SIGTERM
					}
					return g, nil
				})
			done <- err
		}()
		select {
		case err := <-done:
			if err != error(exitStatus(exitSignal+int(syscall.SIGTERM))) {
				t.Errorf("it ends with %v", err)
			}
			if took := time.Since(began); again && took > releaseTimeout/2 {
				t.Errorf("the second signal has ended it after %v", took)
			}
		case <-time.After(patience):
			t.Error("it does not end")
		}
		session.Close()
	}
}

// contenders asks the command locks.
func (u *user) contenders(path string) []contender {
	u.t.Helper()
	status, stdout, stderr := u.invoke("locks", "-json", path)
	if status != exitOK {
		u.t.Fatalf("locks: %d %s", status, stderr)
	}
	var l lockState
	if stdout == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(stdout), &l); err != nil {
		u.t.Fatalf("%v: %s", err, stdout)
	}
	return l.Contenders
}

// TestLockLost: when the cluster is gone, the command is ended, gently and then not.
func TestLockLost(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	gentle := s.holding("lock", "-session", "1s", "/a")
	deaf := s.start("", "lock", "-session", "1s", "-kill-after", "50ms", "/b", "sh", "-c", `trap '' TERM; echo runs; while :; do sleep 0.02; done`)
	deaf.line()
	warned := s.start("", "lock", "-session", "1s", "-on-lost", "warn", "-json", "/c", "sh", "-c", `echo runs; read line; exit 5`)
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

// TestLockKilled: the child command ends when 'lockkeeper lock' is killed.
func TestLockKilled(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	p := s.start("", "lock", "/l", "sh", "-c", `echo $$; while :; do sleep 0.02; done`)
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

// TestUnreachable: that nobody listens is told at once, by those that have nothing else to wait for
// with their end.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	nobody := user{t: t, variables: map[string]string{serversVariable: "127.0.0.1:1,localhost:2"}}
	const want = ": cannot reach the cluster at 127.0.0.1:1, localhost:2: dial tcp 127.0.0.1:1: connect: connection refused; dial tcp "
	for _, c := range []struct {
		args   []string
		status int
		atOnce bool
		still  int // how often it says that it goes on
	}{
		{[]string{"locks"}, exitFailed, true, 0},
		{[]string{"locks", "-watch"}, exitFailed, true, 0},
		{[]string{"locks", "-timeout", "200ms"}, exitFailed, false, 1},
		{[]string{"cluster", "list"}, exitFailed, true, 0},
		{[]string{"cluster", "remove", "1"}, exitFailed, true, 0},
		{[]string{"cluster", "list", "-timeout", "200ms"}, exitFailed, false, 1},
		{[]string{"lock", "-timeout", "0", "/l", "true"}, exitTrouble, true, 0},
		{[]string{"lock", "-timeout", "200ms", "/l", "true"}, exitTrouble, false, 1},
	} {
		began := time.Now()
		status, _, stderr := nobody.invoke(c.args...)
		took := time.Since(began)
		if status != c.status || !strings.Contains(stderr, want) || strings.Count(stderr, "; still trying\n") != c.still {
			t.Errorf("%q: %d %s", c.args, status, stderr)
		}
		if c.atOnce && took > 5*time.Second || !c.atOnce && took < 200*time.Millisecond {
			t.Errorf("%q took %v", c.args, took)
		}
	}
	// lock goes on, and is there when the cluster is.
	ports, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	p := start(t, "", "lock", "-servers", addr, "/l", "echo", "ran")
	await(t, "the message", func() bool { return strings.Contains(p.stderr.String(), "connection refused; still trying\n") })
	cluster(t, func(cfg *server.Config) { cfg.Client.Addr = addr })
	if status, lines := p.wait(); status != 0 || len(lines) != 1 || lines[0] != "ran" {
		t.Errorf("after the cluster's start: %d %q %s", status, lines, p.stderr.String())
	}
}

// TestElect: one leads; when it is stopped, the next one does; CMD's end is the end of the
// leadership.
func TestElect(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	first := s.holding("elect", "-data", "one", "/e")
	second := s.start("", "elect", "/e", "sh", "-c", `echo leads; exit 4`)
	await(t, "a candidate", func() bool { return len(s.contenders("/e")) == 2 })
	if got := s.contenders("/e"); string(got[0].Data) != "one" || got[1].Info == nil {
		t.Errorf("%+v", got)
	}
	if status := first.signal(syscall.SIGTERM); status != 3 {
		t.Errorf("status %d", status)
	}
	if status, lines := second.wait(); status != 4 || strings.Join(lines, "|") != "leads" {
		t.Errorf("status %d, %q", status, lines)
	}
}

// TestElectAgain: after its session has expired, a leader stands again, and runs its command again.
func TestElectAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var addr string
	s := cluster(t, func(c *server.Config) { c.Data.Dir = dir })
	addr = s.ClientAddr().String()
	p := s.start("", "elect", "-session", "1s", "/e", "sh", "-c", `echo runs; while :; do sleep 0.02; done`)
	p.line()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the loss", func() bool { return exec.Command("pgrep", "-P", strconv.Itoa(p.Process.Pid)).Run() != nil })
	cluster(t, func(c *server.Config) { c.Data.Dir, c.Client.Addr = dir, addr })
	if l := p.line(); l != "runs" {
		t.Errorf("it says %q", l)
	}
	if status := p.signal(syscall.SIGTERM); status != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("status %d", status)
	}
}

// TestLocks: the text that 'lockkeeper locks' prints.
func TestLocks(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	if status, stdout, _ := s.invoke("locks"); status != exitOK || stdout != "nobody holds or waits for a lock\n"+nobodyHint {
		t.Errorf("%d %q", status, stdout)
	}
	holder := s.holding("lock", "-note", "monthly report", "/jobs/report")
	reader := s.holding("lock", "-shared", "/jobs/rw")
	waiter := s.start("", "lock", "/jobs/report", "true")
	await(t, "a waiter", func() bool { return len(s.contenders("/jobs/report")) == 2 })
	line := func(note string) string {
		return ` +(\w+) +since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d) \(\S+\)  \S+\[\d+\]@\S+` + note +
			`  127\.0\.0\.1:\d+  session 0x[0-9a-f]+  lockkeeper  token \d+\n`
	}
	want := `\A/jobs/report\n  holds` + line(` "monthly report"`) + `  waits 1` + line("") + `/jobs/rw\n  holds` + line("") + `\z`
	for _, args := range [][]string{{"locks"}, {"locks", "/jobs"}} {
		if status, stdout, stderr := s.invoke(args...); status != exitOK || !regexp.MustCompile(want).MatchString(stdout) || stderr != "" {
			t.Errorf("%q: %d\n%s%s", args, status, stdout, stderr)
		}
	}
	if status, stdout, _ := s.invoke("locks", "/jobs/rw"); status != exitOK || strings.Count(stdout, "\n") != 2 {
		t.Errorf("%d\n%s", status, stdout)
	}
	status, history, stderr := s.invoke("locks", "-history", "/jobs/report") // over the client port
	if status != exitOK || !strings.Contains(history, "holds it") || !strings.Contains(history, "monthly report") {
		t.Errorf("-history: %d\n%s%s", status, history, stderr)
	}
	watcher := s.start("", "locks", "-watch", "-json", "/jobs/rw")
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

// TestLocksSinceWhen: a holder that waited holds since the one before it released the lock; of a
// server that makes no reports, that is not known.
func TestLocksSinceWhen(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	first := s.holding("lock", "/l")
	second := s.start("", "lock", "/l", "--", "sh", "-c", "echo has it; exec sleep 60")
	await(t, "a waiter", func() bool { return len(s.contenders("/l")) == 2 })
	queued := time.Now()
	await(t, "a later second", func() bool { return time.Since(queued) > 1200*time.Millisecond })
	released := time.Now()
	first.signal(syscall.SIGTERM)
	if l := second.line(); l != "has it" {
		t.Fatalf("the second says %q", l)
	}
	defer second.signal(syscall.SIGTERM)
	all := s.contenders("/l")
	if len(all) != 1 || !all[0].SinceExact || all[0].Since.Before(released.Add(-100*time.Millisecond)) ||
		!all[0].Queued.Before(released.Add(-time.Second)) {
		t.Errorf("it was released at %v: %+v, since %v", released, all, all[0].Since)
	}
	f := clientFlags{servers: s.ClientAddr().String(), session: 10 * time.Second, e: env{stderr: io.Discard}}
	c, err := f.connect(recipes.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	walked, err := c.walkedLocks(t.Context(), "/")
	if err != nil || len(walked) != 1 || len(walked[0].Contenders) != 1 {
		t.Fatalf("node by node: %+v, %v", walked, err)
	}
	if one := walked[0].Contenders[0]; one.SinceExact || !one.Since.Equal(one.Created) {
		t.Errorf("node by node: %+v", one)
	}
	if text := walked.text(time.Now()); !strings.Contains(text, "or later (at most ") {
		t.Errorf("node by node:\n%s", text)
	}
}

// TestFenceOfExportedPath: a script that passes the exported path and token to /fence gets the
// right answer, also of a semaphore and of readers.
func TestFenceOfExportedPath(t *testing.T) {
	t.Parallel()
	s := cluster(t, func(c *server.Config) { c.HTTP.Addr = "127.0.0.1:0" })
	const script = `echo "$LOCKKEEPER_LOCK $LOCKKEEPER_TOKEN"; exec sleep 60`
	for _, args := range [][]string{{"/m"}, {"-n", "2", "/s"}, {"-n", "2", "/s"}, {"-shared", "/rw"}} {
		p := s.start("", append(append([]string{"lock"}, args...), "--", "sh", "-c", script)...)
		lock, token, _ := strings.Cut(p.line(), " ")
		resp, err := http.Get(fmt.Sprintf("http://%s/fence?%s", s.HTTPAddr(), url.Values{"lock": {lock}, "token": {token}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%q: %s", args, resp.Status)
		}
		defer p.signal(syscall.SIGTERM)
	}
}

// TestStrangers: kazoo's node, behind one that kazoo's library does not wait for, may be a
// holder's; and 'lock' beside it prints a warning.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	holder := s.holding("lock", "/mixed")
	session, err := recipes.Connect(recipes.Config{Servers: []string{s.ClientAddr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	kazoo := session.Conn()
	node, err := kazoo.Create("/mixed/b7bfcd3227404d3880a0eccd4e5100cf__lock__", []byte("py"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := s.invoke("locks", "/mixed")
	for _, want := range []string{"\n  holds    write", "\n  may hold write", "\n  warning: __lock__ of kazoo may not wait for lock-: there may be two holders\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "waits") || strings.Contains(stdout, "lock- of lockkeeper") {
		t.Errorf("a holder may be called a waiter, or we are said not to wait:\n%s", stdout)
	}
	_ = holder.signal(syscall.SIGTERM)
	status, _, stderr := s.invoke("lock", "-timeout", "0", "/mixed", "true")
	if status != exitTimedOut || !strings.Contains(stderr, "may not wait for this one") || !strings.Contains(stderr, "/mixed") {
		t.Errorf("lock behind kazoo: %d %s", status, stderr)
	}
	if err := kazoo.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := s.invoke("lock", "-timeout", "0", "/mixed", "true"); status != 0 || stderr != "" {
		t.Errorf("lock without kazoo: %d %s", status, stderr)
	}
}

// TestMarks: waiters that can never hold the lock are marked.
func TestMarks(t *testing.T) {
	lock := func(path string, contenders ...contender) lockState {
		return lockState{Path: path, Contenders: contenders}
	}
	one := func(session int64, held bool, kind recipes.Kind) contender {
		return contender{Contender: recipes.Contender{Session: session, Held: held, Kind: kind}}
	}
	inside := func(session int64, outer ...int64) contender {
		c := one(session, false, recipes.KindWrite)
		c.Info = &recipes.Info{}
		for _, o := range outer {
			c.Info.Within = append(c.Info.Within, sessionText(o))
		}
		return c
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
		{"a command waits for the one that runs it", lockList{lock("/a", one(1, true, w), inside(2, 1))}, "/a 2"},
		{"a command waits for its sibling", lockList{lock("/a", one(1, true, w)), lock("/b", one(2, true, w), inside(3, 1))}, ""},
		{"commands in commands", lockList{lock("/a", one(1, true, w), inside(4, 3)), lock("/b", one(3, true, w), inside(2, 1))}, "/a 4, /b 2"},
		{"commands in commands in commands", lockList{lock("/a", one(1, true, w), inside(4, 3)), lock("/b", one(3, true, w), inside(5, 1, 2))}, "/a 4, /b 5"},
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

// TestIdentity: where the identity comes from, and that nothing says the secret.
func TestIdentity(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("digest:file:secret\r\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ auth, file, env, want string }{
		{"", "", "", ""},
		{"me:pw", "", "env:secret", "digest me:pw"},
		{"me:p:w", "", "", "digest me:p:w"},
		{"digest:me:pw", "", "", "digest me:pw"},
		{"key:abc", "", "", "key abc"},
		{"sasl:me:pw", "", "", "sasl me:pw"},
		{"sasl:me", "", "", "-auth: must be user:password, or scheme:secret"},
		{"", file, "env:secret", "digest file:secret"},
		{"", "", "env:secret", "digest env:secret"},
		{"a:b", file, "", "-auth and -auth-file: one of them, please"},
		{"me", "", "", "-auth: must be user:password, or scheme:secret"},
		{"digest:me", "", "", "-auth: must be user:password, or scheme:secret"},
		{"", file + "x", "", "-auth-file: open " + file + "x: no such file or directory"},
		{"", "", "secret", "$LOCKKEEPER_AUTH: must be user:password, or scheme:secret"},
	} {
		f := &clientFlags{auth: c.auth, authFile: c.file, e: env{variables: map[string]string{authVariable: c.env}}}
		id, ok, err := f.identity()
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case ok:
			got = id.Scheme + " " + string(id.Secret)
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestIdentityIsShown: lock, elect and locks work where only one identity may do anything.
func TestIdentityIsShown(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	owner, err := recipes.Connect(recipes.Config{
		Servers: []string{s.ClientAddr().String()},
		Auth:    []recipes.Auth{{Scheme: "digest", Secret: []byte("me:pw")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	for _, path := range []string{"/mine", "/mine/lock", "/mine/election"} {
		if _, err := owner.Conn().Create(path, nil, 0, zk.DigestACL(zk.PermAll, "me", "pw")); err != nil {
			t.Fatal(err)
		}
	}
	commands := [][]string{{"lock", "/mine/lock", "true"}, {"elect", "/mine/election", "true"}, {"locks", "/mine"}}
	for _, args := range commands {
		if status, _ := s.start("", args...).wait(); status == 0 {
			t.Errorf("%q works without an identity", args)
		}
	}
	s.variables[authVariable] = "me:pw"
	for _, args := range commands {
		p := s.start("", args...)
		if status, lines := p.wait(); status != 0 {
			t.Errorf("%q: %d %q %s", args, status, lines, p.stderr.String())
		}
	}
	p := s.start("", "lock", "-auth", "key:nothing", "/mine/lock", "true")
	if status, _ := p.wait(); status != exitTrouble || !strings.Contains(p.stderr.String(), `refuses the identity of scheme "key"`) {
		t.Errorf("a scheme that the server does not have: %d %s", status, p.stderr.String())
	}
}

// TestNodesBelongToTheirMaker: with an identity, lock, elect and create make nodes that others read
// and cannot delete, unless -acl says otherwise; parents, too.
func TestNodesBelongToTheirMaker(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("me:pw"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := recipes.Connect(recipes.Config{Servers: []string{s.ClientAddr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	open := zk.WorldACL(zk.PermAll)
	mine := append(zk.DigestACL(zk.PermAll, "me", "pw"), zk.WorldACL(zk.PermRead)...)
	for i, tt := range []struct {
		args []string
		want []zk.ACL
	}{
		{[]string{"lock", "-auth-file", file}, mine},
		{[]string{"lock", "-shared", "-auth-file", file}, mine},
		{[]string{"lock", "-n", "2", "-auth-file", file}, mine},
		{[]string{"lock", "-delay", "1s", "-auth-file", file}, mine},
		{[]string{"elect", "-auth-file", file}, mine},
		{[]string{"create", "-p", "-e", "-auth-file", file}, mine},
		{[]string{"lock", "-auth-file", file, "-acl", "world:anyone:cdrwa"}, open},
		{[]string{"lock"}, open},
		{[]string{"create", "-p", "-e"}, open},
		{[]string{"lock", "-auth", "ensemble:x"}, nil}, // refused: there is no such scheme here
	} {
		parent := fmt.Sprintf("/parent%d", i)
		args := append(tt.args, parent+"/lock")
		if tt.args[0] != "create" {
			args = append(args, "sh", "-c", "echo has; exec sleep 60")
		}
		p := s.start("", args...)
		if tt.want == nil {
			if status, _ := p.wait(); status == 0 {
				t.Errorf("%q succeeds", tt.args)
			}
			continue
		}
		p.line()
		nodes := []string{parent, parent + "/lock"}
		names, _, err := other.Conn().Children(parent + "/lock")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			nodes = append(nodes, parent+"/lock/"+name)
		}
		left := 0 // below the path
		for _, path := range nodes {
			acl, _, err := other.Conn().(*zk.Conn).GetACL(path)
			if errors.Is(err, zk.ErrNoNode) && path != parent && path != parent+"/lock" {
				continue // a recipe needed it for a moment only
			}
			if err != nil {
				t.Fatal(err)
			}
			if path != parent && path != parent+"/lock" {
				left++
			}
			// others see no hashes
			if len(acl) != len(tt.want) || len(acl) > 1 && (acl[0].ID != "me:x" || acl[1] != tt.want[1]) || len(acl) == 1 && acl[0] != tt.want[0] {
				t.Errorf("%q: %s has %v, want %v", tt.args, path, acl, tt.want)
			}
		}
		if tt.args[0] != "create" && left == 0 {
			t.Errorf("%q: there is no node below the path", tt.args)
		}
		for _, name := range names {
			err := other.Conn().Delete(parent+"/lock/"+name, -1)
			if tt.want[0].Scheme == "digest" && !errors.Is(err, zk.ErrNoAuth) && !errors.Is(err, zk.ErrNoNode) {
				t.Errorf("%q: another client deletes the holder's node: %v", tt.args, err)
			}
		}
		_ = p.Process.Signal(syscall.SIGTERM)
		p.wait()
		if text := p.stderr.String(); strings.Contains(text, "everybody may delete") {
			t.Errorf("%q: %s", tt.args, text)
		}
	}
}

// TestIdentityWarnings: a file that others can read, and a path that others can empty.
func TestIdentityWarnings(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("me:pw"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if status, _ := s.start("", "lock", "/open", "true").wait(); status != 0 {
		t.Fatal(status)
	}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"lock", "-auth-file", file, "/open", "true"}, []string{"every user of this machine can read", "everybody may delete"}},
		{[]string{"lock", "-auth-file", file, "/mine", "true"}, []string{"every user of this machine can read"}},
		{[]string{"lock", "/open", "true"}, nil},
	} {
		p := s.start("", tt.args...)
		if status, _ := p.wait(); status != 0 {
			t.Errorf("%q: status %d", tt.args, status)
		}
		text := p.stderr.String()
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%q: no warning that %s: %s", tt.args, want, text)
			}
		}
		if len(tt.want) != strings.Count(text, "\n") {
			t.Errorf("%q: %s", tt.args, text)
		}
	}
	p := s.start("", "lock", "/mine", "true")
	if status, _ := p.wait(); status != exitTrouble || !strings.Contains(p.stderr.String(), "belongs to another identity") {
		t.Errorf("a lock of another identity: %d %s", status, p.stderr.String())
	}
}

// TestSASLLogin: the commands work where nobody is served who has not logged in with SASL.
func TestSASLLogin(t *testing.T) {
	t.Parallel()
	s := cluster(t, func(c *server.Config) {
		c.Auth.SASLUsers = sasl.Users{"me": sasl.NewHA1("me", "p:w")}
		c.Auth.RequiredSchemes = []string{"sasl"}
	})
	for auth, want := range map[string]string{
		"sasl:me:p:w": "",
		"sasl:me:x":   `refuses the identity of scheme "sasl"`,
		"sasl:you:p":  `refuses the identity of scheme "sasl"`,
	} {
		s.variables[authVariable] = auth
		p := s.start("", "lock", "-timeout", "10s", "/lock", "true")
		if status, _ := p.wait(); (status == 0) != (want == "") || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%s: %d %s", auth, status, p.stderr.String())
		}
	}
	s = cluster(t, nil)
	p := s.start("", "lock", "-auth", "sasl:me:pw", "/lock", "true")
	if status, _ := p.wait(); status != exitTrouble || !strings.Contains(p.stderr.String(), "does not log in with SASL") {
		t.Errorf("a member without SASL: %d %s", status, p.stderr.String())
	}
}

// TestNestedDeadlock: commands in commands that wait for each other, and one that waits for itself.
func TestNestedDeadlock(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "go")
	nested := func(outer, inner string) *process {
		return s.start("", "lock", outer, "sh", "-c",
			fmt.Sprintf("echo has; while ! test -e %s; do sleep 0.02; done; exec %s lock %s true", file, self, inner))
	}
	one, two, alone := nested("/a", "/b"), nested("/b", "/a"), nested("/own", "/own")
	for _, p := range []*process{one, two, alone} {
		if l := p.line(); l != "has" {
			t.Fatalf("it says %q", l)
		}
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/a", "/b", "/own"} {
		await(t, "the inner commands", func() bool { return len(s.contenders(path)) == 2 })
	}
	third := s.start("", "lock", "/a", "true") // waits for the circle, and is not in it
	await(t, "the third", func() bool { return len(s.contenders("/a")) == 3 })
	_, stdout, _ := s.invoke("locks")
	var marked []string
	for l := range strings.Lines(stdout) {
		if strings.Contains(l, "deadlock") {
			marked = append(marked, l)
			if !strings.Contains(l, "  waits ") || !strings.Contains(l, " within 0x") {
				t.Errorf("in a deadlock: %s", l)
			}
		}
	}
	if len(marked) != 3 {
		t.Errorf("%d in a deadlock, want the three inner commands:\n%s", len(marked), stdout)
	}
	for _, p := range []*process{one, two, alone, third} {
		_ = p.signal(syscall.SIGTERM)
	}
}

// TestWatchSeesEveryHolder: those who hold a lock for some milliseconds, too.
func TestWatchSeesEveryHolder(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	session, err := recipes.Connect(recipes.Config{Servers: []string{s.ClientAddr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	watcher := s.start("", "locks", "-watch", "-json", "/w")
	// It has begun when it shows somebody.
	first, err := recipes.NewMutex(session, "/w/first", recipes.MutexOptions{}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l := watcher.line(); !strings.Contains(l, first.Node()[len("/w/first/"):]) {
		t.Fatalf("it says %s", l)
	}
	const rounds = 200
	want := map[string]bool{}
	for i := range rounds {
		g, err := recipes.NewMutex(session, fmt.Sprintf("/w/%d", i%3), recipes.MutexOptions{}).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want[g.Node()[strings.LastIndex(g.Node(), "/")+1:]] = true
		if err := g.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	passed := 0
	for len(want) > 0 {
		l := watcher.line()
		var shown struct {
			Contenders []struct {
				Node string
				Held bool
			}
			Passed *passedBy
		}
		if err := json.Unmarshal([]byte(l), &shown); err != nil {
			t.Fatalf("%q: %v; %d of %d were not shown", l, err, len(want), rounds)
		}
		for _, c := range shown.Contenders {
			if c.Held {
				delete(want, c.Node)
			}
		}
		if shown.Passed != nil {
			passed++
			if shown.Passed.Kind != recipes.KindWrite || !strings.HasPrefix(shown.Passed.Path, "/w/") {
				t.Errorf("passed by: %+v", shown.Passed)
			}
			delete(want, shown.Passed.Node)
		}
	}
	t.Logf("figures: of %d holders %d were shown as such, %d as passed by", rounds, rounds-passed, passed)
	if status := watcher.signal(syscall.SIGINT); status != exitOK {
		t.Errorf("status %d", status)
	}
}

// TestLockExplainsItsWait: -v says whom a command waits for, and for how long it has waited; -json
// says the same.
func TestLockExplainsItsWait(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	holder := s.holding("lock", "-note", "monthly report", "/l")
	waiter := s.start("", "lock", "-v", "/l", "true")
	await(t, "an explanation", func() bool { return strings.Contains(waiter.stderr.String(), "waits for /l") })
	other := s.start("", "lock", "-json", "/l", "true")
	await(t, "an explanation in JSON", func() bool { return strings.Contains(other.stderr.String(), `"waits"`) })
	candidate := s.holding("elect", "/e")
	second := s.start("", "elect", "-v", "/e", "true")
	await(t, "an explanation of elect", func() bool { return strings.Contains(second.stderr.String(), "waits for /e, 1 ahead") })
	candidate.signal(syscall.SIGTERM)
	holder.signal(syscall.SIGTERM)
	for _, p := range []*process{waiter, other, second} {
		if status, _ := p.wait(); status != 0 {
			t.Errorf("status %d: %s", status, p.stderr.String())
		}
	}
	session := `session 0x[0-9a-f]+, token [0-9]+, `
	want := regexp.MustCompile(`(?m)^lockkeeper lock: waits for /l, 1 ahead: held by sh\S*\[\d+\]@\S+ "monthly report", ` +
		`lockkeeper, ` + session + `queued [^\n]*$(\n.*)*^lockkeeper lock: holds /l, token \d+, after [0-9.ms]+$`)
	if got := waiter.stderr.String(); !want.MatchString(strings.ReplaceAll(got, "lockkeeper.test[", "sh[")) {
		t.Errorf("it says: %s", got)
	}
	events := make(map[string]map[string]any)
	for line := range strings.Lines(other.stderr.String()) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events[e["event"].(string)] = e
	}
	waits := events["waits"]
	if waits["ahead"] == nil || len(waits["holders"].([]any)) != 1 || waits["next"].(map[string]any)["session"] == nil {
		t.Errorf("it says: %v", waits)
	}
	if events["acquired"]["waitedMs"].(float64) <= 0 {
		t.Errorf("it says: %v", events["acquired"])
	}
}

// TestLockPriority: an urgent command has the lock before one that came earlier, and 'locks' shows
// its priority.
func TestLockPriority(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	for _, wrong := range []string{"-priority=100", "-priority=-100", "-yields=-1"} {
		if status, _, _ := s.invoke("lock", wrong, "/l", "true"); status != exitTrouble {
			t.Errorf("%s: status %d", wrong, status)
		}
	}
	order := filepath.Join(t.TempDir(), "order")
	holder := s.holding("lock", "/l")
	var all []*process
	for i, args := range [][]string{{"-yields", "0"}, {}, {"-priority", "5"}} {
		args = append(append([]string{"lock"}, args...), "/l", "sh", "-c", fmt.Sprintf("echo %d >> %s", i, order))
		all = append(all, s.start("", args...))
		await(t, "a waiter", func() bool { return len(s.contenders("/l")) == 2+i })
	}
	if c := s.contenders("/l")[3]; c.Priority != 5 {
		t.Errorf("the last one is %+v", c)
	}
	if status, list, _ := s.invoke("locks", "/l"); status != exitOK || !strings.Contains(list, "  priority 5\n") {
		t.Errorf("status %d: %s", status, list)
	}
	holder.signal(syscall.SIGTERM)
	for _, p := range all {
		if status, _ := p.wait(); status != 0 {
			t.Errorf("status %d", status)
		}
	}
	if got, err := os.ReadFile(order); err != nil || string(got) != "0\n2\n1\n" {
		t.Errorf("order %q, %v", got, err)
	}
}
