package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/server"
)

// sayHold is a script that prints its token, whether the lock was held before the restart, and
// which of the processes in $WORKERS run yet; and then runs another script.
const sayHold = `echo "$LOCKKEEPER_TOKEN $LOCKKEEPER_RESUMED"
for w in $WORKERS; do
	case $(sed -n 's/^State:.//p' /proc/$w/status 2>/dev/null) in ''|Z*|X*) ;; *) echo "runs $w" ;; esac
done; `

// restarts is a command with a session file that is killed and started again, as a unit of systemd
// is with Restart=always.
type restarts struct {
	*user
	args    []string // before the script
	script  string   // prints the process of a worker first, or nothing
	workers string   // that were started so far
}

// start starts the command, and returns its token and whether it held the lock before.
func (r *restarts) start() (p *process, token, resumed string) {
	r.t.Helper()
	u := user{t: r.t, variables: map[string]string{"WORKERS": r.workers}}
	maps.Copy(u.variables, r.variables)
	p = u.start("", append(r.args, "--", "sh", "-c", sayHold+r.script)...)
	token, resumed, _ = strings.Cut(p.line(), " ")
	worker := p.line()
	if strings.HasPrefix(worker, "runs ") {
		r.t.Fatalf("the worker before runs beside the next one: %s", worker)
	}
	r.workers += " " + worker
	return p, token, resumed
}

// TestKilledCommandKeepsTheLock: lockkeeper is killed with -9. The one that is started next has the
// lock, with the same token, when all that the one before has started has ended; another that waits
// gets it when the command ends.
func TestKilledCommandKeepsTheLock(t *testing.T) {
	t.Parallel()
	m := cluster(t, nil)
	for _, w := range workers {
		for _, command := range []string{"lock", "lock -shared", "lock -n 1", "elect", "lock -on-lost warn"} {
			if command != "lock" && w.name != "double-fork" {
				continue
			}
			t.Run(command+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "session")
				words := strings.Fields(command)
				path := "/" + strings.Join(words, "") + w.name
				r := &restarts{user: m.as(t), script: w.script,
					args: append(words, "-session-file", file, "-kill-after", "50ms", path)}
				p, token, resumed := r.start()
				if resumed != "false" {
					t.Errorf("the first one: resumed %q", resumed)
				}
				waits := words
				if command == "lock -shared" {
					waits = words[:1]
				}
				next := r.user.start("", append(waits, path, "--", "sh", "-c", `echo "$LOCKKEEPER_TOKEN"`)...)
				await(t, "another contender", func() bool { return len(m.contenders(path)) == 2 })
				for range 3 {
					_ = p.Process.Kill()
					var again string
					if p, again, resumed = r.start(); again != token || resumed != "true" {
						t.Fatalf("token %s, resumed %q, it was %s", again, resumed, token)
					}
				}
				if status := p.signal(syscall.SIGQUIT); status != exitSignal+int(syscall.SIGQUIT) {
					t.Errorf("status %d", status)
				}
				if line := next.line(); len(line) < len(token) || line <= token {
					t.Errorf("the next one has token %s after %s", line, token)
				}
				if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the session file: %v", err)
				}
			})
		}
	}
}

// TestKilledWithTheGuard: when lockkeeper and its guard are both killed, the next one waits for
// the processes of the command, which nobody kills.
func TestKilledWithTheGuard(t *testing.T) {
	t.Parallel()
	m := cluster(t, nil)
	// The worker is one that the kernel does not end.
	r := &restarts{user: m.as(t), script: workers[2].script,
		args: []string{"lock", "-session-file", filepath.Join(t.TempDir(), "session"), "/l"}}
	p, token, _ := r.start()
	worker, err := strconv.Atoi(strings.TrimSpace(r.workers))
	if err != nil {
		t.Fatal(err)
	}
	pid := guardOf(t, p)
	if err := errors.Join(syscall.Kill(p.Process.Pid, syscall.SIGSTOP), syscall.Kill(pid, syscall.SIGKILL),
		p.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*time.Second, func() { _ = syscall.Kill(worker, syscall.SIGKILL) })
	p, again, resumed := r.start()
	if again != token || resumed != "true" {
		t.Errorf("token %s, resumed %q, it was %s", again, resumed, token)
	}
	p.signal(syscall.SIGTERM)
}

