package clients

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

// sessionTimeout is for all contenders. A client is cut off for certain after two thirds of it.
const sessionTimeout = 4 * time.Second

// The ends of a stage's link.
const here, there = 1, 2

// A story breaks off with stage.failf if a promise is broken.
type story struct {
	name string
	play func(s *stage, l language)
}

var stories = []story{
	{"turns", turns},
	{"cut", cut},
	{"trouble", trouble},
	{"pause", pause},
	{"endings", endings},
	{"readers", readers},
	{"semaphore", semaphore},
	{"guard", guard},
	{"units", units},
}

// A stage is a story while it is played.
type stage struct {
	ctx     context.Context
	dir     string
	servers []string
	root    string // the node below which its locks are
	conn    *zk.Conn
	link    *jepsen.Proxies // between a contender, here, and a server, there

	contenders []*contender
	figures    string // what the story has measured
	err        error
}

// failf ends the story.
func (s *stage) failf(format string, args ...any) {
	s.err = fmt.Errorf(format, args...)
	runtime.Goexit()
}

// must ends the story if err is not nil.
func (s *stage) must(err error) {
	if err != nil {
		s.failf("%w", err)
	}
}

// play plays a story to its end, and returns the promise that was broken.
func (s *stage) play(st story, l language) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, c := range s.contenders {
				s.err = cmp.Or(s.err, c.stop())
			}
			s.err = cmp.Or(s.err, s.link.Close())
		}()
		st.play(s, l)
	}()
	<-done
	return s.err
}

// all is the list of servers as clients take it.
func (s *stage) all() string { return strings.Join(s.servers, ",") }

// granted checks a line "granted": the token is the czxid of a node that is there, in the queue of
// the lock.
func (s *stage) granted(l line, lock string) line {
	_, err := s.conn.Sync(lock) // the contender may be at another member
	s.must(err)
	exists, stat, err := s.conn.Exists(l.node())
	s.must(err)
	switch {
	case !exists:
		s.failf("%s: there is no such node", l)
	case stat.Czxid != l.token():
		s.failf("%s: the czxid of the node is %d", l, stat.Czxid)
	case !strings.HasPrefix(l.node(), lock+"/"):
		s.failf("%s: the node is not below %s", l, lock)
	}
	return l
}

// awaitQueue waits until a node has n children.
func (s *stage) awaitQueue(queue string, n int) {
	s.must(jepsen.Poll(s.ctx, 20*time.Millisecond, func() error {
		if _, err := s.conn.Sync(queue); err != nil {
			return err
		}
		children, _, err := s.conn.Children(queue)
		if err == nil && len(children) != n {
			err = fmt.Errorf("%s has the children %q, not %d", queue, children, n)
		}
		return err
	}))
}

// before checks that a line was said before another one. It is not for the "ended" of a release:
// the thread that says it may be late.
func (s *stage) before(first, second line) {
	if first.at >= second.at {
		s.failf("%q came %v after %q", first, first.at-second.at, second)
	}
}

// grows checks that the token of a line is larger than the one before.
func (s *stage) grows(old, new line) {
	if new.token() <= old.token() {
		s.failf("the token of %q is not larger than that of %q", new, old)
	}
}

// turns has two contenders hold a lock in turn, twice.
func turns(s *stage, l language) {
	lock := path.Join(s.root, "lock")
	holder, next := s.start(l, "one", s.all()), s.start(l, "other", s.all())
	s.send(holder, "h", "open", "mutex", lock)
	s.send(next, "h", "open", "mutex", lock)
	old := s.granted(s.do(holder, "h", "acquire", "granted"), lock)
	for range 3 {
		fromHolder, fromNext := holder.said(), next.said()
		s.send(next, "h", "acquire")
		s.awaitQueue(lock, 2)
		s.send(holder, "h", "release")
		s.soon(holder, fromHolder, "ended", "h", "released")
		token := s.granted(s.await(next, fromNext, "granted", "h"), lock)
		s.grows(old, token)
		s.await(holder, fromHolder, "released", "h")
		old, holder, next = token, next, holder
	}
}

// cutOff cuts a holder off, before it gets in trouble if there is to be any. The holder loses the
// lock before the next contender gets it.
func (s *stage) cutOff(l language, trouble bool) (lock string, holder, next *contender, token line) {
	lock = path.Join(s.root, "lock")
	proxy, err := s.link.Between(here, there, s.servers[0])
	s.must(err)
	holder, next = s.start(l, "holder", proxy), s.start(l, "next", s.all())
	s.send(holder, "h", "open", "mutex", lock)
	s.send(next, "h", "open", "mutex", lock)
	old := s.granted(s.do(holder, "h", "acquire", "granted"), lock)
	s.send(next, "h", "acquire")
	s.awaitQueue(lock, 2)
	if trouble {
		s.do(holder, "h", "trouble", "troubled")
	}
	s.must(jepsen.Partition(s.link, nil))
	token = s.granted(s.await(next, 0, "granted", "h"), lock)
	s.do(holder, "h", "write", "wrote")
	ended, missing, err := holder.find(0, []string{"ended", "h"})
	s.must(err)
	if missing != nil {
		s.failf("%q, and the holder has not lost the lock", token)
	}
	s.before(ended, token)
	s.grows(old, token)
	s.figures = fmt.Sprintf("%q %v before the next grant, with a session timeout of %v",
		ended, (token.at - ended.at).Round(time.Millisecond), sessionTimeout)
	return lock, holder, next, token
}

