package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
	"lockkeeper/locknode"
	"lockkeeper/wire"
)

// httpQueue is a lock in a bubble for which contenders come one after the other, over HTTP and as
// sessions of other libraries.
type httpQueue struct {
	t    *testing.T
	s    *Server
	host *simnet.Host
	look *rawClient // looks at the queue

	mu    sync.Mutex
	order []string
	token int64
	hold  func() // has the holder give the lock back
	told  map[string][]lockLine
}

const queuePath = "/queue"

// inHTTPQueue runs a test with a queue whose first holder is of another library.
func inHTTPQueue(t *testing.T, f func(q *httpQueue)) {
	t.Helper()
	inBubble(t, simnet.Config{}, func(c *Config) {
		simLocks(c)
		c.HTTP.ConnsPerAddr = 32
	}, func(t *testing.T, s *Server, host *simnet.Host) {
		q := &httpQueue{t: t, s: s, host: host, look: dialSim(t, host), told: map[string][]lockLine{}}
		q.look.connect(5 * time.Minute)
		q.look.call(wire.OpCreate, &wire.CreateRequest{Path: queuePath, ACL: wire.OpenACL})
		f(q)
		if n := children(q.look, queuePath); len(n) != 0 {
			t.Errorf("%q are left", n)
		}
		_ = q.look.Close()
	})
}

// settle lets everything happen that can happen now.
func (q *httpQueue) settle() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// granted notes that a contender has the lock. Tokens rise from holder to holder.
func (q *httpQueue) granted(name string, token int64, release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hold != nil {
		q.t.Errorf("%s has the lock beside another", name)
	}
	if token <= q.token {
		q.t.Errorf("%s has the token %d after %d", name, token, q.token)
	}
	q.order, q.token, q.hold = append(q.order, name), token, release
}

// http has a contender over HTTP come.
func (q *httpQueue) http(name, query string) {
	q.t.Helper()
	c, r := simLock(q.t, q.host, "PUT /v1/locks"+queuePath+"?explain=true&wait=1h&name="+name+"&"+query)
	go func() {
		for {
			text, err := r.ReadString('\n')
			if err != nil {
				return
			}
			var line lockLine
			if json.Unmarshal([]byte(text), &line) != nil {
				continue
			}
			q.mu.Lock()
			q.told[name] = append(q.told[name], line)
			q.mu.Unlock()
			if line.Event == "granted" {
				q.granted(name, line.Token, func() { _ = c.Close() })
			}
		}
	}()
	q.settle()
}

// foreign has a contender of another library come, which knows of no priorities. It is the holder
// if it is the first. The caller calls see when it may have got to the front.
func (q *httpQueue) foreign(name, node string) (see func()) {
	q.t.Helper()
	z := dialSim(q.t, q.host)
	z.connect(5 * time.Minute)
	var made wire.Create2Response
	if err := wire.Decode(z.call(wire.OpCreate2, &wire.CreateRequest{Path: queuePath + "/" + node, ACL: wire.OpenACL,
		Mode: wire.ModeEphemeralSequential}), &made); err != nil {
		q.t.Fatal(err)
	}
	_, own := locknode.Split(made.Path)
	see = func() {
		q.t.Helper()
		if front, ok := locknode.Predecessor(children(q.look, queuePath), own, false, nil); !ok || front != "" {
			q.t.Fatalf("%s is not the first, but behind %s", name, front)
		}
		q.granted(name, int64(made.Stat.Czxid), func() {
			z.call(wire.OpDelete, &wire.DeleteRequest{Path: made.Path, Version: -1})
			_ = z.Close()
		})
	}
	q.settle()
	return see
}

const (
	curatorName = "_c_550e8400-e29b-41d4-a716-446655440000-lock-"
	kazooName   = "550e8400e29b41d4a716446655440000__lock__"
)

