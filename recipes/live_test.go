package recipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

// TestLiveCutAtEveryFrame cuts the connection of a contender at each frame of an
// acquire and a release in turn, in both directions, before and after the frame
// is delivered, while another one holds the lock first.
func TestLiveCutAtEveryFrame(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx := limit(t, 2*time.Minute)
		other := live(t, addr, liveTimeout)
		for _, dir := range []direction{toServer, toClient} {
			for _, how := range []verdict{drop, deliver} {
				t.Run(fmt.Sprint(how, " ", dir), func(t *testing.T) {
					path := livePath(t)
					for at := 0; cutAt(t, ctx, addr, other, path, dir, how, at); at++ {
						if t.Failed() {
							t.Fatalf("frame %d", at)
						}
						if at > 100 {
							t.Fatal("no end of frames")
						}
					}
				})
			}
		}
	})
}

// cutAt reports whether there was such a frame.
func cutAt(t *testing.T, ctx context.Context, addr string, other *Session, path string, dir direction, how verdict, at int) bool {
	p := newProxy(t, addr)
	s := live(t, p.addr(), liveTimeout)
	if _, err := s.ready(ctx); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	hit := false
	p.rule(func(d direction, n int) verdict {
		mu.Lock()
		defer mu.Unlock()
		if hit || d != dir || n != at {
			return pass
		}
		hit = true
		return how
	})
	a := &arena{t: t}
	first := liveLock(t, ctx, other, path)
	a.enter("other", first.Token())
	next := make(chan *Grant)
	go func() {
		g, err := NewMutex(s, path, MutexOptions{}).Lock(ctx)
		if err != nil {
			t.Error(err)
		} else {
			a.enter("cut", g.Token())
		}
		next <- g
	}()
	awaitChildren(t, ctx, other, path, 2)
	a.leave("other")
	if err := first.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if g := <-next; g != nil {
		a.leave("cut")
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	awaitChildren(t, ctx, other, path, 0)
	s.Close()
	mu.Lock()
	defer mu.Unlock()
	return hit
}

// TestLiveCancelAnywhere ends the ctx of acquires at random times, and cuts the
// connection of some of them.
func TestLiveCancelAnywhere(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		p := newProxy(t, addr)
		s, other := live(t, p.addr(), liveTimeout), live(t, addr, liveTimeout)
		m := NewMutex(s, path, MutexOptions{})
		ended := 0
		for i := range 150 {
			short, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Microsecond)
			if i%10 == 5 {
				p.rule(func(dir direction, n int) verdict {
					if n == 2 {
						return drop
					}
					return pass
				})
			}
			g, err := m.Lock(short)
			switch {
			case err == nil:
				if err := g.Unlock(ctx); err != nil {
					t.Error(err)
				}
			case errors.Is(err, context.DeadlineExceeded):
				ended++
			default:
				t.Error(err)
			}
			cancel()
		}
		t.Logf("%d of 150 ended early", ended)
		g := liveLock(t, ctx, other, path)
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
		awaitChildren(t, ctx, other, path, 0)
	})
}

// closeSession ends a session from outside: a second connection with its id and
// its password closes it.
func closeSession(t *testing.T, addr string, id, password []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	hello := binary.BigEndian.AppendUint32(nil, 44)
	hello = append(hello, make([]byte, 12)...) // protocolVersion, lastZxidSeen
	hello = binary.BigEndian.AppendUint32(hello, 10_000)
	hello = append(hello, id...)
	hello = binary.BigEndian.AppendUint32(hello, 16)
	hello = append(hello, password...)
	bye := binary.BigEndian.AppendUint32(nil, 8)
	bye = binary.BigEndian.AppendUint32(bye, 1)
	bye = binary.BigEndian.AppendUint32(bye, uint32(0xfffffff5)) // closeSession, -11
	if _, err := conn.Write(append(hello, bye...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Fatal(err)
	}
}

func TestLiveSessionClosedByAnother(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		p := newProxy(t, addr)
		s, other := live(t, p.addr(), liveTimeout), live(t, addr, liveTimeout)
		g := liveLock(t, ctx, s, path)
		next := lockLater(t, ctx, other, path)
		awaitChildren(t, ctx, other, path, 2)
		// A waiting contender of the session that ends, too.
		waiting := make(chan error)
		go func() {
			_, err := NewMutex(s, path, MutexOptions{}).Lock(ctx)
			waiting <- err
		}()
		awaitChildren(t, ctx, other, path, 3)

		release := p.hold() // or the client comes back before the session is closed
		defer release()
		id, password := p.session()
		closeSession(t, addr, id, password)
		release()
		g2 := <-next
		if g2 == nil {
			t.FailNow()
		}
		if g2.Token() <= g.Token() {
			t.Errorf("token %d after %d", g2.Token(), g.Token())
		}
		select {
		case <-g.Lost():
		case <-ctx.Done():
			t.Fatal("not lost")
		}
		// The client may still see the deletion, or the expiry only.
		if err := g.Err(); err != ErrExpired && err != ErrDeleted {
			t.Errorf("Err = %v, want ErrExpired or ErrDeleted", err)
		}
		if err := <-waiting; !errors.Is(err, ErrExpired) && !errors.Is(err, ErrDeleted) {
			t.Errorf("Lock = %v, want ErrExpired or ErrDeleted", err)
		}
		if err := g.Unlock(ctx); err == nil {
			t.Error("Unlock of a lost grant = nil")
		}
		if !g2.Held() {
			t.Errorf("the next holder lost it: %v", g2.Err())
		}
		if err := g2.Unlock(ctx); err != nil {
			t.Error(err)
		}
		// The session object is good for more.
		g3 := liveLock(t, ctx, s, path)
		if err := g3.Unlock(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLiveBlackhole: the network swallows everything, without a word, until the
// session has expired. The holder knows before the next one gets the lock.
func TestLiveBlackhole(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		silence(t, addr, func(direction, int) verdict { return swallow })
	})
}

// TestLiveOneWay: what the client sends is lost, what the server sends arrives:
// go-zookeeper takes whatever it hears for a sign of life.
func TestLiveOneWay(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		silence(t, addr, func(dir direction, n int) verdict {
			if dir == toServer {
				return swallow
			}
			return pass
		})
	})
}

