package recipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes/internal/sessionfile"
)

// newFileSession connects to a fake cluster with a session file, as Connect does with a real one.
// before is the connection of the previous process, with requests that may arrive late; nil: none.
func newFileSession(t *testing.T, c *fakeCluster, file string, before *fakeConn) (*Session, *fakeConn) {
	t.Helper()
	k, err := sessionfile.Open(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	offer, offered := k.Offer()
	conn := c.connectAs(offer.ID)
	if _, err := k.Attached(sessionfile.Session{
		ID: conn.SessionID(), TimeoutMs: int32(testTimeout.Milliseconds()), Password: make([]byte, 16),
	}); err != nil {
		t.Fatal(err)
	}
	if offered {
		if err := k.Resumed(c.owned(offer.ID, before)); err != nil {
			t.Fatal(err)
		}
	}
	s := NewSession(conn, conn.events, testTimeout)
	s.link.keeper = k
	return s, conn
}

// connectAs is connect to a session that may be there; 0: a new one.
func (c *fakeCluster) connectAs(id int64) *fakeConn {
	f := c.connect()
	if id != 0 {
		c.with(func() { f.id = id })
	}
	return f
}

// owned lists the nodes of a session, after the requests that an earlier connection has under way.
func (c *fakeCluster) owned(id int64, before *fakeConn) (nodes []string) {
	c.with(func() {
		if before != nil {
			for _, f := range before.late {
				f()
			}
			before.late = nil
		}
		for path, n := range c.nodes {
			if n.owner == id {
				nodes = append(nodes, path)
			}
		}
	})
	return nodes
}

// TestKilledAtEveryCall kills a contender at each of its calls, which is lost, answered in vain, or
// late. The next process with its session file gets the lock, with the same token if the one before
// held it; nobody else has it in between, and nothing stays behind. It has a fault of the same kind
// at each of its first calls.
func TestKilledAtEveryCall(t *testing.T) {
	for _, lock := range testLocks {
		for _, how := range []fault{faultCutBefore, faultCutAfter, faultCutLate} {
			for _, behind := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/behind-%v", lock.name, how, behind), func(t *testing.T) {
					t.Parallel()
					killAtEach(t, killed{lock: lock, how: how, behind: behind})
				})
			}
		}
	}
}

func killAtEach(t *testing.T, k killed) {
	calls := 4 // of the next process
	if testing.Short() {
		calls = 1
	}
	for hit := true; hit; k.at++ {
		for k.again = -1; k.again < calls && hit; k.again++ {
			run := k
			run.file = filepath.Join(t.TempDir(), "session")
			if !t.Run(fmt.Sprint(run.at, run.again), func(t *testing.T) { synctest.Test(t, run.run) }) {
				return
			}
			if hit = run.hit != ""; !hit && run.at < 2 {
				t.Errorf("only %d calls", run.at)
			}
		}
	}
}

// killed is a process that is killed at a call.
type killed struct {
	lock testLock
	how  fault
	at   int
	file string
	// again is the call of the next process that has the fault; -1: none
	again  int
	behind bool // another holds the lock meanwhile

	hit string // the call
}

// life is the life of a killed process.
type life struct {
	mu    sync.Mutex
	hit   string // the call at which it was killed
	phase string // it locks, holds, or unlocks; the last one before it was killed
	token int64  // while it held the lock
}

// enter enters a phase, and reports false if the process was killed.
func (l *life) enter(phase string, token int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hit == "" {
		l.phase, l.token = phase, token
	}
	return l.hit == ""
}

// kill kills the process at a call.
func (l *life) kill(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hit = call
}

// end returns the fields of a life that is over.
func (l *life) end() (hit, phase string, token int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hit, l.phase, l.token
}