// next has the holder give the lock back.
func (q *httpQueue) next() {
	q.t.Helper()
	q.mu.Lock()
	release := q.hold
	q.hold = nil
	q.mu.Unlock()
	if release == nil {
		q.t.Fatal("nobody has the lock")
	}
	release()
	q.settle()
}

// want checks the order of the holders.
func (q *httpQueue) want(names string) {
	q.t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if got := strings.Join(q.order, " "); got != names {
		q.t.Errorf("granted to %s, want %s", got, names)
	}
}

// TestUrgentRequestsGoFirst: of contenders over HTTP that wait, the most urgent one goes first; a
// contender of another library is overtaken by nobody.
func TestUrgentRequestsGoFirst(t *testing.T) {
	inHTTPQueue(t, func(q *httpQueue) {
		q.foreign("curator", curatorName)()
		for i, priority := range []int{0, -1, 5, 7, 5} {
			q.http(fmt.Sprint(i, ":", priority), fmt.Sprint("priority=", priority))
		}
		for range 5 {
			q.next()
		}
		q.want("curator 3:7 2:5 4:5 0:0 1:-1")
		q.next()
	})
	inHTTPQueue(t, func(q *httpQueue) {
		q.foreign("curator", curatorName)()
		q.http("ordinary", "")
		kazoo := q.foreign("kazoo", kazooName)
		q.http("urgent", "priority=9")
		q.next()
		kazoo()
		q.next()
		q.next()
		q.want("curator kazoo urgent ordinary")
		q.next()
	})
}

// TestYieldsOverHTTPAreBounded: urgent contenders that keep coming do not keep an ordinary one out.
func TestYieldsOverHTTPAreBounded(t *testing.T) {
	inHTTPQueue(t, func(q *httpQueue) {
		q.foreign("curator", curatorName)()
		q.http("ordinary", "yields=2")
		q.http("stays", "yields=0&priority=-1")
		for i := range 4 {
			q.http(fmt.Sprint(i), "priority=9")
			q.next()
		}
		for range 3 {
			q.next()
		}
		// The one that stays is overtaken by nobody.
		q.want("curator stays 0 1 2 ordinary 3")
	})
}

// TestUrgentLeaseOverHTTP: the next to get a lease of a semaphore leaves the gate to a more urgent
// one that comes while it waits.
func TestUrgentLeaseOverHTTP(t *testing.T) {
	inHTTPQueue(t, func(q *httpQueue) {
		for _, c := range []string{"holder", "a", "b"} {
			q.http(c, "mode=semaphore&leases=1")
		}
		q.http("urgent", "mode=semaphore&leases=1&priority=1")
		for range 4 {
			q.next()
		}
		q.want("holder urgent a b")
		if left := append(children(q.look, queuePath+"/leases"), children(q.look, queuePath+"/locks")...); len(left) > 0 {
			t.Errorf("%q are left", left)
		}
		for _, dir := range []string{"leases", "locks", ""} {
			q.look.call(wire.OpDelete, &wire.DeleteRequest{Path: strings.TrimSuffix(queuePath+"/"+dir, "/"), Version: -1})
		}
		q.look.call(wire.OpCreate, &wire.CreateRequest{Path: queuePath, ACL: wire.OpenACL})
	})
}

// short is a contender's name without its host.
func short(who string) string {
	name, _, _ := strings.Cut(who, "@")
	return name
}

// brief shows the lines about a wait.
func brief(lines []lockLine) (texts []string) {
	for _, l := range lines {
		if l.Event != "waits" {
			continue
		}
		text := fmt.Sprintf("%d ahead, held by", l.Ahead)
		for _, h := range l.Holders {
			text += " " + cmp.Or(short(h.Who), h.Library)
		}
		if l.Next != nil && !l.Next.Held {
			text += fmt.Sprintf(", behind %s of priority %d", short(l.Next.Who), l.Next.Priority)
		}
		if l.HasYielded > 0 {
			text += fmt.Sprintf(", yielded %d times", l.HasYielded)
		}
		texts = append(texts, text)
	}
	return texts
}

