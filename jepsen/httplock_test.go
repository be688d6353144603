package jepsen

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// curlLine is a line that a lock over HTTP answers.
type curlLine struct {
	Event, Secret, Reason, Error string
	Token                        int64
}

// curl is a process that takes a lock over HTTP.
type curl struct {
	name    string
	l       *lab
	process *Process
	granted chan curlLine // has the first line
	ended   chan struct{} // closed at the end of the output
	last    curlLine
	endedAt time.Duration // by Monotonic, as the following
	heardAt time.Duration // of the last line
}

// curl starts a process that sends a request for a lock to a member.
func (l *lab) curl(name string, m *Member, address string, args ...string) *curl {
	l.t.Helper()
	program, err := exec.LookPath("curl")
	if err != nil {
		Need(l.t, fmt.Errorf("curl: %w (apt-get install curl)", ErrMissing))
	}
	c := &curl{name: name, l: l, granted: make(chan curlLine, 1), ended: make(chan struct{})}
	cmd := exec.Command(program, append([]string{"-sS", "-N", "-X", "PUT", "http://" + m.HTTPAddr + "/v1/locks" + address}, args...)...)
	out, in := io.Pipe() // not cmd.StdoutPipe: cmd.Wait would close it before the last line is read
	cmd.Stdout = in
	if c.process, err = StartProcess(name, cmd, filepath.Join(l.dir, name+".log")); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.process.Kill() })
	go func() {
		<-c.process.Done()
		_ = in.Close()
	}()
	go c.read(out)
	return c
}

func (c *curl) read(out io.Reader) {
	defer close(c.ended)
	defer func() { c.endedAt = Monotonic() }()
	first := true
	for lines := bufio.NewScanner(out); lines.Scan(); first = false {
		c.last = curlLine{}
		if err := json.Unmarshal(lines.Bytes(), &c.last); err != nil {
			if len(lines.Bytes()) > 0 {
				c.last.Error = lines.Text()
			}
			continue
		}
		c.heardAt = Monotonic()
		if first {
			c.granted <- c.last
		}
	}
}

// awaitGrant waits until it has the lock, and returns the token.
func (c *curl) awaitGrant() curlLine {
	c.l.t.Helper()
	select {
	case g := <-c.granted:
		if g.Event != "granted" {
			c.l.t.Fatalf("%s: %+v", c.name, g)
		}
		return g
	case <-c.ended:
		c.l.t.Fatalf("%s ends without a lock: %v, %s", c.name, c.process.Err(), c.process.LogTail(1<<10))
	case <-c.l.ctx.Done():
		c.l.t.Fatalf("%s does not get its lock", c.name)
	}
	return curlLine{}
}

// awaitEnd waits for the end of the process, and returns its exit status.
func (c *curl) awaitEnd() int {
	c.l.t.Helper()
	select {
	case <-c.ended:
	case <-c.l.ctx.Done():
		c.l.t.Fatalf("%s does not end", c.name)
	}
	if exit, ok := c.process.Err().(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return 0
}

// curlLab is a cluster with HTTP ports.
func curlLab(t *testing.T, extra ...string) *lab {
	client(t, "kazoo")
	client(t, "curator")
	l := newLabWith(t, 2*time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3, TickTime: time.Second,
		Admin: true, Extra: extra})
	l.sessionTimeout = 4 * time.Second
	return l
}

