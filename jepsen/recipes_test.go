package jepsen

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// waitFor asks a worker again and again until the answer is as wanted.
func (l *lab) waitFor(want string, ask func() string) {
	l.t.Helper()
	got := ""
	err := Poll(l.ctx, 5*time.Millisecond, func() error {
		if got = ask(); got != want {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	if err != nil {
		l.t.Fatalf("got %q to the end, want %q", got, want)
	}
}

// later has a worker run a command and returns at once; the reply comes over the channel.
func (l *lab) later(w *Worker, thread string, words ...string) <-chan Reply {
	replies := make(chan Reply, 1)
	go func() {
		reply, err := w.Do(l.ctx, thread, words...)
		if err != nil {
			reply = Reply{Kind: Info, Text: err.Error()}
		}
		replies <- reply
	}()
	return replies
}

// TestCuratorMutex checks the promises of InterProcessMutex beyond exclusion.
func TestCuratorMutex(t *testing.T) {
	client(t, "curator")
	l := newLab(t, 1)
	workers := l.start("curator", 2)
	a, b := workers[0], workers[1]
	for _, w := range workers {
		l.mustDo(w, "main", "open", "m", "mutex", "/mutex")
	}

	// Re-entrance: the owning thread gets it again at once, with the same node, and has to release
	// it as often.
	token := l.mustDo(a, "t1", "acquire", "m", "0")
	if again := l.mustDo(a, "t1", "acquire", "m", "0"); again != token {
		t.Errorf("acquired again with node %s, want the same as before, %s", again, token)
	}
	l.mustDo(a, "t1", "release", "m")
	if reply := l.do(b, "t1", "acquire", "m", "100"); !reply.Is(Fail, "timeout") {
		t.Errorf("released once of twice; another client's acquire: %s", reply)
	}

	// Another thread of the same process is somebody else.
	if reply := l.do(a, "t2", "acquire", "m", "100"); !reply.Is(Fail, "timeout") {
		t.Errorf("held by a thread; another thread's acquire: %s", reply)
	}
	if reply := l.do(a, "t2", "release", "m"); !reply.Is(Fail, "IllegalMonitorStateException") {
		t.Errorf("release by a thread that does not hold: %s", reply)
	}
	if reply := l.do(b, "t1", "release", "m"); !reply.Is(Fail, "IllegalMonitorStateException") {
		t.Errorf("release by a client that does not hold: %s", reply)
	}

	// A timed acquire leaves no node behind.
	l.timedAcquire(b, "t1", "m")
	l.waitFor("1", func() string {
		return count(l.mustDo(b, "t1", "contenders", "m"))
	})

	// The release of the last hold lets the next one in.
	next := l.later(b, "t1", "acquire", "m", "-1")
	l.waitFor("2", func() string { return count(l.mustDo(a, "t1", "contenders", "m")) })
	l.mustDo(a, "t1", "release", "m")
	if reply := <-next; reply.Kind != OK {
		t.Errorf("after the release: %s", reply)
	}
	l.mustDo(b, "t1", "release", "m")
	l.stopWorkers()
	l.checkNothingLeft()
}

// timedAcquire checks that an acquire of a lock that is held waits as long as its timeout says.
func (l *lab) timedAcquire(w *Worker, thread, handle string) {
	l.t.Helper()
	start := time.Now()
	if reply := l.do(w, thread, "acquire", handle, "700"); !reply.Is(Fail, "timeout") {
		l.t.Errorf("timed acquire of a held lock: %s", reply)
	}
	if took := time.Since(start); took < 700*time.Millisecond || took > 5*time.Second {
		l.t.Errorf("acquire with a timeout of 700 ms gave up after %v", took)
	}
}

// count is the number of names in a reply to contenders.
func count(list string) string {
	if list == "" {
		return "0"
	}
	return string(rune('1' + strings.Count(list, ",")))
}

// TestCuratorReadWriteLock checks the promises of InterProcessReadWriteLock beyond exclusion: who
// holds the write lock may read, and go down to reading.
func TestCuratorReadWriteLock(t *testing.T) {
	client(t, "curator")
	l := newLab(t, 1)
	workers := l.start("curator", 2)
	a, b := workers[0], workers[1]
	for _, w := range workers {
		l.mustDo(w, "main", "open", "r", "read", "/rw")
		l.mustDo(w, "main", "open", "w", "write", "/rw")
	}
	l.mustDo(a, "t", "acquire", "w", "0")
	l.mustDo(a, "t", "acquire", "r", "1000")
	if reply := l.do(b, "t", "acquire", "r", "100"); !reply.Is(Fail, "timeout") {
		t.Errorf("read lock while another client writes: %s", reply)
	}
	l.mustDo(a, "t", "release", "w")
	l.mustDo(b, "t", "acquire", "r", "5000")
	// An upgrade is not possible.
	if reply := l.do(a, "t", "acquire", "w", "100"); !reply.Is(Fail, "timeout") {
		t.Errorf("write lock while two clients read: %s", reply)
	}
	l.mustDo(a, "t", "release", "r")
	l.mustDo(b, "t", "release", "r")
	l.mustDo(b, "t", "acquire", "w", "5000")
	l.stopWorkers()
	l.checkNothingLeft()
}

// TestCuratorLatch checks that leadership goes to those who wait, in order.
func TestCuratorLatch(t *testing.T) {
	client(t, "curator")
	l := newLab(t, 1)
	workers := l.start("curator", 2)
	a, b := workers[0], workers[1]
	l.mustDo(a, "t", "open", "x", "latch", "/latch")
	l.mustDo(b, "t", "open", "x", "latch", "/latch")
	l.mustDo(a, "t", "acquire", "x", "-1")
	next := l.later(b, "t", "acquire", "x", "-1")
	l.waitFor(a.name+"/x,"+b.name+"/x", func() string { return l.mustDo(a, "t", "contenders", "x") })
	l.mustDo(a, "t", "release", "x")
	if reply := <-next; reply.Kind != OK {
		t.Errorf("after the leader left: %s", reply)
	}
	l.stopWorkers()
	l.checkNothingLeft()
}

// TestKazooLock checks the promises of kazoo's Lock beyond exclusion.
func TestKazooLock(t *testing.T) {
	client(t, "kazoo")
	l := newLab(t, 1)
	workers := l.start("kazoo", 3)
	for i, w := range workers {
		l.mustDo(w, "t", "open", "k", "lock", "/kazoo", "identifier="+string(rune('a'+i)))
	}
	a, b, c := workers[0], workers[1], workers[2]
	l.mustDo(a, "t", "acquire", "k", "-1")
	// The order of the queue is the order of arrival.
	second := l.later(b, "t", "acquire", "k", "-1")
	l.waitFor("a,b", func() string { return l.mustDo(a, "t", "contenders", "k") })
	third := l.later(c, "t", "acquire", "k", "-1")
	l.waitFor("a,b,c", func() string { return l.mustDo(a, "t", "contenders", "k") })

	// Who cancels leaves the queue, and the others stay in it.
	l.mustDo(b, "other", "cancel", "k")
	if reply := <-second; !reply.Is(Fail, "cancelled") {
		t.Errorf("acquire after cancel: %s", reply)
	}
	l.waitFor("a,c", func() string { return l.mustDo(a, "t", "contenders", "k") })

	// Not blocking, and with a timeout.
	if reply := l.do(b, "t", "acquire", "k", "0"); !reply.Is(Fail, "timeout") {
		t.Errorf("acquire without blocking: %s", reply)
	}
	l.timedAcquire(b, "t", "k")
	l.waitFor("a,c", func() string { return l.mustDo(a, "t", "contenders", "k") })

	l.mustDo(a, "t", "release", "k")
	if reply := <-third; reply.Kind != OK {
		t.Errorf("after the release: %s", reply)
	}
	if reply := l.do(b, "t", "release", "k"); !reply.Is(Fail, "not-held") {
		t.Errorf("release by one who does not hold: %s", reply)
	}
	l.mustDo(c, "t", "release", "k")
	l.stopWorkers()
	l.checkNothingLeft()
}

// TestKazooSemaphore checks that kazoo's Semaphore gives out as many leases as it has, and refuses
// a client that believes in another number.
func TestKazooSemaphore(t *testing.T) {
	client(t, "kazoo")
	l := newLab(t, 1)
	workers := l.start("kazoo", 3)
	for _, w := range workers {
		l.mustDo(w, "t", "open", "s", "semaphore", "/semaphore", "leases=2", "identifier=same")
	}
	l.mustDo(workers[0], "t", "acquire", "s", "-1")
	l.mustDo(workers[1], "t", "acquire", "s", "-1")
	if reply := l.do(workers[2], "t", "acquire", "s", "300"); !reply.Is(Fail, "timeout") {
		t.Errorf("third lease of two: %s", reply)
	}
	if got := l.mustDo(workers[2], "t", "contenders", "s"); got != "same,same" {
		t.Errorf("lease holders = %q, want two", got)
	}
	l.mustDo(workers[2], "t", "open", "s3", "semaphore", "/semaphore", "leases=3")
	if reply := l.do(workers[2], "t", "acquire", "s3", "300"); !reply.Is(Fail, "ValueError") {
		t.Errorf("a semaphore of 3 on the path of one of 2: %s", reply)
	}
	l.mustDo(workers[0], "t", "release", "s")
	l.mustDo(workers[2], "t", "acquire", "s", "5000")
	l.stopWorkers()
	l.checkNothingLeft()
}