// cut cuts the holder off until its session has expired. When it can connect again, its next token
// is larger than the token of the contender in between.
func cut(s *stage, l language) {
	lock, holder, next, token := s.cutOff(l, false)
	s.must(jepsen.HealAll(s.link))
	s.release(holder)
	from := holder.said()
	s.send(holder, "h", "acquire")
	s.awaitQueue(lock, 2)
	s.do(next, "h", "release", "released")
	again := s.granted(s.await(holder, from, "granted", "h"), lock)
	s.grows(token, again)
	s.do(holder, "h", "release", "released")
}

// trouble cuts a holder off that its library says nothing to.
func trouble(s *stage, l language) {
	s.cutOff(l, true)
}

// release releases a lock that is lost, for which a library may have an error.
func (s *stage) release(c *contender) {
	from := c.said()
	s.send(c, "h", "release")
	s.must(jepsen.Poll(s.ctx, 20*time.Millisecond, func() error {
		_, next, err := c.find(from, []string{"released", "h"})
		if err == nil && next != nil {
			return fmt.Errorf("%s has not answered to release", c.name)
		}
		return nil
	}))
}

// pause stops the holder's process for longer than its session lasts. When it goes on, a look says
// at once that the lock is lost. The token of a write without a look is smaller than the next
// holder's, so that a fence refuses it.
func pause(s *stage, l language) {
	lock := path.Join(s.root, "lock")
	holder, next := s.start(l, "holder", s.all()), s.start(l, "next", s.all())
	s.send(holder, "h", "open", "mutex", lock)
	s.send(next, "h", "open", "mutex", lock)
	old := s.granted(s.do(holder, "h", "acquire", "granted"), lock)
	s.send(next, "h", "acquire")
	s.awaitQueue(lock, 2)

	s.must(holder.process.Pause(s.ctx))
	token := s.granted(s.await(next, 0, "granted", "h"), lock)
	s.grows(old, token)
	s.send(holder, "h", "write")
	woken := jepsen.Monotonic()
	s.must(holder.process.Resume())
	late := s.await(holder, 0, "wrote", "h")
	if late.token() != old.token() || strings.ToLower(late.words[3]) != "false" {
		s.failf("%q: the holder was granted %q, and has lost it", late, old)
	}
	ended := s.soon(holder, 0, "ended", "h")
	s.figures = fmt.Sprintf("%q %v after the holder woke", ended, (ended.at - woken).Round(time.Millisecond))
}

// endings has a lock lost because its node is deleted, and because the client is closed.
func endings(s *stage, l language) {
	lock := path.Join(s.root, "lock")
	c := s.start(l, "one", s.all())
	s.send(c, "h", "open", "mutex", lock)
	granted := s.granted(s.do(c, "h", "acquire", "granted"), lock)
	s.must(s.conn.Delete(granted.node(), -1))
	s.soon(c, 0, "ended", "h", "deleted")
	s.do(c, "h", "release", "released")

	from := c.said()
	s.granted(s.do(c, "h", "acquire", "granted"), lock)
	s.send(c, "x", "close")
	s.soon(c, from, "ended", "h")
}

// readers has two readers share a lock; a writer gets it when both have released it.
func readers(s *stage, l language) {
	lock := path.Join(s.root, "lock")
	c := s.start(l, "one", s.all())
	s.send(c, "r1", "open", "read", lock)
	s.send(c, "r2", "open", "read", lock)
	s.send(c, "w", "open", "write", lock)
	first := s.granted(s.do(c, "r1", "acquire", "granted"), lock)
	second := s.granted(s.do(c, "r2", "acquire", "granted"), lock)
	s.grows(first, second)
	s.send(c, "w", "acquire")
	s.awaitQueue(lock, 3)
	s.do(c, "r2", "release", "released")
	s.do(c, "r1", "release", "released")
	writer := s.granted(s.await(c, 0, "granted", "w"), lock)
	s.soon(c, 0, "ended", "r1", "released")
	s.soon(c, 0, "ended", "r2", "released")
	s.grows(second, writer)
	s.do(c, "w", "release", "released")
}