func silence(t *testing.T, addr string, rule func(direction, int) verdict) {
	ctx, path := limit(t, 2*time.Minute), livePath(t)
	p := newProxy(t, addr)
	s, other := live(t, p.addr(), 2*time.Second), live(t, addr, liveTimeout)
	g := liveLock(t, ctx, s, path)
	next := lockLater(t, ctx, other, path)
	awaitChildren(t, ctx, other, path, 2)

	p.rule(rule)
	g2 := <-next
	if g2 == nil {
		t.FailNow()
	}
	if g.Held() {
		t.Error("the next one has the lock, and the holder does not know")
	}
	if err := g.Err(); err != ErrSilent {
		t.Errorf("Err = %v, want ErrSilent", err)
	}
	if g2.Token() <= g.Token() {
		t.Errorf("token %d after %d", g2.Token(), g.Token())
	}
	p.rule(nil)
	p.cut()
	if err := g.Unlock(ctx); !errors.Is(err, ErrSilent) {
		t.Errorf("Unlock = %v, want ErrSilent", err)
	}
	if err := g2.Unlock(ctx); err != nil {
		t.Error(err)
	}
	awaitChildren(t, ctx, other, path, 0)
}

// TestLiveStopped: a holder is stopped for longer than its session lives.
func TestLiveStopped(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		const timeout = 1500 * time.Millisecond
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		c := startGo(t, addr, path, timeout)
		var token int64
		for held := false; !held; {
			token = c.grant()
			c.say("held")
			// On a machine that is busy enough it may have been lost by now.
			if held = c.next() == "held true"; !held {
				t.Log("lost before it was stopped:", <-c.lost)
				c.say("unlock")
				c.expect("error")
			}
		}
		if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		s := live(t, addr, liveTimeout)
		g := liveLock(t, ctx, s, path) // gets it when the session has expired
		if g.Token() <= token {
			t.Errorf("token %d after %d", g.Token(), token)
		}
		c.say("held") // it finds this when it wakes
		if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if line, want := c.next(), "held false "+ErrSilent.Error(); line != want {
			t.Errorf("the stopped holder said %q when it woke, want %q", line, want)
		}
		if why := <-c.lost; why != ErrSilent.Error() {
			t.Errorf("lost: %q, want %q", why, ErrSilent)
		}
		c.say("unlock")
		c.expect("error")
		if !g.Held() {
			t.Errorf("the next holder lost it: %v", g.Err())
		}
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
		// It can go on, with a larger token.
		if again := c.grant(); again <= g.Token() {
			t.Errorf("token %d after %d", again, g.Token())
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
			c.say(fmt.Sprint("run ", rounds))
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

const python = "/usr/bin/python3" // Debian's, which has kazoo

func startKazoo(t *testing.T, addr, path string, rounds int, how string) *contender {
	needTool(t, "/usr/lib/python3/dist-packages/kazoo", "python3-kazoo")
	c := startContender(t, "kazoo", nil, python, filepath.Join("testdata", "kazoo_contender.py"), addr, path, fmt.Sprint(rounds), how)
	c.expect("ready")
	return c
}

func startCurator(t *testing.T, addr, path string, rounds int) *contender {
	jar := filepath.Join(javaDir, "curator-recipes.jar")
	needTool(t, jar, "libcurator-recipes-java default-jdk-headless")
	java, err := exec.LookPath("java")
	if err != nil {
		needTool(t, "java", "default-jdk-headless")
	}
	c := startContender(t, "curator", nil, java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jar,
		filepath.Join("testdata", "CuratorContender.java"), addr, path, fmt.Sprint(rounds))
	c.expect("ready")
	return c
}

// TestLiveLibraries: one path, fought for with this package, Curator, kazoo and
// go-zookeeper's own Lock.
func TestLiveLibraries(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const rounds = 10
		s := live(t, addr, liveTimeout)
		a := &arena{t: t}
		var wg sync.WaitGroup
		others := []*contender{
			startCurator(t, addr, path, rounds),
			startKazoo(t, addr, path, rounds, "curator"),
		}
		for _, c := range others {
			c.say("go")
			wg.Go(func() { a.follow(c) })
		}
		wg.Go(func() { contendGo(t, ctx, a, s, path, rounds) })
		wg.Go(func() {
			conn := live(t, addr, liveTimeout).Conn().(*zk.Conn)
			for range rounds {
				l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
				if err := l.Lock(); err != nil {
					t.Error(err)
					return
				}
				a.enter("go-zookeeper", 0)
				a.leave("go-zookeeper")
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		if a.rounds != 4*rounds {
			t.Errorf("%d rounds, want %d", a.rounds, 4*rounds)
		}
		awaitChildren(t, ctx, s, path, 0)
	})
}

func contendGo(t *testing.T, ctx context.Context, a *arena, s *Session, path string, rounds int) {
	for range rounds {
		g, err := NewMutex(s, path, MutexOptions{}).Lock(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		a.enter("recipes", g.Token())
		a.leave("recipes")
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestLiveKazoo: kazoo's own names, told of ours.
func TestLiveKazoo(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const rounds = 15
		s := live(t, addr, liveTimeout)
		a := &arena{t: t}
		c := startKazoo(t, addr, path, rounds, "patterns")
		c.say("go")
		var wg sync.WaitGroup
		wg.Go(func() { a.follow(c) })
		wg.Go(func() { contendGo(t, ctx, a, s, path, rounds) })
		wg.Wait()
		if a.rounds != 2*rounds {
			t.Errorf("%d rounds, want %d", a.rounds, 2*rounds)
		}
	})
}

// TestLiveForeignOrder: a node of another library that is in the queue already is
// waited for, and one that comes later is not, whatever their names sort like.
func TestLiveForeignOrder(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx := limit(t, 2*time.Minute)
		s := live(t, addr, liveTimeout)
		for i, prefix := range []string{
			"_c_ffffffff-ffff-4fff-bfff-ffffffffffff-lock-",
			"_c_00000000-0000-4000-8000-000000000000-lock-",
			"_c_ffffffffffffffffffffffffffffffff-lock-",
			"ffffffffffffffffffffffffffffffff__lock__",
			"00000000000000000000000000000000__rlock__",
		} {
			path := fmt.Sprint(livePath(t), i)
			mine := liveLock(t, ctx, s, path)
			node, err := s.Conn().Create(path+"/"+prefix, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
			if err != nil {
				t.Fatal(err)
			}
			if !mine.Held() {
				t.Error("lost to a node that came later")
			}
			next := lockLater(t, ctx, s, path)
			awaitChildren(t, ctx, s, path, 3)
			if err := mine.Unlock(ctx); err != nil {
				t.Error(err)
			}
			if _, err := NewMutex(s, path, MutexOptions{}).TryLock(ctx); !errors.Is(err, ErrLocked) {
				t.Errorf("TryLock behind %s = %v, want ErrLocked", prefix, err)
			}
			select {
			case <-next:
				t.Errorf("granted in front of %s", node)
			default:
			}
			if err := s.Conn().Delete(node, -1); err != nil {
				t.Fatal(err)
			}
			if g := <-next; g != nil {
				if err := g.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestLiveNegotiated: the Session counts with what the server has granted.
func TestLiveNegotiated(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx := limit(t, 2*time.Minute)
		for _, tt := range []struct{ asked, want time.Duration }{
			{time.Millisecond, 400 * time.Millisecond},
			{5 * time.Second, 5 * time.Second},
			{time.Hour, time.Minute},
		} {
			s := live(t, addr, tt.asked)
			l, err := s.ready(ctx)
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			if l.timeout != tt.want {
				t.Errorf("asked for %v: counts with %v, want %v", tt.asked, l.timeout, tt.want)
			}
			s.mu.Unlock()
		}
	})
}
