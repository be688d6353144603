package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
	"lockkeeper/recipes"
)

const (
	// sessionTimeout is the clients' timeout.
	sessionTimeout = 6 * time.Second
)

// lab is a cluster of three with its clients, and a browser, if the test has one.
type lab struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	cluster *jepsen.Cluster
	history *jepsen.History
	b       *browser
}

func newLab(t *testing.T, extra ...string) *lab {
	t.Helper()
	return startLab(t, 4*time.Minute, openBrowser(t), extra...)
}

// startLab starts the cluster, for so long.
func startLab(t *testing.T, atMost time.Duration, b *browser, extra ...string) *lab {
	t.Helper()
	target, err := tools.Lockkeeper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	t.Cleanup(cancel)
	l := &lab{t: t, ctx: ctx, dir: jepsen.KeptDir(t, false), history: jepsen.NewHistory(), b: b}
	l.cluster, err = jepsen.StartCluster(ctx, jepsen.ClusterConfig{
		Target: target, Members: 3, Dir: l.dir, Admin: true, TickTime: time.Second, Extra: append(extra, "minSessionTimeout=1000"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b != nil {
			b.do(chromedp.Navigate("about:blank")) // the page is left before its member ends
		}
		if t.Failed() {
			t.Log(l.cluster.Logs())
		}
		if err := l.cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := l.cluster.AwaitLeader(ctx); err != nil {
		t.Fatal(err)
	}
	return l
}

// page is where member number id serves the console.
func (l *lab) page(id int) string { return "http://" + l.cluster.Members()[id-1].HTTPAddr + "/" }

// worker starts a process with a client library of another language.
func (l *lab) worker(name string, client func() (jepsen.Client, error)) *jepsen.Worker {
	l.t.Helper()
	c, err := client()
	jepsen.Need(l.t, err)
	w, err := jepsen.StartWorker(l.ctx, jepsen.WorkerConfig{Name: name, Client: c, Servers: l.cluster.Servers(),
		SessionTimeout: sessionTimeout, Dir: l.dir, History: l.history})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = w.Kill() })
	return w
}

// session is a session of this repository's recipes.
func (l *lab) session() *recipes.Session {
	l.t.Helper()
	s, err := recipes.Connect(recipes.Config{Servers: strings.Split(l.cluster.Servers(), ","), SessionTimeout: sessionTimeout})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(s.Close)
	if err := s.Reach(l.ctx); err != nil {
		l.t.Fatal(err)
	}
	return s
}

// A client takes locks, in whatever language; each lock it has by a path of its own.
type client interface {
	// acquire waits for the lock, for at most the test's time.
	acquire(path string) error
	release(path string) error
	// session is its id, as the page writes it.
	session() string
}

// process is a client in a process of its own.
type process struct {
	l      *lab
	w      *jepsen.Worker
	recipe string
	mu     sync.Mutex
	opened map[string]bool
}

func (p *process) do(words ...string) error {
	reply, err := p.w.Do(p.l.ctx, "thread"+words[1], words...) // each lock has a thread
	if err == nil && reply.Kind != jepsen.OK {
		err = fmt.Errorf("%s: %s", strings.Join(words, " "), reply)
	}
	return err
}

func (p *process) acquire(path string) error {
	p.mu.Lock()
	opened := p.opened[path]
	p.opened[path] = true
	p.mu.Unlock()
	if !opened {
		if err := p.do("open", path, p.recipe, path); err != nil {
			return err
		}
	}
	return p.do("acquire", path, "-1")
}

func (p *process) release(path string) error { return p.do("release", path) }

func (p *process) session() string { return asID(p.w.Session()) }

// asID is a session as the page writes it.
func asID(session string) string {
	return "0x" + strings.TrimLeft(strings.TrimPrefix(strings.ToLower(session), "0x"), "0")
}

// program is a client in this process.
type program struct {
	l      *lab
	s      *recipes.Session
	note   string
	mu     sync.Mutex
	grants map[string]*recipes.Grant
}

func (p *program) acquire(path string) error { return p.acquireWithin(p.l.ctx, path) }

func (p *program) acquireWithin(ctx context.Context, path string) error {
	g, err := recipes.NewMutex(p.s, path, recipes.MutexOptions{Note: p.note}).Lock(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants[path] = g
	return nil
}

func (p *program) grant(path string) *recipes.Grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grants[path]
}

func (p *program) release(path string) error { return p.grant(path).Unlock(p.l.ctx) }

func (p *program) session() string { return fmt.Sprintf("0x%x", uint64(p.s.Conn().SessionID())) }

func (l *lab) program(note string) *program {
	return &program{l: l, s: l.session(), note: note, grants: make(map[string]*recipes.Grant)}
}

func (l *lab) process(name, recipe string, find func() (jepsen.Client, error)) *process {
	return &process{l: l, w: l.worker(name, find), recipe: recipe, opened: make(map[string]bool)}
}

// must ends the test on an error.
func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// later does something in the background; the error comes over the channel.
func later(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// load has a client take and release a lock for as long as the test runs.
func (l *lab) load(c client, path string) (stop func()) {
	quit := make(chan struct{})
	done := later(func() error {
		for {
			select {
			case <-quit:
				return nil
			case <-time.After(20 * time.Millisecond): // a closed-loop client with some work
			}
			if err := errors.Join(c.acquire(path), c.release(path)); err != nil {
				return err
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		if err := <-done; err != nil {
			l.t.Errorf("load on %s: %v", path, err)
		}
	})
}

// TestLive has the page show a real cluster of three under load of Curator, kazoo and Go clients.
func TestLive(t *testing.T) {
	l := newLab(t)
	java, python := l.process("java", "mutex", tools.Curator), l.process("python", "lock", tools.Kazoo)
	first, second, third := l.program("monthly report"), l.program("second"), l.program("third")
	loaders := []func(){l.load(java, "/load/java"), l.load(python, "/load/python"), l.load(third, "/load/go")}
	defer func() {
		for _, stop := range loaders {
			stop()
		}
	}()
	l.b.resize(desktop)
	l.testQueues(map[string][2]client{
		"/shop/orders":     {java, l.process("java2", "mutex", tools.Curator)},
		"/import/stock":    {python, l.process("python2", "lock", tools.Kazoo)},
		"/reports/monthly": {first, second},
	})
	l.testDeadlock(first, second)
	l.testHostileNames()
	l.testBreak(first, second)
	l.testProxy()
	for _, stop := range loaders {
		stop()
	}
	l.testKill()
}

// testQueues: holder and queue are right soon after each change, for each library.
func (l *lab) testQueues(pairs map[string][2]client) {
	var took []time.Duration
	for path, pair := range pairs {
		a, b := pair[0], pair[1]
		l.b.open(l.page(2), "lock?path="+url.QueryEscape(path))
		l.b.shows("#summary", "Nobody holds this lock")
		l.must(a.acquire(path))
		took = append(took, l.b.showsQueue("+"+a.session()))
		waits := later(func() error { return b.acquire(path) })
		took = append(took, l.b.showsQueue(join("+"+a.session(), b.session())))
		l.must(a.release(path))
		l.must(<-waits)
		took = append(took, l.b.showsQueue("+"+b.session()))
		l.must(b.release(path))
		took = append(took, l.b.awaitWithin(patience, "nobody", `document.getElementById("summary").innerText.startsWith("Nobody holds")`))
		l.b.await("both holds in the history", `document.querySelectorAll('section[aria-labelledby="history-h"] tbody tr').length === 2`)
		l.b.shows(`section[aria-labelledby="history-h"] tbody`, "released")
		l.b.await("both holds in the picture", `document.querySelectorAll("svg.timeline .bar").length === 2`)
	}
	slices.Sort(took)
	l.t.Logf("figures: %d changes were shown after %v (median), %v (longest)", len(took), took[len(took)/2], took[len(took)-1])
}

// testDeadlock: it appears, drawn, and goes.
func (l *lab) testDeadlock(a, b *program) {
	l.b.open(l.page(3), "trouble")
	l.b.shows("#summary", "")
	l.must(a.acquire("/shop/prices"))
	l.must(b.acquire("/shop/stock"))
	ctx, giveUp := context.WithCancel(l.ctx)
	defer giveUp()
	waits := later(func() error { return a.acquireWithin(ctx, "/shop/stock") })
	waits2 := later(func() error { return b.acquire("/shop/prices") })
	took := l.b.awaitWithin(patience, "the cycle", `document.querySelectorAll("[data-trouble=deadlock] svg.graph .edge.cycle").length === 2`)
	l.b.await("both sessions", fmt.Sprintf(`[%q, %q].every((s) => [...document.querySelectorAll("svg.graph .box.cycle title")].some((t) => t.textContent.includes(s)))`, a.session(), b.session()))
	l.b.shows("#nav", "Trouble")
	giveUp()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		l.t.Errorf("the wait that was given up: %v", err)
	}
	gone := l.b.awaitWithin(patience, "no deadlock", `!document.querySelector("[data-trouble=deadlock]")`)
	l.t.Logf("figures: the deadlock was drawn after %v, and gone after %v", took, gone)
	l.must(a.release("/shop/prices"))
	l.must(<-waits2)
	l.must(b.release("/shop/prices"))
	l.must(b.release("/shop/stock"))
}

// testHostileNames: a real client's names and data become text.
func (l *lab) testHostileNames() {
	s := l.program(hostile)
	path := "/names/" + strings.ReplaceAll(hostile, "/", "")
	_, err := s.s.Conn().Create("/names", nil, 0, zk.WorldACL(zk.PermAll))
	l.must(err)
	_, err = s.s.Conn().Create(path, []byte("</script>"+hostile), 0, zk.WorldACL(zk.PermAll))
	l.must(err)
	l.must(s.acquire(path))
	for _, look := range []struct{ hash, shown string }{
		{"locks?search=names", path}, {"lock?path=" + url.QueryEscape(path), "“" + hostile}, {"nodes?path=" + url.QueryEscape(path), "</script>" + hostile},
		{"session?id=" + s.session(), path},
	} {
		l.b.goTo(look.hash)
		l.b.shows("main", look.shown)
		if n := eval[int](l.b, `document.querySelectorAll("main img, main script, main [onerror]").length + (window.hacked ?? 0)`); n != 0 {
			l.t.Errorf("%s: what a client has written has become HTML", look.hash)
		}
	}
	l.must(s.release(path))
}

// testBreak: an operator breaks a lock; its holder loses it, and the next one has it.
func (l *lab) testBreak(holder, next *program) {
	const path = "/reports/monthly"
	l.must(holder.acquire(path))
	waits := later(func() error { return next.acquire(path) })
	l.b.open(l.page(1), "acts")
	l.b.shows("#summary", "You may look, and not act.")
	l.b.await("the fields", `document.querySelector("input[name=password]")`)
	user, password, _ := strings.Cut(jepsen.AdminAuth, ":")
	if got := eval[string](l.b, `document.querySelector("input[name=user]").value`); got != user {
		l.t.Fatalf("the user is %q", got)
	}
	l.b.clickInto("input[name=password]")
	l.b.press(password + kb.Enter)
	l.b.shows("#summary", "You may act.")
	l.b.goTo("lock?path=" + path)
	l.b.showsQueue(join("+"+holder.session(), next.session()))
	l.b.clickFor("td[data-name=Act] button", "dialog", "its grant is lost, with ErrDeleted")
	l.b.press(path + kb.Enter)
	l.b.shows("#act-result", ".")
	select {
	case <-holder.grant(path).Lost():
		if err := holder.grant(path).Err(); !errors.Is(err, recipes.ErrDeleted) {
			l.t.Errorf("the holder's grant is lost with %v", err)
		}
	case <-time.After(patience):
		l.t.Error("the holder does not learn that its lock was broken")
	}
	l.must(<-waits)
	l.b.press(kb.Enter) // Close
	l.b.await("the dialogue closed", `!document.querySelector("dialog").open`)
	l.b.showsQueue("+" + next.session())
	l.b.shows(`section[aria-labelledby="history-h"] tbody`, "deleted")
	_ = holder.release(path)
	l.must(next.release(path))
}

// testProxy: behind a reverse proxy the page has a prefix.
func (l *lab) testProxy() {
	member, err := url.Parse(l.page(2))
	l.must(err)
	proxy := httptest.NewServer(http.StripPrefix("/ops/m2", &httputil.ReverseProxy{
		FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(member) }}))
	defer proxy.Close()
	defer proxy.CloseClientConnections()
	l.b.open(proxy.URL+"/ops/m2/", "cluster")
	l.b.shows("#member", "seen by member 2")
	l.b.shows("#fresh", "live")
	l.b.open(l.page(2), "cluster") // the proxy ends
}

// testKill: the picture says that a member has gone, and that it is back; and the page that a
// killed member served says that it is not live any more.
func (l *lab) testKill() {
	l.b.open(l.page(1), "cluster")
	l.b.shows("#summary", "All 3 voters answer. One may still fail.")
	killed := l.cluster.Members()[2]
	disc := func(states string) string {
		return fmt.Sprintf(`document.querySelector('.disc[data-member="3"]')?.dataset.state.match(/%s/)`, states)
	}
	l.must(killed.Kill())
	took := l.b.awaitWithin(patience, "that member 3 is gone", disc("no answer"))
	l.b.shows("#summary", "2 of 3 voters answer. No further one may fail.")
	l.must(killed.Restart(l.ctx))
	back := l.b.awaitWithin(patience, "that member 3 is back", disc("follower|leader"))
	l.b.shows("#summary", "All 3 voters answer. One may still fail.")
	l.t.Logf("figures: a killed member was shown as gone after %v; as back %v after it served", took, back)

	l.b.tolerate(true)
	l.must(l.cluster.Members()[0].Kill())
	l.b.await("that nobody answers", `document.getElementById("fresh").innerText.match(/no answer|stale/)`)
	l.b.shows("#banner", "Member 1 does not answer. What is shown is")
	l.must(l.cluster.Members()[0].Restart(l.ctx))
	l.b.shows("#fresh", "live")
	l.b.await("no banner", `document.getElementById("banner").innerText === ""`)
	l.b.tolerate(false)
}
