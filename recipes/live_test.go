package recipes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// liveTimeout is for sessions that are not to expire, however slow the machine.
const liveTimeout = 30 * time.Second

// live is a session with a real server, closed when the test ends.
func live(t *testing.T, addr string, timeout time.Duration) *Session {
	t.Helper()
	s, err := Connect(Config{Servers: []string{addr}, SessionTimeout: timeout, HostProvider: &impatientHosts{}, Dial: dialLive})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// livePath is a path that no other test uses.
func livePath(t *testing.T) string {
	return "/recipes/" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
}

// limit bounds a test, so that one that hangs says where.
func limit(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func liveLock(t *testing.T, ctx context.Context, s *Session, path string) *Grant {
	t.Helper()
	g, err := NewMutex(s, path, MutexOptions{}).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// lockLater locks in the background. It sends nil when that fails.
func lockLater(t *testing.T, ctx context.Context, s *Session, path string) <-chan *Grant {
	next := make(chan *Grant, 1)
	go func() {
		g, err := NewMutex(s, path, MutexOptions{}).Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		next <- g
	}()
	return next
}

// awaitChildren waits until path has n children.
func awaitChildren(t *testing.T, ctx context.Context, s *Session, path string, n int) []string {
	t.Helper()
	conn := s.Conn().(*zk.Conn)
	for {
		names, _, events, err := conn.ChildrenW(path)
		if errors.Is(err, zk.ErrNoNode) && n == 0 {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == n {
			return names
		}
		select {
		case <-events:
		case <-ctx.Done():
			t.Fatalf("%s has the children %v, want %d", path, names, n)
		}
	}
}

func TestLiveMutex(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		a := &arena{t: t}
		const contenders, rounds = 5, 20
		var wg sync.WaitGroup
		for i := range contenders {
			s := live(t, addr, liveTimeout)
			wg.Go(func() {
				m := NewMutex(s, path, MutexOptions{Data: fmt.Append(nil, i)})
				for range rounds {
					g, err := m.Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					a.enter(g.Node(), g.Token())
					if !g.Held() {
						t.Errorf("not held: %v", g.Err())
					}
					a.leave(g.Node())
					if err := g.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if a.rounds != contenders*rounds {
			t.Errorf("%d rounds, want %d", a.rounds, contenders*rounds)
		}
		awaitChildren(t, ctx, live(t, addr, liveTimeout), path, 0)
	})
}

func TestLiveOrder(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const n = 6
		watcher := live(t, addr, liveTimeout)
		grants := make([]chan *Grant, n)
		for i := range n {
			s := live(t, addr, liveTimeout)
			grants[i] = make(chan *Grant)
			go func() {
				g, err := NewMutex(s, path, MutexOptions{}).Lock(ctx)
				if err != nil {
					t.Error(err)
				}
				grants[i] <- g
			}()
			if i == 0 { // the path has to come to exist
				g := <-grants[0]
				go func() { grants[0] <- g }()
			}
			awaitChildren(t, ctx, watcher, path, i+1)
		}
		for i := range n {
			g := <-grants[i]
			for j := i + 1; j < n; j++ {
				select {
				case <-grants[j]:
					t.Errorf("%d has the lock before %d has released it", j, i)
				default:
				}
			}
			if err := g.Unlock(ctx); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestLiveTryLock(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		s := live(t, addr, liveTimeout)
		m := NewMutex(s, path, MutexOptions{})
		g, err := m.TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := m.TryLock(ctx); !errors.Is(err, ErrLocked) {
				t.Errorf("TryLock = %v, want ErrLocked", err)
			}
		}
		if names, _, err := s.Conn().Children(path); err != nil || len(names) != 1 {
			t.Errorf("children: %v, %v", names, err)
		}
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
		g, err = m.TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLiveToken: the path is deleted and made again, the tokens go on.
func TestLiveToken(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		s := live(t, addr, liveTimeout)
		var last int64
		for range 3 {
			g := liveLock(t, ctx, s, path)
			if !strings.HasSuffix(g.Node(), "-lock-0000000000") {
				t.Errorf("node %s: the path was not made again", g.Node())
			}
			if g.Token() <= last {
				t.Errorf("token %d after %d", g.Token(), last)
			}
			last = g.Token()
			if err := g.Unlock(ctx); err != nil {
				t.Error(err)
			}
			if err := s.Conn().Delete(path, -1); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLiveProcesses: contenders that are processes of their own; one of them is
// killed with -9 while it waits.
func TestLiveProcesses(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		s := live(t, addr, liveTimeout)
		g := liveLock(t, ctx, s, path)
		const n, rounds = 3, 15
		var all []*contender
		for i := range n {
			c := startGo(t, addr, path, liveTimeout)
			c.name = fmt.Sprint("process ", i)
			all = append(all, c)
		}
		victim := startGo(t, addr, path, 2*time.Second)
		victim.say("lock")
		awaitChildren(t, ctx, s, path, 2)
		victim.cmd.Process.Kill()
		a := &arena{t: t}
		var wg sync.WaitGroup
		for _, c := range all {
			c.say(fmt.Sprint("run ", rounds, " mutex"))
			wg.Go(func() { a.follow(c) })
		}
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if a.rounds != n*rounds {
			t.Errorf("%d rounds, want %d", a.rounds, n*rounds)
		}
		awaitChildren(t, ctx, s, path, 0)
	})
}

// TestLiveNegotiated: the Session counts with the timeout that the server has granted.
func TestLiveNegotiated(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx := limit(t, 2*time.Minute)
		for _, tt := range []struct{ asked, want time.Duration }{
			{time.Millisecond, 400 * time.Millisecond},
			{5 * time.Second, 5 * time.Second},
			{time.Hour, time.Minute},
		} {
			s := live(t, addr, tt.asked)
			l, err := s.link.ready(ctx)
			if err != nil {
				t.Fatal(err)
			}
			s.link.mu.Lock()
			if l.timeout != tt.want {
				t.Errorf("asked for %v: counts with %v, want %v", tt.asked, l.timeout, tt.want)
			}
			s.link.mu.Unlock()
		}
	})
}

// TestLiveShared: processes that share, as readers and as holders of a semaphore. One of
// them is killed with -9 while it holds.
func TestLiveShared(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kinds string
		queue string // below the path
	}{
		{"rw", "read read write read", ""},
		{"semaphore", "lease=2", "/leases"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, addr string) {
				ctx, path := limit(t, 2*time.Minute), livePath(t)
				const n, rounds = 4, 20
				s := live(t, addr, liveTimeout)
				a := &arena{t: t, leases: 2}
				victim := startGo(t, addr, path, 2*time.Second)
				victim.say("run 1 " + tt.kinds)
				victim.expect("enter")
				var wg sync.WaitGroup
				for i := range n {
					c := startGo(t, addr, path, liveTimeout)
					c.name = fmt.Sprint("process ", i)
					c.say(fmt.Sprint("run ", rounds, " ", tt.kinds))
					wg.Go(func() { a.follow(c) })
				}
				victim.cmd.Process.Kill()
				wg.Wait()
				if a.rounds != n*rounds {
					t.Errorf("%d rounds, want %d", a.rounds, n*rounds)
				}
				t.Logf("at most %d inside at a time", a.most)
				awaitChildren(t, ctx, s, path+tt.queue, 0)
			})
		})
	}
}

// TestLiveLockDelay: a Session that is closed with a grant in hand has not released
// it; an Unlock has.
func TestLiveLockDelay(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		a, b := live(t, addr, liveTimeout), live(t, addr, liveTimeout)
		opts := MutexOptions{LockDelay: 700 * time.Millisecond}
		for _, m := range []*RWMutex{NewRWMutex(a, path, opts), NewRWMutex(b, path, opts)} {
			g, err := m.TryLock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Unlock(ctx); err != nil {
				t.Error(err)
			}
		}
		if _, err := NewMutex(a, path, opts).Lock(ctx); err != nil {
			t.Fatal(err)
		}
		a.Close()
		for delayed := 0; ; delayed++ {
			g, err := NewMutex(b, path, opts).TryLock(ctx)
			if err == nil {
				if delayed == 0 {
					t.Error("no delay")
				}
				if err := g.Unlock(ctx); err != nil {
					t.Error(err)
				}
				break
			}
			if !errors.Is(err, ErrDelayed) {
				t.Fatal(err)
			}
		}
		dir, name := split(path)
		if exists, _, err := b.Conn().Exists(dir + "/" + delayName + name); exists || err != nil {
			t.Errorf("the note is left: %v, %v", exists, err)
		}
	})
}

