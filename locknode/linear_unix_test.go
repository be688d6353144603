//go:build unix

package locknode

import (
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestLongQueuesTakeLinearTime has 50 000 contenders, of which many are in a second queue. They
// take at most four times as much CPU time as ten times a tenth of them; ten times would be
// quadratic. It asks the system itself: the users of package recipes need no module for this test.
func TestLongQueuesTakeLinearTime(t *testing.T) {
	took := func(n, times int) (cpu time.Duration) {
		var token int64
		r := rand.New(rand.NewPCG(1, 1))
		first, second := randomQueue(r, n, n, "/a", &token), randomQueue(r, n, n, "/b", &token)
		runtime.GC()
		var before, after syscall.Rusage
		err := syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		for range times {
			a, b := Resolve(Sorted("/a", first)), Resolve(Sorted("/b", second))
			Deadlocks([]Lock{{"/a", a}, {"/b", b}})
		}
		if err == nil {
			err = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		}
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(after.Utime.Nano() - before.Utime.Nano())
	}
	few := took(5_000, 10) + 10*time.Millisecond
	if many := took(50_000, 1); many > 4*few {
		t.Errorf("ten times as many take %v instead of %v", many, few)
	}
}