// TestWaitOverHTTPIsExplained: a request that waits is told who is in front: when it begins to
// wait, when there is another one next before it, and otherwise after 10 s, 20 s and so on.
func TestWaitOverHTTPIsExplained(t *testing.T) {
	inHTTPQueue(t, func(q *httpQueue) {
		q.foreign("curator", curatorName)()
		q.http("a", "")
		q.http("b", "priority=3")
		time.Sleep(31 * time.Second)
		q.look.call(wire.OpPing, nil)
		q.next() // a yields to b
		q.next()
		q.next()
		q.want("curator b a")
		const first = "1 ahead, held by curator"
		if got, want := brief(q.told["a"]), []string{first, first, first,
			"1 ahead, held by b, yielded 1 times"}; !slices.Equal(got, want) {
			t.Errorf("a was told %q, want %q", got, want)
		}
		const second = "2 ahead, held by curator, behind a of priority 0"
		if got := brief(q.told["b"]); len(got) < 3 || got[0] != second || got[2] != second {
			t.Errorf("b was told %q", got)
		}
		for _, l := range q.told["b"][:1] {
			at, err := time.Parse(time.RFC3339, l.Holders[0].QueuedAt)
			if err != nil || time.Since(at) < 31*time.Second || l.Holders[0].Token == 0 || l.Node == "" || l.Lock != queuePath {
				t.Errorf("%+v", l)
			}
		}
	})
	inHTTPQueue(t, func(q *httpQueue) {
		var releases []func()
		for i, mode := range []string{"read", "read", "write"} {
			q.http(fmt.Sprint(i), "mode="+mode)
			releases = append(releases, q.hold)
			q.hold = nil // readers share
		}
		want := []string{"2 ahead, held by 0 1"}
		if got := brief(q.told["2"]); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		releases[0]()
		releases[1]()
		q.settle()
		q.next()
	})
}

// TestRefusalIsExplained: so is one that does not wait, and one that has waited.
func TestRefusalIsExplained(t *testing.T) {
	s := startReal(t, httpLocks)
	askLock(t, s, "PUT", "/a?name=holder&note=n&priority=4").want(http.StatusOK)
	askLock(t, s, "PUT", "/s?name=holder&mode=semaphore&leases=1").want(http.StatusOK)
	for _, query := range []string{"/a?name=x", "/a?wait=50ms", "/s?mode=semaphore&leases=1", "/s?mode=semaphore&leases=1&wait=50ms", "/s"} {
		l := askLock(t, s, "PUT", query).want(http.StatusConflict).first
		if len(l.Holders) != 1 || l.Holders[0].Who != "holder@127.0.0.1" || !l.Holders[0].Held || l.Ahead != 1 || l.Error == "" {
			t.Errorf("%s: %+v", query, l)
		}
		if strings.HasPrefix(query, "/a") && (l.Next == nil || l.Next.Note != "n" || l.Next.Priority != 4 || l.Behind != l.Next.Node) {
			t.Errorf("%s: %+v", query, l)
		}
	}
	// After lines about the wait the status is sent, and the last line has another one.
	l := askLock(t, s, "PUT", "/a?wait=50ms&explain=true").want(http.StatusOK)
	last, err := l.last()
	if l.first.Event != "waits" || last.Event != "refused" || last.Status != http.StatusConflict || last.Error == "" ||
		len(last.Holders) != 1 || err != nil || l.resp.Header.Get("Fencing-Token") != "" {
		t.Errorf("%+v, %+v, %v", l.first, last, err)
	}
	// Without a wait there are no lines, and a lock that is free has its header.
	askLock(t, s, "PUT", "/a?explain=true").want(http.StatusConflict)
	if l := askLock(t, s, "PUT", "/b?explain=true&hold=renew").want(http.StatusOK); l.first.Event != "granted" ||
		l.resp.Header.Get("Fencing-Token") == "" || l.resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%+v, %v", l.first, l.resp.Header)
	}
}