// TestLiveGuard: writes guarded by a grant that is gone are not done, though the
// holder does not know yet; and a downgraded writer lets readers in.
func TestLiveGuard(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		s, other := live(t, addr, liveTimeout), live(t, addr, liveTimeout)
		m := NewRWMutex(s, path, MutexOptions{Note: "guard"})
		g, err := m.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		data := path + "-data"
		create := &zk.CreateRequest{Path: data, Acl: zk.WorldACL(zk.PermAll)}
		if r, err := g.Guard(ctx, create); err != nil || len(r) != 1 || r[0].String != data {
			t.Fatalf("Guard = %v, %v", r, err)
		}
		if _, err := g.Guard(ctx, create); !errors.Is(err, zk.ErrNodeExists) {
			t.Errorf("Guard = %v, want ErrNodeExists", err)
		}
		if err := g.Valid(ctx); err != nil {
			t.Error(err)
		}
		// Who may not change its node does not become a reader, and knows.
		readOnly, err := NewRWMutex(s, path+"-acl", MutexOptions{ACL: zk.WorldACL(zk.PermAll &^ zk.PermWrite)}).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := readOnly.Downgrade(ctx); !errors.Is(err, zk.ErrNoAuth) || readOnly.Kind() != KindWrite {
			t.Errorf("Downgrade without WRITE = %v, %v", err, readOnly.Kind())
		}
		if err := readOnly.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if err := g.Downgrade(ctx); err != nil {
			t.Error(err)
		}
		r, err := NewRWMutex(other, path, MutexOptions{}).TryRLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cs, err := other.Contenders(ctx, path)
		if err != nil || len(cs) != 2 || !cs[0].Held || !cs[1].Held || cs[0].Info.Note != "guard" {
			t.Errorf("contenders %+v, %v", cs, err)
		}
		if err := r.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if err := other.Conn().Delete(g.Node(), -1); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Guard(ctx, &zk.SetDataRequest{Path: data, Data: []byte("late"), Version: -1}); !errors.Is(err, ErrDeleted) {
			t.Errorf("Guard = %v, want ErrDeleted", err)
		}
		if text, _, err := other.Conn().Get(data); err != nil || len(text) > 0 {
			t.Errorf("data %q, %v", text, err)
		}
	})
}

