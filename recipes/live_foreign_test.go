package recipes

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

const python = "/usr/bin/python3" // Debian's, which has kazoo

func startKazoo(t *testing.T, addr, path string, rounds int, how string, kinds ...string) *contender {
	needTool(t, "/usr/lib/python3/dist-packages/kazoo", "python3-kazoo")
	args := append([]string{filepath.Join("testdata", "kazoo_contender.py"), addr, path, fmt.Sprint(rounds), how}, kinds...)
	c := startContender(t, "kazoo", nil, python, args...)
	c.expect("ready")
	return c
}

func startCurator(t *testing.T, addr, path string, rounds int, kinds ...string) *contender {
	jar := filepath.Join(javaDir, "curator-recipes.jar")
	needTool(t, jar, "libcurator-recipes-java default-jdk-headless")
	java, err := exec.LookPath("java")
	if err != nil {
		needTool(t, "java", "default-jdk-headless")
	}
	args := append([]string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jar,
		filepath.Join("testdata", "CuratorContender.java"), addr, path, fmt.Sprint(rounds),
	}, kinds...)
	c := startContender(t, "curator", nil, java, args...)
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
			startCurator(t, addr, path, rounds, "mutex"),
			startKazoo(t, addr, path, rounds, "curator", "mutex"),
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

// TestLivePriorities: contenders of this package with three priorities, which yield to each other,
// beside Curator and a kazoo that is told Curator's names, which know nothing of priorities. One
// holds at a time, and tokens rise from holder to holder.
func TestLivePriorities(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const rounds = 10
		a := &arena{t: t}
		others := []*contender{
			startCurator(t, addr, path, rounds, "mutex"),
			startKazoo(t, addr, path, rounds, "curator", "mutex"),
		}
		var wg sync.WaitGroup
		for _, c := range others {
			c.say("go")
			wg.Go(func() { a.follow(c) })
		}
		var yielded atomic.Int64
		for i := range 6 {
			name, s := fmt.Sprint("recipes ", i), live(t, addr, liveTimeout)
			wg.Go(func() {
				for range rounds {
					yields := 0
					g, err := NewMutex(s, path, MutexOptions{
						Priority: i%3 - 1, OnWait: func(w Wait) { yields = w.Yielded },
					}).Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					yielded.Add(int64(yields))
					a.enter(name, g.Token())
					a.leave(name)
					if err := g.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if a.rounds != 8*rounds {
			t.Errorf("%d rounds, want %d", a.rounds, 8*rounds)
		}
		if yielded.Load() == 0 {
			t.Error("nobody has yielded")
		}
		t.Logf("%d yields in %d rounds", yielded.Load(), a.rounds)
		awaitChildren(t, ctx, live(t, addr, liveTimeout), path, 0)
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
		c := startKazoo(t, addr, path, rounds, "patterns", "mutex")
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

// TestLiveLibrariesRW: one path, read and written with this package, Curator and a
// kazoo that is told Curator's names.
func TestLiveLibrariesRW(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const rounds = 12
		s := live(t, addr, liveTimeout)
		contendShared(t, ctx, addr, path, &arena{t: t}, rounds, []string{"read", "read", "write"},
			startCurator(t, addr, path, rounds, "read", "write", "read"),
			startKazoo(t, addr, path, rounds, "curator", "read", "write", "read"))
		awaitChildren(t, ctx, s, path, 0)
	})
}

// TestLiveKazooRW: kazoo's WriteLock with its own names, told of ours.
func TestLiveKazooRW(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const rounds = 12
		contendShared(t, ctx, addr, path, &arena{t: t}, rounds, []string{"write", "read"},
			startKazoo(t, addr, path, rounds, "patterns", "write"))
	})
}

// TestLiveLibrariesSemaphore: one semaphore, with this package and Curator; with a
// number that is given, and with one that Curator's SharedCount has made and that
// changes.
func TestLiveLibrariesSemaphore(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const rounds = 12
		s := live(t, addr, liveTimeout)
		contendShared(t, ctx, addr, path, &arena{t: t, leases: 2}, rounds, []string{"lease=2"},
			startCurator(t, addr, path, rounds, "lease=2"))
		awaitChildren(t, ctx, s, path+"/leases", 0)
		m := NewSemaphore(s, path, SemaphoreOptions{CountPath: path + "-count"})
		if err := m.SetLeases(ctx, 2); err != nil {
			t.Fatal(err)
		}
		contendShared(t, ctx, addr, path, &arena{t: t, leases: 2}, rounds, []string{"shared"},
			startCurator(t, addr, path, rounds, "shared"))
		awaitChildren(t, ctx, s, path+"/leases", 0)
	})
}

// contendShared has two of this package's contenders fight with others' for a lock
// that is shared.
func contendShared(t *testing.T, ctx context.Context, addr, path string, a *arena, rounds int, kinds []string, others ...*contender) {
	var wg sync.WaitGroup
	for _, c := range others {
		c.say("go")
		wg.Go(func() { a.follow(c) })
	}
	for i := range 2 {
		name, s := fmt.Sprint("recipes ", i), live(t, addr, liveTimeout)
		wg.Go(func() {
			for n := range rounds {
				g, err := contenderLock(s, path, kinds[n%len(kinds)]).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				a.enterAs(name, g.Token(), g.Kind())
				a.leave(name)
				if err := g.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if want := (2 + len(others)) * rounds; a.rounds != want {
		t.Errorf("%d rounds, want %d", a.rounds, want)
	}
	t.Logf("at most %d inside at a time", a.most)
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
