package jepsen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// readmeLock is the path that all programs of the README lock.
const readmeLock = "/locks/report"

// intrusion is how long a program that waits for another is watched: one that does not wait is in a
// few milliseconds after it has made its node.
const intrusion = 300 * time.Millisecond

// exclude lets first hold the lock of the README, starts second, and checks that second gets the
// lock, and not before first has released it.
//
// The programs are the README's own, so nothing can tell them to hold the lock for long. The
// standard output of first, a pipe without room, keeps it inside: it prints its line while it has
// the lock, and that takes until somebody reads.
func (r *readme) exclude(t *testing.T, first, second *readmeProgram) {
	if first.command == nil || second.command == nil {
		t.Skipf("%s or %s cannot be run here", first.name, second.name)
	}
	conn := r.connect(t)
	defer conn.Close()
	r.awaitFree(t, conn) // else an earlier test's node is taken for first
	holder := r.start(t, first, true)
	r.awaitContenders(t, conn, 1, nil) // it has the lock, or is about to; nobody else may
	other := r.start(t, second, false)
	r.awaitContenders(t, conn, 2, other.inside)
	select {
	case <-other.inside:
		t.Errorf("%s said %q while %s had the lock", second.name, second.line, first.name)
	case <-time.After(intrusion):
	}
	holder.read()
	r.finish(t, holder, other)
}

// finish waits until programs have had the lock and have ended well.
func (r *readme) finish(t *testing.T, all ...*running) {
	t.Helper()
	for _, p := range all {
		select {
		case <-p.process.Done():
		case <-r.ctx.Done():
			t.Fatalf("%s does not end; it printed:\n%s", p.name, p.stderr())
		}
		if err := p.process.Err(); err != nil {
			t.Errorf("%s: %v; it printed:\n%s", p.name, err, p.stderr())
		}
		select {
		case <-p.inside:
		case <-r.ctx.Done():
			t.Errorf("%s has ended without the lock; it printed:\n%s", p.name, p.stderr())
		}
	}
}

// kazooLock is the program that the README warns of.
const kazooLock = `
import sys
from kazoo.client import KazooClient
client = KazooClient(sys.argv[1])
client.start()
with client.Lock(sys.argv[2], "stranger"):
    print("Stranger in", flush=True)
client.stop()
`

// strangers has kazoo's own lock take the path while the shell holds it, and checks that the
// conflict is reported: by lockkeeper locks, and in a member's log.
func (r *readme) strangers(t *testing.T, shell *readmeProgram) {
	kazoo, err := tools.Kazoo()
	Need(t, err)
	conn := r.connect(t)
	defer conn.Close()
	server := "127.0.0.1:" + r.prefix + "1"
	r.awaitFree(t, conn)
	holder := r.start(t, shell, true)
	r.awaitContenders(t, conn, 1, nil)
	other := r.start(t, &readmeProgram{name: "kazoo", line: "Stranger in", command: func() *exec.Cmd {
		return exec.Command(kazoo.Command[0], "-c", kazooLock, server, readmeLock)
	}}, true)
	r.awaitContenders(t, conn, 2, nil)
	locks := exec.CommandContext(r.ctx, filepath.Join(r.dir, "lockkeeper"), "locks", "-servers", server, readmeLock)
	out, err := locks.CombinedOutput()
	if err != nil {
		t.Errorf("lockkeeper locks: %v", err)
	}
	for _, want := range []string{"  holds ", "  may hold ",
		"__lock__ of kazoo may not wait for lock-: there may be two holders"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("lockkeeper locks does not say %q:\n%s", want, out)
		}
	}
	const warning = "two libraries lock one path"
	if n := strings.Count(r.cluster.LogTail(1<<20), warning); n == 0 {
		t.Errorf("no member's log has %q", warning)
	}
	other.read() // it is in, though the shell has not left
	r.finish(t, other)
	holder.read()
	r.finish(t, holder)
}

// awaitFree waits until nobody contends for the lock.
func (r *readme) awaitFree(t *testing.T, conn *zk.Conn) {
	t.Helper()
	err := Poll(r.ctx, 5*time.Millisecond, func() error {
		names, err := contendersOf(conn)
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("contenders for %s are left: %q", readmeLock, names)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitContenders waits until n contend for the lock, or until enough is closed.
func (r *readme) awaitContenders(t *testing.T, conn *zk.Conn, want int, enough <-chan struct{}) {
	t.Helper()
	err := Poll(r.ctx, 5*time.Millisecond, func() error {
		select {
		case <-enough:
			return nil
		default:
		}
		names, err := contendersOf(conn)
		if err == nil && len(names) < want {
			err = fmt.Errorf("%d contenders for %s, want %d: %q", len(names), readmeLock, want, names)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *readme) connect(t *testing.T) *zk.Conn {
	t.Helper()
	return openClient(t, 10*time.Second, "127.0.0.1:"+r.prefix+"1").Conn
}

// contendersOf lists the nodes of the README's lock as of now.
func contendersOf(conn *zk.Conn) ([]string, error) {
	if _, err := conn.Sync(readmeLock); err != nil {
		return nil, err
	}
	names, _, err := conn.Children(readmeLock)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// running is a program of the README that runs.
type running struct {
	name    string
	process *Process
	stdout  *os.File
	line    string        // that it prints while it has the lock
	inside  chan struct{} // closed when the line has been read
}

// start starts a program. If it is to be blocked, it gets no further than to its first line before
// read is called.
func (r *readme) start(t *testing.T, program *readmeProgram, blocked bool) *running {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	t.Cleanup(func() { _ = out.Close() })
	if blocked {
		fillPipe(t, in)
	}
	cmd := program.command()
	cmd.Dir, cmd.Stdout = r.dir, in
	p := &running{name: program.name, stdout: out, line: program.line, inside: make(chan struct{})}
	log := filepath.Join(r.dir, strings.ReplaceAll(t.Name(), "/", " ")+" "+program.name+".log")
	if p.process, err = StartProcess(program.name, cmd, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.process.Kill(); err != nil {
			t.Error(err)
		}
	})
	if !blocked {
		p.read()
	}
	return p
}

// fillPipe takes all room from a pipe. It writes until the kernel says that nothing fits: a
// deadline may pass before the first byte is written, and then the program is not blocked at all.
func fillPipe(t *testing.T, in *os.File) {
	t.Helper()
	raw, err := in.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	full := bytes.Repeat([]byte{'\n'}, 1<<20)
	var written error
	err = raw.Write(func(fd uintptr) bool {
		for written == nil || errors.Is(written, syscall.EINTR) {
			_, written = syscall.Write(int(fd), full)
		}
		return true
	})
	if err != nil || !errors.Is(written, syscall.EAGAIN) {
		t.Fatalf("filling a pipe: %v", errors.Join(err, written))
	}
}

// read reads the program's output, to the end.
func (p *running) read() {
	go func() {
		for out := bufio.NewScanner(p.stdout); out.Scan(); {
			if out.Text() == p.line {
				close(p.inside)
			}
		}
	}()
}

// stderr is the program's standard error.
func (p *running) stderr() string { return p.process.LogTail(4 << 10) }