// TestLiveMajority: ZooKeeper and lockkeeper as two clusters of three; the third is
// not there. Two contenders take turns.
func TestLiveMajority(t *testing.T) {
	goOnly(t)
	t.Parallel()
	ctx, path := limit(t, 2*time.Minute), livePath(t)
	var addrs []string
	for _, s := range servers {
		addr, err := s.start()
		switch {
		case errors.Is(err, errMissing) && os.Getenv("CI") == "":
			t.Skip(err)
		case err != nil:
			t.Fatal(err)
		}
		addrs = append(addrs, addr)
	}
	dead, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	addrs = append(addrs, fmt.Sprint("127.0.0.1:", dead))
	const rounds = 8
	a := &arena{t: t}
	var wg sync.WaitGroup
	for i := range 2 {
		var sessions []*Session
		for _, addr := range addrs {
			sessions = append(sessions, live(t, addr, liveTimeout))
		}
		m := NewMajorityMutex(path, MajorityOptions{Round: 100 * time.Millisecond}, sessions...)
		wg.Go(func() {
			for range rounds {
				mg, err := m.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				a.enter(fmt.Sprint(i), mg.Tokens()[0])
				if err := mg.Valid(ctx); err != nil {
					t.Error(err)
				}
				a.leave(fmt.Sprint(i))
				if err := mg.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if a.rounds != 2*rounds {
		t.Errorf("%d rounds, want %d", a.rounds, 2*rounds)
	}
	for _, addr := range addrs[:2] {
		awaitChildren(t, ctx, live(t, addr, liveTimeout), path, 0)
	}
}

// TestLiveTreeWatch: every node that is made and deleted below the path is reported, before and
// after the connection was lost.
func TestLiveTreeWatch(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, time.Minute), livePath(t)
		p := newProxy(t, addr)
		events := make(chan zk.Event, 1000)
		s, err := Connect(Config{
			Servers: []string{p.addr()}, SessionTimeout: liveTimeout, HostProvider: &impatientHosts{},
			Tree: &TreeWatch{Path: path, Notify: func(e zk.Event) { events <- e }},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		// next is the next event of a node, or the beginning of a connection.
		next := func() zk.Event {
			t.Helper()
			for {
				select {
				case e := <-events:
					if e.Type == zk.EventNotWatching {
						t.Fatal(e.Err)
					}
					if e.Type != zk.EventSession && e.Path != path || e.State == zk.StateHasSession {
						return e
					}
				case <-ctx.Done():
					t.Fatal("no event")
				}
			}
		}
		other := live(t, addr, liveTimeout)
		hold := func() (node string) {
			g := liveLock(t, ctx, other, path)
			if err := g.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			return g.Node()
		}
		for range 2 {
			for next().Type != zk.EventSession { // of the connection that was cut
			}
			// While ZooKeeper 3.8 still has the connection that was cut it may lose the
			// creation of a node, but not its deletion.
			for range 20 {
				node := hold()
				if e := next(); e.Type == zk.EventNodeDeleted && e.Path == node && strings.HasSuffix(t.Name(), "/zookeeper") {
					continue
				} else if e.Type != zk.EventNodeCreated || e.Path != node {
					t.Fatalf("event %v, want the creation of %s", e, node)
				}
				if e := next(); e.Type != zk.EventNodeDeleted || e.Path != node {
					t.Fatalf("event %v, want the deletion of %s", e, node)
				}
			}
			p.cut()
		}
	})
}

// TestLiveTryLockUnreadable: a holder with a node that may not be read is a holder.
func TestLiveTryLockUnreadable(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, time.Minute), livePath(t)
		s := live(t, addr, liveTimeout)
		if err := s.link.makeDir(ctx, path, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		other, err := Connect(Config{
			Servers: []string{addr}, SessionTimeout: liveTimeout, HostProvider: &impatientHosts{}, Dial: dialLive,
			Auth: []Auth{{"digest", []byte("me:pw")}}, ACL: zk.AuthACL(zk.PermAll),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(other.Close)
		g := liveLock(t, ctx, other, path)
		if _, err := NewMutex(s, path, MutexOptions{}).TryLock(ctx); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v, want ErrLocked", err)
		}
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLiveLockBelowLock: the container of a lock below the lock's path is no contender, whatever
// owner the server says that it has.
func TestLiveLockBelowLock(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, time.Minute), livePath(t)
		s := live(t, addr, liveTimeout)
		below := liveLock(t, ctx, s, path+"/job-0000000000")
		for _, lock := range []Locker{
			NewMutex(s, path, MutexOptions{}), NewRWMutex(s, path, MutexOptions{}).RLocker(),
			NewSemaphore(s, path, SemaphoreOptions{Leases: 1}),
		} {
			g, err := lock.TryLock(ctx)
			if err == nil {
				err = g.Valid(ctx)
			}
			if err == nil {
				err = g.Unlock(ctx)
			}
			if err != nil {
				t.Errorf("%T: %v", lock, err)
			}
		}
		if l, err := NewElection(s, path, ElectionOptions{}).Leader(ctx); !errors.Is(err, ErrNoLeader) {
			t.Errorf("leader %v, %v", l, err)
		}
		if err := below.Unlock(ctx); err != nil {
			t.Error(err)
		}
	})
}
