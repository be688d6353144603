package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"lockkeeper/internal/cputime"
)

const (
	// processorsPeriod is how often the CPU time of the member is looked at.
	processorsPeriod = 100 * time.Millisecond
	// processorsQuiet is how many periods in a row must have been quiet before one processor is
	// enough.
	processorsQuiet = 10
)

// fitProcessors sets GOMAXPROCS until ctx ends: 1 while the member uses less than half of a
// processor, and what Go's runtime would choose otherwise. It does nothing where GOMAXPROCS is set
// in the environment, where there is one processor only, or where the CPU time is not known.
//
// A request passes from goroutine to goroutine on its way to the log and back, with a few
// microseconds of work at each stage. For each of them the runtime wakes a thread if a processor is
// idle, which costs more than the work, and takes longer. With one processor the next goroutine
// just runs. docs/decisions/014-processors.md has the figures, and what happens while a thread
// waits for the disk.
func fitProcessors(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 || cputime.Process() == 0 {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	watchCPU(ctx, cputime.Process, func(one bool) {
		if one {
			runtime.GOMAXPROCS(1)
		} else {
			runtime.SetDefaultGOMAXPROCS()
		}
	})
}

// watchCPU calls set(true) when the process has used less than half of a processor in each of the
// last processorsQuiet periods, and set(false) after the first period in which it has used more.
// It begins with all processors. used returns the CPU time of the process so far.
func watchCPU(ctx context.Context, used func() time.Duration, set func(one bool)) {
	tick := time.NewTicker(processorsPeriod)
	defer tick.Stop()
	at, before, quiet := time.Now(), used(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, total := time.Now(), used()
		busy := total-before >= now.Sub(at)/2
		switch {
		case busy && quiet >= processorsQuiet:
			set(false)
		case !busy && quiet == processorsQuiet-1:
			set(true)
		}
		if quiet++; busy {
			quiet = 0
		}
		at, before = now, total
	}
}
