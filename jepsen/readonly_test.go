package jepsen

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// kazooReader is a kazoo client that accepts to read only. It prints its observations, and takes no
// commands.
const kazooReader = `
import sys, time
from kazoo.client import KazooClient
from kazoo.exceptions import NotReadOnlyCallError
from kazoo.protocol.states import KeeperState
c = KazooClient(hosts=sys.argv[1], read_only=True, timeout=6)
c.start(timeout=60)
def say(*words): print(*words, flush=True)
say('state', c.client_state)
say('data', c.get('/a')[0].decode(), c.exists('/nothing'))
for name, f in (('create', lambda: c.create('/b', b'')), ('set', lambda: c.set('/a', b'')), ('sync', lambda: c.sync('/'))):
    try:
        f(); say(name, 'done')
    except NotReadOnlyCallError:
        say(name, 'refused')
time.sleep(5)  # longer than it waits for the answer to a ping
say('still', c.client_state)
say('waiting')
while c.client_state != KeeperState.CONNECTED:
    time.sleep(0.01)
for i in range(600):
    try:
        say('created', c.create('/kazoo', b''))
        break
    except Exception as e:
        time.sleep(0.1)
c.stop()
`

// Unmodified clients that accept it read from the one member that is left of three, are refused to
// write, and are served fully again when there is a majority; those that do not accept it are not
// served.
func TestReadOnlyClients(t *testing.T) {
	client(t, "kazoo") // or the test ends here
	zkCli, err := JavaTool("org.apache.zookeeper.ZooKeeperMain")
	Need(t, err)
	const cClient = "/usr/lib/zookeeper/bin/cli_mt"
	if _, err := os.Stat(cClient); err != nil {
		Need(t, fmt.Errorf("jepsen: ZooKeeper's C client: %w (apt-get install zookeeper-bin)", ErrMissing))
	}
	l := newLabWith(t, 4*time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3,
		TickTime: 2 * time.Second, Extra: []string{"readonlymode.enabled=true"}})
	conn := l.connect()
	if _, err := conn.Create("/a", []byte("kept"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Sync("/"); err != nil {
		t.Fatal(err)
	}
	left, gone := l.cluster.Members()[0], l.cluster.Members()[1:]
	for _, m := range gone {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitReadOnly(left)
	// Started again without a majority, it has not gone back in time, though it took no snapshot.
	if err := left.Stop(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	l.awaitReadOnly(left)

	answer, err := FourLetter(l.ctx, left.ClientAddr, "srvr")
	if err != nil || !strings.Contains(answer, "\nREAD-ONLY mode; serving only read-only clients\n") ||
		!strings.Contains(answer, "\nMode: read-only\n") {
		t.Errorf("srvr: %v\n%s", err, answer)
	}
	addr := left.ClientAddr
	l.expectOutput("zkcli-get", zkCli("-r", "-server", addr, "get", "/a"), "ConnectedReadOnly", "kept")
	l.expectOutput("zkcli-create", zkCli("-r", "-server", addr, "create", "/b"), "Not a read-only call")
	l.expectOutput("cli-get", exec.Command(cClient, "-r", "-h", addr, "-c", "get /a"), "kept")
	l.expectOutput("cli-create", exec.Command(cClient, "-r", "-h", addr, "-c", "create /b"), "-119")
	other := openClient(t, l.sessionTimeout, left.ClientAddr)

	kazoo := l.startKazooReader()
	for _, want := range []string{"state CONNECTED_RO", "data kept None", "create refused", "set refused",
		"sync refused", "still CONNECTED_RO", "waiting"} {
		if !kazoo.Scan() || kazoo.Text() != want {
			t.Fatalf("kazoo says %q, want %q", kazoo.Text(), want)
		}
	}
	if state := other.State(); state == zk.StateHasSession {
		t.Errorf("a client that does not accept to read only: %v", state)
	}

	for _, m := range gone {
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if !kazoo.Scan() || kazoo.Text() != "created /kazoo" {
		t.Errorf("kazoo says %q", kazoo.Text())
	}
	l.logged(left, "read-only mode has ended", 1)
	if answer, err := FourLetter(l.ctx, left.ClientAddr, "isro"); err != nil || answer != "rw" {
		t.Errorf("isro: %q, %v", answer, err)
	}
}

// expectOutput runs a command, which may be refused, and looks for words in its output.
func (l *lab) expectOutput(name string, cmd *exec.Cmd, words ...string) {
	l.t.Helper()
	path := filepath.Join(l.dir, name+".out")
	_ = Run(l.ctx, name, cmd, path) // a refused command ends with an error
	text, err := os.ReadFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, w := range words {
		if !strings.Contains(string(text), w) {
			l.t.Errorf("%s does not say %q, but:\n%s", name, w, text)
		}
	}
}

// startKazooReader starts kazooReader, which is killed when the test ends, and returns its lines.
func (l *lab) startKazooReader() *bufio.Scanner {
	l.t.Helper()
	kazoo := exec.CommandContext(l.ctx, "/usr/bin/python3", "-c", kazooReader, l.cluster.Servers())
	kazoo.Stderr = os.Stderr
	out, err := kazoo.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := kazoo.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = kazoo.Process.Kill(); _ = kazoo.Wait() })
	return bufio.NewScanner(out)
}

func (l *lab) awaitReadOnly(m *Member) {
	l.t.Helper()
	err := Poll(l.ctx, 20*time.Millisecond, func() error {
		answer, err := FourLetter(l.ctx, m.ClientAddr, "isro")
		if err == nil && answer != "ro" {
			err = errors.New("isro answers " + answer)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}