func (k *killed) run(t *testing.T) {
	c := newFakeCluster()
	a, aconn := newFileSession(t, c, k.file, nil)
	b, _ := newTestSession(c)
	defer a.Close()
	defer b.Close()
	aconn.reconnect = 1000 * time.Hour
	r, order := &referee{t: t}, make(chan string, 2)
	unlock := func() { k.lockOnce(t, r, order, "another", k.lock.b(b, testPath), 0) }
	if k.behind {
		g, err := k.lock.b(b, testPath).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.enter(g)
		unlock = func() {
			time.Sleep(testTimeout)
			order <- "another"
			if err := g.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	l := &life{phase: "locks"}
	aconn.hook = func(n int, op, path string) fault {
		if n != k.at {
			return faultNone
		}
		l.kill(op + " " + path)
		a.link.keeper.Stop() // it writes nothing more
		return k.how
	}
	go k.live(t, a, l)
	time.Sleep(2 * testTimeout / 3)
	synctest.Wait()
	var phase string
	var token int64
	k.hit, phase, token = l.end()
	if k.hit == "" { // it has waited behind another, or has done all
		a.link.keeper.Stop()
		c.with(aconn.cutLocked)
	}
	if err := a.link.keeper.Close(false); err != nil {
		t.Fatal(err)
	}
	go unlock()
	synctest.Wait()
	a2, conn := newFileSession(t, c, k.file, aconn)
	defer a2.Close()
	conn.hook = func(n int, _, _ string) fault {
		if n == k.again {
			return k.how
		}
		return faultNone
	}
	if phase != "holds" {
		token = 0
	}
	go func() {
		k.lockOnce(t, r, order, "the next process", k.lock.a(a2, testPath), token)
		if err := a2.GiveBack(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(time.Minute) // if nothing goes on, a lock delay ends then
	synctest.Wait()
	if len(order) < 2 {
		t.Errorf("only %d of 2 got the lock", len(order))
	} else if first := <-order; phase == "holds" && first != "the next process" || k.behind && first != "another" {
		t.Errorf("%s was first", first)
	}
	if left := c.owned(a2.link.conn.SessionID(), nil); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if t.Failed() {
		t.Logf("%v at call %d: %s, while it %s", k.how, k.at, k.hit, phase)
	}
	// The killed process must not end the session when the test closes it.
	c.with(func() { aconn.state = zk.StateDisconnected })
}

// live has the process lock, hold the lock for a while, and unlock.
func (k *killed) live(t *testing.T, s *Session, l *life) {
	g, err := k.lock.a(s, testPath).Lock(t.Context())
	if err != nil || !l.enter("holds", g.Token()) {
		return
	}
	time.Sleep(testTimeout / 3)
	if l.enter("unlocks", 0) {
		_ = g.Unlock(t.Context())
	}
}

// lockOnce locks and unlocks. The token has to be the given one, if it is not 0.
func (k *killed) lockOnce(t *testing.T, r *referee, order chan<- string, name string, l testLocker, token int64) {
	g, err := l.Lock(t.Context())
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	order <- name
	r.enter(g)
	if token != 0 && g.Token() != token {
		t.Errorf("%s has token %d, it was %d", name, g.Token(), token)
	}
	if err := g.Unlock(t.Context()); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// fileMembers are fakeMembers that take sessions from a file.
func fileMembers(t *testing.T, c Config) (*fakeMembers, *Session) {
	m := newFakeMembers(testTimeout, "a")
	m.nodes = []string{"/l/_c_00000000-0000-4000-8000-000000000000-lock-0000000003"}
	return m, m.connect(t, c)
}

// TestFirstHandshake: the session is in the file, for this user alone, before its first request;
// and the next process attaches to it, behind a write, and asks for its nodes.
func TestFirstHandshake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "session")
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(testTimeout, "a")
		m.seen = func(name string) {
			text, err := os.ReadFile(file)
			if has := strings.Contains(string(text), "session 0x7 6000 "); has == (name == "handshake") || name != "handshake" && err != nil {
				t.Errorf("at %s the file has %q, %v", name, text, err)
			}
		}
		s := m.connect(t, Config{SessionFile: file})
		if err := s.Reach(t.Context()); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		s.Detach()
		m, s = fileMembers(t, Config{SessionFile: file})
		r := mustResume(t, t.Context(), s)
		if r.Session != 7 {
			t.Errorf("resumed %+v", r)
		}
		got, asked := m.requests("a:1")
		if !slices.Equal(got, []string{"handshake", "multi", "getEphemerals"}) || !slices.Equal(asked, []uint64{7}) {
			t.Errorf("requests %q, handshakes for the sessions %d", got, asked)
		}
		s.Close()
	})
}

// TestFileCannotBeWritten: a session that cannot be in the file ends before its first request.
func TestFileCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(testTimeout, "a")
		m.seen = func(string) { os.RemoveAll(dir) }
		s := m.connect(t, Config{SessionFile: filepath.Join(dir, "session")})
		defer s.Close()
		if _, err := NewMutex(s, testPath, MutexOptions{}).Lock(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Lock = %v", err)
		}
		time.Sleep(2 * time.Second) // the client waits for an answer to its close
		if got, _ := m.requests("a:1"); !slices.Equal(slices.Compact(got), []string{"handshake"}) {
			t.Errorf("requests %q", got)
		}
	})
}