// TestCurlLocks: curl, Curator and kazoo take turns at one lock, in the order in which they came.
// The holder's process is killed, and so is the member that serves the next holder's stream, whose
// curl ends before anybody else has the lock.
func TestCurlLocks(t *testing.T) {
	l := curlLab(t)
	members := l.cluster.Members()
	kazoo, curator := l.start("kazoo", 1)[0], l.start("curator", 1)[0]
	l.mustDo(kazoo, "x", "open", "x", "lock", "/curl", "also=-,__")
	l.mustDo(curator, "x", "open", "x", "mutex", "/curl")

	first := l.curl("curl-1", members[0], "/curl?timeout=4s&name=first")
	token := first.awaitGrant().Token
	kazooHas := l.later(kazoo, "x", "acquire", "x", "-1")
	l.awaitQueue("/curl", 2)
	second := l.curl("curl-2", members[1], "/curl?timeout=4s&wait=1m&name=second")
	l.awaitQueue("/curl", 3)
	curatorHas := l.later(curator, "x", "acquire", "x", "-1")
	l.awaitQueue("/curl", 4)
	leaving := l.curl("curl-3", members[2], "/curl?timeout=4s&wait=1m&name=leaving")
	l.awaitQueue("/curl", 5)

	shown, err := exec.Command(l.cluster.members[0].target.Tool().Path, "locks", "-servers", l.cluster.Servers(), "/curl").CombinedOutput()
	for _, name := range []string{"first@127.0.0.1", "second@127.0.0.1", "leaving@127.0.0.1"} {
		if err != nil || !strings.Contains(string(shown), name) {
			t.Errorf("lockkeeper locks does not show %s: %v\n%s", name, err, shown)
		}
	}

	// A client that is killed while it waits leaves at once.
	started := time.Now()
	if err := leaving.process.Kill(); err != nil {
		t.Fatal(err)
	}
	l.awaitQueue("/curl", 4)
	t.Logf("figures: the contender of a killed curl that waited was gone after %v", time.Since(started).Round(time.Millisecond))

	// So does the holder.
	started = time.Now()
	if err := first.process.Kill(); err != nil {
		t.Fatal(err)
	}
	reply := <-kazooHas
	took := time.Since(started)
	t.Logf("figures: kazoo had the lock %v after the curl that held it was killed", took.Round(time.Millisecond))
	if reply.Kind != OK || took > 2*time.Second {
		t.Fatalf("kazoo: %s, after %v", reply, took)
	}
	select {
	case <-second.granted:
		t.Fatal("two holders")
	default:
	}
	l.mustDo(kazoo, "x", "release", "x")
	g := second.awaitGrant()
	if g.Token <= token {
		t.Errorf("token %d after %d", g.Token, token)
	}
	if err := members[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if status := second.awaitEnd(); status == 0 {
		t.Error("curl takes the answer of a killed member for a complete one")
	}
	reply = <-curatorHas
	curatorAt := Monotonic()
	t.Logf("figures: the stream of a killed member ended %v before Curator had the lock", (curatorAt - second.endedAt).Round(time.Millisecond))
	if reply.Kind != OK || curatorAt <= second.endedAt {
		t.Errorf("Curator: %s, %v after the end of the stream", reply, curatorAt-second.endedAt)
	}
	// An urgent curl goes before an ordinary one that came before it, and not before kazoo.
	last := l.curl("curl-4", members[2], "/curl?timeout=4s&wait=1m&name=last")
	l.awaitQueue("/curl", 2)
	kazooHas = l.later(kazoo, "x", "acquire", "x", "-1")
	l.awaitQueue("/curl", 3)
	urgent := l.curl("curl-5", members[0], "/curl?timeout=4s&wait=1m&priority=9&name=urgent")
	l.awaitQueue("/curl", 4)
	l.mustDo(curator, "x", "release", "x")
	if reply := <-kazooHas; reply.Kind != OK {
		t.Fatalf("kazoo: %s", reply)
	}
	shown, err = exec.Command(l.cluster.members[0].target.Tool().Path, "locks", "-servers", l.cluster.Servers(), "/curl").CombinedOutput()
	if err != nil || !strings.Contains(string(shown), "priority 9") || !strings.Contains(string(shown), "has yielded") {
		t.Errorf("lockkeeper locks does not show priorities: %v\n%s", err, shown)
	}
	l.mustDo(kazoo, "x", "release", "x")
	old := urgent.awaitGrant()
	select {
	case <-last.granted:
		t.Fatal("two holders")
	default:
	}
	if err := urgent.process.Kill(); err != nil {
		t.Fatal(err)
	}
	// curl releases by its secret at another member.
	if g = last.awaitGrant(); g.Token <= old.Token {
		t.Errorf("token %d after %d", g.Token, old.Token)
	}
	out, err := exec.Command("curl", "-sS", "-X", "DELETE", "-H", "Lock-Secret: "+g.Secret, "http://"+members[0].HTTPAddr+"/v1/locks/curl").Output()
	var released curlLine
	if err != nil || json.Unmarshal(out, &released) != nil || released.Event != "released" || released.Token != g.Token {
		t.Errorf("%q, %v", out, err)
	}
	last.awaitEnd()
	l.stopWorkers()
	l.checkNothingLeft()
}

// TestCurlBelief: the member that serves streams is cut off from the others. Each stream ends
// before kazoo, Curator or another curl get its lock at another member.
//
// Defends: C6.
func TestCurlBelief(t *testing.T) {
	client(t, "kazoo")
	client(t, "curator")
	Need(t, FindNetwork())
	cfg := ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3, TickTime: 2 * time.Second, Admin: true}
	network, err := NewNetwork(testTimeout(t, time.Minute), cfg.Members, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Places = network.Places()
	l := newLabWith(t, 2*time.Minute, cfg)
	l.sessionTimeout = 4 * time.Second
	victim, others := l.split("follower")
	rest := slices.DeleteFunc([]int{1, 2, 3}, func(id int) bool { return id == victim.ID })

	holders := map[string]*curl{}
	var mu sync.Mutex
	takenAt := map[string]time.Duration{}
	var waiting sync.WaitGroup
	for _, library := range []struct{ name, recipe, option string }{{"kazoo", "lock", "also=-,__"}, {"curator", "mutex", ""}, {name: "curl"}} {
		path := "/curl-" + library.name
		h := l.curl("curl-of-"+library.name, victim, path+"?timeout=4s")
		h.awaitGrant()
		holders[library.name] = h
		took := func() {
			mu.Lock()
			defer mu.Unlock()
			takenAt[library.name] = Monotonic()
		}
		if library.name == "curl" {
			w := l.curl("curl-that-waits", l.cluster.Members()[rest[0]-1], path+"?timeout=4s&wait=1m")
			waiting.Go(func() { w.awaitGrant(); took() })
		} else {
			w := l.startAt(others, library.name, 1)[0]
			open := []string{"open", "x", library.recipe, path}
			if library.option != "" {
				open = append(open, library.option)
			}
			l.mustDo(w, "x", open...)
			waiting.Go(func() {
				if reply, err := w.Do(l.ctx, "x", "acquire", "x", "-1"); err != nil || reply.Kind != OK {
					t.Errorf("%s does not get its lock: %v %v", library.name, reply, err)
				}
				took()
			})
		}
		l.awaitQueue(path, 2)
	}
	cut := Monotonic()
	if err := Partition(network, [][]int{{victim.ID}, rest}); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	for name, h := range holders {
		if status := h.awaitEnd(); status == 0 {
			t.Errorf("the curl of %s ends with status 0", name)
		}
		t.Logf("figures: the stream ended %v after the cut (%s), %v before %s had the lock", (h.endedAt - cut).Round(time.Millisecond),
			h.last.Reason, (takenAt[name] - h.endedAt).Round(time.Millisecond), name)
		if takenAt[name] <= h.endedAt {
			t.Errorf("for %v both a curl and %s held one lock", h.endedAt-takenAt[name], name)
		}
	}
	if err := HealAll(network); err != nil {
		t.Fatal(err)
	}
}

// TestCurlSilence: the member that serves a stream is stopped, so that the stream can neither go on
// nor end. curl's own rule of silence ends it before anybody else has the lock. A process that is
// stopped itself keeps the lock: its connection stands.
//
// Defends: C6.
func TestCurlSilence(t *testing.T) {
	l := curlLab(t)
	members := l.cluster.Members()
	leader, err := l.cluster.AwaitLeader(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	members = slices.DeleteFunc(slices.Clone(members), func(m *Member) bool { return m == leader })
	stopped := l.curl("curl-3", members[0], "/stopped?timeout=4s")
	stopped.awaitGrant()
	if err := syscall.Kill(stopped.process.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// curl takes the mean of five seconds, so it gives up nine seconds after the last line. The
	// lock is valid for ten.
	holder := l.curl("curl-1", members[0], "/silent?timeout=15s", "--speed-limit", "1", "--speed-time", "4")
	holder.awaitGrant()
	next := l.curl("curl-2", members[1], "/silent?timeout=15s&wait=1m")
	l.awaitQueue("/silent", 2)
	Sleep(l.ctx, 6*time.Second)
	l.awaitQueue("/stopped", 1)
	if err := syscall.Kill(stopped.process.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	Sleep(l.ctx, time.Second)
	select {
	case <-stopped.ended:
		t.Fatalf("the stream of a holder that was stopped has ended: %+v", stopped.last)
	case <-next.granted:
		t.Fatal("two holders")
	default:
	}
	if err := members[0].Pause(l.ctx); err != nil {
		t.Fatal(err)
	}
	next.awaitGrant()
	at := Monotonic()
	if status := holder.awaitEnd(); status != 28 {
		t.Errorf("curl ends with status %d, %+v", status, holder.last)
	}
	t.Logf("figures: curl gave up %v after the last line, and %v before the next one had the lock",
		(holder.endedAt - holder.heardAt).Round(time.Millisecond), (at - holder.endedAt).Round(time.Millisecond))
	if holder.endedAt >= at {
		t.Errorf("for %v two held the lock", holder.endedAt-at)
	}
	if err := members[0].Resume(); err != nil {
		t.Fatal(err)
	}
}
