package recipes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// benchLocks are the locks that are measured.
var benchLocks = []struct {
	name string
	make func(s *Session, path string) Locker
}{
	{"Mutex", func(s *Session, path string) Locker { return NewMutex(s, path, MutexOptions{}) }},
	{"MutexDelay", func(s *Session, path string) Locker {
		return NewMutex(s, path, MutexOptions{LockDelay: MaxLockDelay})
	}},
	{"RWMutexWrite", func(s *Session, path string) Locker { return NewRWMutex(s, path, MutexOptions{}) }},
	{"RWMutexRead", func(s *Session, path string) Locker { return NewRWMutex(s, path, MutexOptions{}).RLocker() }},
	{"Semaphore", func(s *Session, path string) Locker { return NewSemaphore(s, path, SemaphoreOptions{Leases: 1}) }},
	{"SimpleMutex", func(s *Session, path string) Locker { return NewSimpleMutex(s, path+"-simple", MutexOptions{}) }},
}

// benchAddr is the server to measure: lockkeeper's, or the one with the address in
// RECIPES_BENCH_SERVER.
func benchAddr(b *testing.B) string {
	if addr := os.Getenv("RECIPES_BENCH_SERVER"); addr != "" {
		return addr
	}
	addr, err := exampleServer()
	if errors.Is(err, errMissing) {
		b.Skip(err)
	}
	if err != nil {
		b.Fatal(err)
	}
	return addr
}

func benchSession(b *testing.B, addr string) *Session {
	s, err := Connect(Config{Servers: []string{addr}, SessionTimeout: liveTimeout, HostProvider: &impatientHosts{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	return s
}

func benchPath(b *testing.B) string {
	return "/bench/" + strings.ReplaceAll(b.Name(), "/", "-")
}

// BenchmarkAcquireRelease is one contender that has the lock for itself: an
// operation is a Lock and an Unlock.
func BenchmarkAcquireRelease(b *testing.B) {
	addr := benchAddr(b)
	for _, l := range benchLocks {
		b.Run(l.name, func(b *testing.B) {
			ctx := context.Background()
			lock := l.make(benchSession(b, addr), benchPath(b))
			for b.Loop() {
				g, err := lock.Lock(ctx)
				if err == nil {
					err = g.Unlock(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandoff is contenders that all want the lock all the time, each with a
// session of its own: an operation is from one Lock's return to the next one's. The
// fair ones pass it on each time; with a SimpleMutex the one that unlocks often has it
// again before the others have been told.
func BenchmarkHandoff(b *testing.B) {
	addr := benchAddr(b)
	for _, contenders := range []int{2, 16} {
		for _, l := range benchLocks {
			if l.name == "RWMutexRead" {
				continue // no handoff
			}
			b.Run(fmt.Sprintf("%s/%d", l.name, contenders), func(b *testing.B) {
				var locks []Locker
				for range contenders {
					locks = append(locks, l.make(benchSession(b, addr), benchPath(b)))
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, lock := range locks {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							g, err := lock.Lock(context.Background())
							if err == nil {
								err = g.Unlock(context.Background())
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkSessionFile is the price of a session file: a Lock and an Unlock without and with it;
// and the time from Connect to the lock of the previous process, which has left its session.
func BenchmarkSessionFile(b *testing.B) {
	addr, ctx := benchAddr(b), context.Background()
	file := filepath.Join(b.TempDir(), "session")
	connect := func(file string) *Session {
		s, err := Connect(Config{Servers: []string{addr}, SessionTimeout: liveTimeout, HostProvider: &impatientHosts{},
			SessionFile: file})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	for _, name := range []string{"Without", "With"} {
		b.Run(name, func(b *testing.B) {
			s := connect(map[string]string{"With": file}[name])
			defer s.Close()
			m := NewMutex(s, benchPath(b), MutexOptions{})
			for b.Loop() {
				g, err := m.Lock(ctx)
				if err == nil {
					err = g.Unlock(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"New", "Resume"} {
		b.Run(name, func(b *testing.B) {
			path, file := benchPath(b), map[string]string{"Resume": file}[name]
			for n := 0; b.Loop(); n++ {
				s := connect(file)
				g, err := NewMutex(s, path, MutexOptions{}).Lock(ctx)
				if err != nil || g.Resumed() != (n > 0 && file != "") {
					b.Fatal(err, n)
				}
				b.StopTimer()
				if file == "" {
					s.Close()
				} else {
					s.Detach()
				}
				b.StartTimer()
			}
			if file != "" {
				connect(file).Close()
			}
		})
	}
}

// BenchmarkUrgent is an urgent contender that comes last, behind ordinary ones that wait: an
// operation is from the holder's Unlock to its grant, in which each of the others yields.
func BenchmarkUrgent(b *testing.B) {
	addr := benchAddr(b)
	for _, ordinary := range []int{0, 10, 100} {
		b.Run(fmt.Sprint(ordinary), func(b *testing.B) {
			path := benchPath(b)
			s, urgent := benchSession(b, addr), benchSession(b, addr)
			var waiters []*Session
			for range min(ordinary, 10) {
				waiters = append(waiters, benchSession(b, addr))
			}
			for b.Loop() {
				b.StopTimer()
				ctx, cancel := context.WithCancel(context.Background())
				g := benchLock(b, ctx, NewMutex(s, path, MutexOptions{}))
				var wg sync.WaitGroup
				queued := make(chan struct{}, 1)
				first := func(w Wait) {
					if w.Yielded == 0 {
						queued <- struct{}{}
					}
				}
				for i := range ordinary {
					wg.Go(func() {
						// It ends with ctx, or is granted in the same moment.
						if g, err := NewMutex(waiters[i%len(waiters)], path, MutexOptions{OnWait: first}).Lock(ctx); err == nil {
							_ = g.Unlock(context.Background())
						}
					})
					<-queued
				}
				granted := make(chan *Grant)
				wg.Go(func() {
					granted <- benchLock(b, ctx, NewMutex(urgent, path, MutexOptions{Priority: 1, OnWait: first}))
				})
				<-queued
				b.StartTimer()
				if err := g.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
				g = <-granted
				b.StopTimer()
				cancel()
				if err := g.Unlock(context.Background()); err != nil {
					b.Fatal(err)
				}
				wg.Wait()
				b.StartTimer()
			}
		})
	}
}

func benchLock(b *testing.B, ctx context.Context, l Locker) *Grant {
	g, err := l.Lock(ctx)
	if err != nil {
		b.Error(err)
	}
	return g
}
