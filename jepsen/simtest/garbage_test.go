package simtest

import (
	"runtime"
	"runtime/debug"
	"testing/synctest"
	"time"
)

// garbagePeriod is how often garbage is collected, since package jepsen/sim turns off the runtime's
// own trigger.
const garbagePeriod = time.Minute

// collectGarbage collects at moments that follow from the virtual time, and when nobody runs, so
// that it has no influence on who runs next.
func (c *cluster) collectGarbage(over <-chan struct{}) {
	if !runtimeSeeded {
		return
	}
	for {
		select {
		case <-over:
			return
		case <-time.After(garbagePeriod):
			c.alone(runtime.GC)
		}
	}
}

// compute runs f, which computes much and waits for nobody, with garbage being collected as usual
// meanwhile.
func (c *cluster) compute(f func()) {
	if !runtimeSeeded {
		f()
		return
	}
	c.alone(func() {
		debug.SetGCPercent(100)
		f()
		debug.SetGCPercent(-1)
	})
}

// alone runs f when nobody else can run.
func (c *cluster) alone(f func()) {
	c.quiet <- struct{}{} // one waits at a time
	synctest.Wait()
	f()
	<-c.quiet
}