// semaphore has three contenders for two leases.
func semaphore(s *stage, l language) {
	lock := path.Join(s.root, "semaphore")
	c := s.start(l, "one", s.all())
	for _, handle := range []string{"a", "b", "c"} {
		s.send(c, handle, "open", "lease=2", lock)
	}
	first := s.granted(s.do(c, "a", "acquire", "granted"), lock)
	second := s.granted(s.do(c, "b", "acquire", "granted"), lock)
	s.grows(first, second)
	from := c.said()
	s.send(c, "c", "acquire")
	s.send(c, "b", "release")
	third := s.granted(s.await(c, from, "granted", "c"), lock)
	s.soon(c, from, "ended", "b", "released")
	s.grows(second, third)
	if l, next, _ := c.find(0, []string{"ended", "a"}); next == nil {
		s.failf("%q, though nobody released it", l)
	}
	s.do(c, "a", "release", "released")
	s.do(c, "c", "release", "released")
}

// noNode is the error NoNode, as a contender in Python and one in Java name it.
var noNode = regexp.MustCompile(`^(NoNodeError\(|org\.apache\.zookeeper\.KeeperException\$NoNodeException)`)

// guard has a holder write to a node of the cluster, guarded by its lock's node: while it holds the
// lock; when the node written to is missing, which is no loss; when its lock's node is deleted in
// front of the write, which the cluster refuses; and after the release.
func guard(s *stage, l language) {
	lock := path.Join(s.root, "lock")
	data := lock + "-data"
	c := s.start(l, "one", s.all())
	s.send(c, "h", "open", "mutex", lock)
	s.granted(s.do(c, "h", "acquire", "granted"), lock)
	from := c.said()
	s.send(c, "h", "guard")
	if l := s.await(c, from, "failed", "h", "guard"); !noNode.MatchString(l.words[3]) {
		s.failf("%q, want the error of the write", l)
	}
	_, err := s.conn.Create(data, []byte("0"), 0, zk.WorldACL(zk.PermAll))
	s.must(err)
	want := func(text string, version int32) {
		got, stat, err := s.conn.Get(data)
		s.must(err)
		if string(got) != text || stat.Version != version {
			s.failf("the node has %q, version %d, want %q, version %d", got, stat.Version, text, version)
		}
	}
	if l := s.do(c, "h", "guard", "guarded"); l.words[2] != "1" {
		s.failf("%q, want the results of the write", l)
	}
	want("held", 1)
	from = c.said()
	refused := s.do(c, "h", "late", "refused")
	want("held", 1)
	s.soon(c, from, "ended", "h", "deleted")
	s.figures = fmt.Sprintf("%q", refused)
	s.do(c, "h", "release", "released")
	s.do(c, "h", "acquire", "granted")
	s.do(c, "h", "release", "released")
	s.do(c, "h", "guard", "refused")
	want("held", 1)
	s.must(s.conn.Delete(data, -1))
}

// units runs the client's own tests.
func units(s *stage, l language) {
	s.must(jepsen.Run(s.ctx, "units", l.units(s.servers[0], path.Join(s.root, "units")), path.Join(s.dir, "units.log")))
}

// meet has a contender of one language, with one kind of lock, hold the path, and one of another
// come to it. shared says whether both hold it then; else the second waits for the first.
func (s *stage) meet(lock string, holder, comer *contender, holds, comes string, shared bool) {
	s.send(holder, holds, "open", holds, lock)
	s.send(comer, comes, "open", comes, lock)
	from := comer.said()
	old := s.granted(s.do(holder, holds, "acquire", "granted"), lock)
	s.send(comer, comes, "acquire")
	if shared {
		s.grows(old, s.granted(s.soon(comer, from, "granted", comes), lock))
		s.do(holder, holds, "release", "released")
	} else {
		s.awaitQueue(lock, 2)
		if l, missing, _ := comer.find(from, []string{"granted", comes}); missing == nil {
			s.failf("%q: it has not waited for %q", l, old)
		}
		fromHolder := holder.said()
		s.do(holder, holds, "release", "released")
		token := s.granted(s.await(comer, from, "granted", comes), lock)
		s.soon(holder, fromHolder, "ended", holds, "released")
		s.grows(old, token)
	}
	s.do(comer, comes, "release", "released")
}

// layouts has each kind of lock that waits for all layouts meet the kinds of the other language.
func layouts(s *stage, java, python language) {
	j, p := s.start(java, "java", s.all()), s.start(python, "python", s.all())
	mutexes := []string{"mutex", "read", "write"}
	for _, holds := range slices.Concat(mutexes, []string{"mutex=all", "read=all", "write=all"}) {
		s.meet(path.Join(s.root, "java", holds), p, j, holds, "mutex=all", false)
	}
	for _, holds := range append(mutexes, "mutex=all") {
		for _, comes := range []string{"mutex=all", "read=all", "write=all"} {
			shared := holds == "read" && comes == "read=all"
			s.meet(path.Join(s.root, "python", holds, comes), j, p, holds, comes, shared)
		}
	}
	// The names of all_layouts are Curator's, so that Curator's own locks wait, too.
	s.meet(path.Join(s.root, "curator", "mutex"), p, j, "mutex=all", "mutex", false)
	s.meet(path.Join(s.root, "curator", "write"), p, j, "write=all", "write", false)
	s.meet(path.Join(s.root, "curator", "read"), p, j, "read=all", "write", false)
}
