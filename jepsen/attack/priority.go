package attack

import (
	"runtime"
	"runtime/debug"
)

// shareProcess keeps the attackers from holding up the lock users, who are in the same process. A
// thread of an attacker that does not get a processor, because its priority is the lowest, may have
// one of Go's: so there are enough for all. It would also keep everybody waiting at the beginning
// and at the end of a garbage collection: so there are few. The function that it returns undoes it.
func shareProcess() (undo func()) {
	const enough, collectAt = 256, 1 << 30
	procs := runtime.GOMAXPROCS(enough)
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(collectAt)
	return func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}
