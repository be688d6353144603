package recipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestLiveCutAtEveryFrame cuts the connection of a contender at each frame of an
// acquire and a release in turn, in both directions, before and after the frame
// is delivered, while another one holds the lock first. It does so with every lock.
func TestLiveCutAtEveryFrame(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for _, lock := range testLocks {
			if lock.name == "write" || lock.name == "write-read" {
				continue // sends no frame that another of them does not send
			}
			t.Run(lock.name, func(t *testing.T) {
				t.Parallel()
				ctx := limit(t, 4*time.Minute)
				other := live(t, addr, liveTimeout)
				for _, dir := range []direction{toServer, toClient} {
					for _, how := range []verdict{drop, deliver} {
						t.Run(fmt.Sprint(how, " ", dir), func(t *testing.T) {
							t.Parallel()
							path := livePath(t)
							for at := 0; cutAt(t, ctx, addr, other, lock, path, dir, how, at); at++ {
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
	})
}

// cutAt reports whether there was such a frame.
func cutAt(t *testing.T, ctx context.Context, addr string, other *Session, lock testLock, path string, dir direction, how verdict, at int) bool {
	p := newProxy(t, addr)
	s := live(t, p.addr(), liveTimeout)
	if _, err := s.link.ready(ctx); err != nil {
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
	first, err := lock.b(other, path).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.enter("other", first.Token())
	next := make(chan testGrant)
	go func() {
		g, err := lock.a(s, path).Lock(ctx)
		if err != nil {
			t.Error(err)
		} else {
			a.enter("cut", g.Token())
		}
		next <- g
	}()
	if lock.waiting != "-" {
		awaitChildren(t, ctx, other, path+lock.waiting, 2)
	}
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
	for _, d := range lock.dirs(path) {
		awaitChildren(t, ctx, other, d, 0)
	}
	s.Close()
	mu.Lock()
	defer mu.Unlock()
	return hit
}

// TestLiveCancelAnywhere ends the ctx of acquires at random times, and cuts the
// connection of some of them. It does so with every lock in turn.
func TestLiveCancelAnywhere(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 5*time.Minute), livePath(t)
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		p := newProxy(t, addr)
		s, other := live(t, p.addr(), liveTimeout), live(t, addr, liveTimeout)
		const rounds = 240
		ended := 0
		for i := range rounds {
			what := testLocks[i%len(testLocks)]
			short, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(20000))*time.Microsecond)
			if i%10 == 5 {
				p.rule(func(dir direction, n int) verdict {
					if n == 2 {
						return drop
					}
					return pass
				})
			}
			g, err := what.a(s, path+what.name).Lock(short)
			switch {
			case err == nil:
				if err := g.Unlock(ctx); err != nil {
					t.Errorf("%s: %v", what.name, err)
				}
			case errors.Is(err, context.DeadlineExceeded):
				ended++
			default:
				t.Errorf("%s: %v", what.name, err)
			}
			cancel()
		}
		t.Logf("%d of %d ended early", ended, rounds)
		for _, what := range testLocks {
			g, err := what.b(other, path+what.name).Lock(ctx)
			if err != nil {
				t.Fatalf("%s: %v", what.name, err)
			}
			if err := g.Unlock(ctx); err != nil {
				t.Errorf("%s: %v", what.name, err)
			}
			for _, dir := range what.dirs(path + what.name) {
				awaitChildren(t, ctx, other, dir, 0)
			}
		}
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
		ctx, path := limit(t, 5*time.Minute), livePath(t)
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

// TestLiveOneWay: the client's bytes are lost, the server's arrive:
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
	ctx, path := limit(t, 5*time.Minute), livePath(t)
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
		ctx, path := limit(t, 5*time.Minute), livePath(t)
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
