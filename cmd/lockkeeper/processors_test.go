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
)

// A member has one processor when it has used less than half of one for a second, and all of them
// after the first period in which it has used more.
func TestProcessorsFitTheLoad(t *testing.T) {
	const p = processorsPeriod
	type change struct {
		at  time.Duration
		one bool
	}
	for name, tt := range map[string]struct {
		load func(at time.Duration) float64 // in processors
		want []change
	}{
		"idle":     {func(time.Duration) float64 { return 0 }, []change{{10 * p, true}}},
		"not busy": {func(time.Duration) float64 { return 0.49 }, []change{{10 * p, true}}},
		"busy":     {func(time.Duration) float64 { return 3 }, nil},
		"a burst": {func(at time.Duration) float64 {
			if at == 50*p {
				return 0.5
			}
			return 0.1
		}, []change{{10 * p, true}, {50 * p, false}, {60 * p, true}}},
		"busy now and then": {func(at time.Duration) float64 {
			if at%(9*p) == 0 {
				return 1
			}
			return 0
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 100*p+p/2)
				defer cancel()
				start, used, looked := time.Now(), time.Duration(0), time.Duration(0)
				var got []change
				watchCPU(ctx, func() time.Duration {
					at := time.Since(start)
					used += time.Duration(tt.load(at) * float64(at-looked))
					looked = at
					return used
				}, func(one bool) { got = append(got, change{time.Since(start), one}) })
				if !slices.Equal(got, tt.want) {
					t.Errorf("changed %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// GOMAXPROCS in the environment is kept.
func TestGOMAXPROCSIsKept(t *testing.T) {
	want := runtime.NumCPU() + 1
	t.Setenv("GOMAXPROCS", strconv.Itoa(want))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(want))
	fitProcessors(t.Context()) // returns at once
	if n := runtime.GOMAXPROCS(0); n != want {
		t.Errorf("%d processors, want %d", n, want)
	}
}

// A process that is idle gets one processor, and all of them when it is busy, and at the end.
func TestProcessorsOfAProcess(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("this machine has one processor")
	}
	t.Setenv("GOMAXPROCS", "")
	all := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		fitProcessors(ctx)
	}()
	await := func(what string, want int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); runtime.GOMAXPROCS(0) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d processors, want %d", what, runtime.GOMAXPROCS(0), want)
			}
		}
	}
	await("idle", 1)
	var rest atomic.Bool
	go func() {
		for !rest.Load() {
			continue
		}
	}()
	await("busy", all)
	rest.Store(true)
	await("idle again", 1)
	cancel()
	<-done
	await("at the end", all)
}
