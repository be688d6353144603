package main

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A member has one processor when it has had little to do for a second, and all of them with the first look that finds it busy.
func TestProcessorsFitTheLoad(t *testing.T) {
	type change struct {
		at  time.Duration
		one bool
	}
	for name, tt := range map[string]struct {
		load func(at time.Duration) float64 // in processors
		want []change
	}{
		"idle":       {func(time.Duration) float64 { return 0 }, []change{{time.Second, true}}},
		"little":     {func(time.Duration) float64 { return 0.39 }, []change{{time.Second, true}}},
		"not little": {func(time.Duration) float64 { return 0.41 }, nil},
		"a lot":      {func(time.Duration) float64 { return 3 }, nil},
		"a burst": {func(at time.Duration) float64 {
			if at > 5*time.Second && at <= 5200*time.Millisecond {
				return 0.61
			}
			return 0.1
		}, []change{{time.Second, true}, {5050 * time.Millisecond, false}, {6200 * time.Millisecond, true}}},
		"more than little": {func(at time.Duration) float64 {
			if at > 5*time.Second {
				return 0.59
			}
			return 0.1
		}, []change{{time.Second, true}}},
		"now and then": {func(at time.Duration) float64 {
			if at%(900*time.Millisecond) < processorsLook {
				return 1
			}
			return 0
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start, used := time.Now(), time.Duration(0)
				var got []change
				watchProcessors(ctx, func() time.Duration {
					used += time.Duration(tt.load(time.Since(start)) * float64(processorsLook))
					return used
				}, func(one bool) { got = append(got, change{time.Since(start), one}) })
				if !slices.Equal(got, tt.want) {
					t.Errorf("changed %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// Who has set GOMAXPROCS keeps it.
func TestGOMAXPROCSCounts(t *testing.T) {
	want := runtime.NumCPU() + 1
	t.Setenv("GOMAXPROCS", strconv.Itoa(want))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(want))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fitProcessors(ctx)
	if n := runtime.GOMAXPROCS(0); n != want {
		t.Errorf("%d processors, want %d", n, want)
	}
}

// A process that has nothing to do gets one processor, and all of them when it has, and at the end.
func TestFitProcessors(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fitProcessors(ctx)
	}()
	await := func(what string, cond func(n int) bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !cond(runtime.GOMAXPROCS(0)); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d processors", what, runtime.GOMAXPROCS(0))
			}
		}
	}
	await("idle", func(n int) bool { return n == 1 })
	if runtime.NumCPU() > 1 {
		var rest atomic.Bool
		defer rest.Store(true)
		go func() {
			for !rest.Load() {
			}
		}()
		await("busy", func(n int) bool { return n > 1 })
		rest.Store(true)
		await("idle again", func(n int) bool { return n == 1 })
	}
	cancel()
	<-done
	await("at the end", func(n int) bool { return n == runtime.NumCPU() || n == before })
}

// The time that a process has used is that of all its threads, those that work for nobody now as well.
func TestCPUTime(t *testing.T) {
	const busy = 5 * time.Millisecond
	before := cpuTime()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		own := func() time.Duration {
			var u unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
			return time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		for begun := own(); own()-begun < busy; {
			continue
		}
	}()
	<-done
	if used := cpuTime() - before; used < busy {
		t.Errorf("%v used, of which one thread has used %v", used, busy)
	}
}