// TestSessionFileInUse: a second command with the file waits for the first, for a session timeout,
// and says so.
func TestSessionFileInUse(t *testing.T) {
	t.Parallel()
	m := cluster(t, nil)
	file := filepath.Join(t.TempDir(), "session")
	first := m.start("", "lock", "-session-file", file, "/l", "--", "sh", "-c", "echo; exec sleep 1000")
	first.line()
	second := m.start("", "lock", "-session", "4s", "-session-file", file, "/m", "true")
	status, _ := second.wait()
	if text := second.stderr.String(); status != exitTrouble || strings.Count(text, "has the session file") != 2 ||
		!strings.Contains(text, file) || !strings.Contains(text, "waiting for its end") {
		t.Errorf("status %d, %s", status, text)
	}
	if s := first.signal(syscall.SIGTERM); s != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("status %d", s)
	}
}

// TestSessionFileRefused: a file that is damaged, or that others may read, is named.
func TestSessionFileRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "session")
	for mode, want := range map[os.FileMode]string{0o600: "session file is damaged", 0o640: "its mode is 0640"} {
		if err := errors.Join(os.WriteFile(file, []byte("x"), mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		status, _, stderr := invoke("lock", "-session-file", file, "/l", "true")
		if status != exitTrouble || !strings.Contains(stderr, file) || !strings.Contains(stderr, want) {
			t.Errorf("mode %04o: status %d, %s", mode, status, stderr)
		}
	}
}

// TestRestartWithAnotherPath: a restarted command that locks another path gives the one before back
// at once, and says so.
func TestRestartWithAnotherPath(t *testing.T) {
	t.Parallel()
	m := cluster(t, nil)
	file := filepath.Join(t.TempDir(), "session")
	before := m.start("", "lock", "-session-file", file, "/old", "--", "sh", "-c", "echo; exec sleep 1000")
	before.line()
	waits := m.start("", "lock", "/old", "--", "echo", "got it")
	await(t, "another contender", func() bool { return len(m.contenders("/old")) == 2 })
	_ = before.Process.Kill()
	after := m.start("", "lock", "-session-file", file, "/new", "--", "sh", "-c", "echo; exec sleep 1000")
	after.line()
	if got := waits.line(); got != "got it" {
		t.Errorf("%q", got)
	}
	await(t, "a message", func() bool { return strings.Contains(after.stderr.String(), "given back") })
	after.signal(syscall.SIGTERM)
}

// TestRestartTooLate: a command that is restarted after the end of its session says which lock it
// has lost, and queues up again.
func TestRestartTooLate(t *testing.T) {
	t.Parallel()
	m := cluster(t, nil)
	file := filepath.Join(t.TempDir(), "session")
	r := &restarts{user: m.as(t), script: "echo $$; exec sleep 1000",
		args: []string{"lock", "-session", "1s", "-session-file", file, "/l"}}
	p, token, _ := r.start()
	_ = p.Process.Kill()
	await(t, "the end of the session", func() bool { return len(m.contenders("/l")) == 0 })
	p, again, resumed := r.start()
	if again == token || resumed != "false" {
		t.Errorf("token %s after %s, resumed %q", again, token, resumed)
	}
	if text := p.stderr.String(); !strings.Contains(text, "lost while no process had the session") ||
		!strings.Contains(text, fmt.Sprintf("token=%q", token)) {
		t.Errorf("it says: %s", text)
	}
	p.signal(syscall.SIGTERM)
}

// TestServerRestartsMeanwhile: the cluster is restarted while no process has the session, which
// keeps its locks.
func TestServerRestartsMeanwhile(t *testing.T) {
	t.Parallel()
	var cfg server.Config
	m := cluster(t, func(c *server.Config) { c.Data.Dir = t.TempDir(); cfg = *c })
	r := &restarts{user: m.as(t), script: "echo $$; exec sleep 1000",
		args: []string{"lock", "-session-file", filepath.Join(t.TempDir(), "session"), "/l"}}
	p, token, _ := r.start()
	if err := errors.Join(p.Process.Kill(), m.Close()); err != nil {
		t.Fatal(err)
	}
	cfg.Client.Addr = m.ClientAddr().String()
	again, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	p, now, resumed := r.start()
	if now != token || resumed != "true" {
		t.Errorf("token %s, resumed %q, it was %s", now, resumed, token)
	}
	p.signal(syscall.SIGTERM)
}
