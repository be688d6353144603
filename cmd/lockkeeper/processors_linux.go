package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// processorsLook is how often it is looked how much a member has to do.
	processorsLook = 50 * time.Millisecond
	// processorsSpan is for how long it must have had little to do.
	processorsSpan = time.Second
	// processorsMany is how much of one processor's time it must have used since the last look to be given all of them, processorsFew
	// how much of it in a processorsSpan to be left with one.
	processorsMany, processorsFew = 0.6, 0.4
)

// processors decides whether a member is to use one processor, in the sense of Go's runtime, or all that it may.
//
// Whenever a goroutine becomes ready while a processor is free, the runtime wakes a thread for it, which is to find that the goroutine is
// running already: what a lock server does for a request takes less time than a thread needs to wake. On a virtual machine the waking takes more CPU
// than the work. So a member with little to do has one processor; it takes a tenth to a fifth less CPU for a write, and less time, too. With a lot
// to do it has all of them, as any Go program.
//
// It is for logs that are written asynchronously: a thread that waits for the disk keeps its processor, for a millisecond or two, and with it
// all others.
type processors struct {
	one    bool
	used   time.Duration // of CPU time, by all threads, in this span
	passed time.Duration // since it began
}

// look takes note of how much CPU time has been used since the last look, and how long ago that was. It says whether the member is to have
// one processor from now on.
func (p *processors) look(used, passed time.Duration) (one bool) {
	p.used += used
	p.passed += passed
	switch {
	case float64(used) >= processorsMany*float64(passed):
		p.one, p.used, p.passed = false, 0, 0
	case p.passed >= processorsSpan:
		p.one = p.one || float64(p.used) < processorsFew*float64(p.passed)
		p.used, p.passed = 0, 0
	}
	return p.one
}

// fitProcessors keeps the number of processors fit for what there is to do, until ctx ends. Where GOMAXPROCS is set, or there is
// one only, it does nothing.
func fitProcessors(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	watchProcessors(ctx, cpuTime, func(one bool) {
		if one {
			runtime.GOMAXPROCS(1)
		} else {
			runtime.SetDefaultGOMAXPROCS()
		}
	})
}

// watchProcessors looks at the time that cpu gives, and calls set whenever it is to be otherwise than before. It begins with all processors.
func watchProcessors(ctx context.Context, cpu func() time.Duration, set func(one bool)) {
	var p processors
	tick := time.NewTicker(processorsLook)
	defer tick.Stop()
	at, used := time.Now(), cpu()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, total, before := time.Now(), cpu(), p.one
		if one := p.look(total-used, now.Sub(at)); one != before {
			set(one)
		}
		at, used = now, total
	}
}

// cpuTime is the CPU time that this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