// TestServerWithoutList: a server that cannot list a session's nodes is found out at the first
// start, not when a process is restarted.
func TestServerWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(testTimeout, "a")
		m.listCode = -6 // unimplemented
		s := m.connect(t, Config{SessionFile: filepath.Join(t.TempDir(), "session")})
		defer s.Close()
		if err := s.Reach(t.Context()); err == nil || !strings.Contains(err.Error(), "3.6") {
			t.Errorf("Reach = %v", err)
		}
		time.Sleep(2 * time.Second) // the client waits for an answer to its close
	})
}

// TestUnansweredFileStays: Close before any server has answered for the session in the file leaves
// it to the next process.
func TestUnansweredFileStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "session")
	synctest.Test(t, func(t *testing.T) {
		s := newFakeMembers(testTimeout, "a").connect(t, Config{SessionFile: file})
		if err := s.Reach(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Detach()
		m := newFakeMembers(testTimeout, "a")
		m.set("a", hangs)
		s = m.connect(t, Config{SessionFile: file})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Reach(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		s.Close()
		m.set("a", serves) // it has frames in its socket
		_, s = fileMembers(t, Config{SessionFile: file})
		if r := mustResume(t, t.Context(), s); r.Session != 7 {
			t.Errorf("resumed %+v", r)
		}
		s.Close()
	})
}

// TestParseStrings: a list that is cut off anywhere, or counts wrong, is an error.
func TestParseStrings(t *testing.T) {
	whole := []byte("\x00\x00\x00\x02\x00\x00\x00\x02/a\x00\x00\x00\x03/bc")
	if got, err := parseStrings(whole); err != nil || !slices.Equal(got, []string{"/a", "/bc"}) {
		t.Error(got, err)
	}
	if got, err := parseStrings([]byte{0xff, 0xff, 0xff, 0xff}); err != nil || got != nil {
		t.Error(got, err)
	}
	for n := range whole {
		if got, err := parseStrings(whole[:n]); err == nil {
			t.Errorf("%q: %q", whole[:n], got)
		}
	}
	if _, err := parseStrings(binary.BigEndian.AppendUint32(whole[:4:4], 1<<31)); err == nil {
		t.Error("a negative length")
	}
}

// TestResumedHolderDoesNotYield: the next process goes on with the lock that the one before held,
// whoever has come to the queue.
func TestResumedHolderDoesNotYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, file := newPriorities(t), filepath.Join(t.TempDir(), "session")
		a, aconn := newFileSession(t, p.c, file, nil)
		defer a.Close()
		before := mustLock(t, NewMutex(a, testPath, MutexOptions{}))
		p.mutex("urgent", 5)
		aconn.reconnect = 1000 * time.Hour
		a.link.keeper.Stop()
		p.c.with(aconn.cutLocked)
		if err := a.link.keeper.Close(false); err != nil {
			t.Fatal(err)
		}
		b, _ := newFileSession(t, p.c, file, aconn)
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout/3)
		defer cancel()
		g, err := NewMutex(b, testPath, MutexOptions{}).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !g.Resumed() || g.Token() != before.Token() {
			t.Errorf("resumed %v, token %d, was %d", g.Resumed(), g.Token(), before.Token())
		}
		p.want("")
		mustUnlock(t, g)
		synctest.Wait()
		p.next(1)
		p.want("urgent")
	})
}
