package jepsen

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// TestPausedHolder stops a client that holds a lock with SIGSTOP, for longer than its session
// lasts. The next in the queue gets the lock; the sleeper, when it wakes, hears that it has lost
// it, and its fencing token is smaller than the new holder's, so that a resource that looks at
// tokens refuses it.
func TestPausedHolder(t *testing.T) {
	for _, test := range []struct{ library, recipe string }{
		{"gozk", "mutex"},
		{"kazoo", "lock"},
		{"curator", "mutex"},
	} {
		t.Run(test.library+"/"+test.recipe, func(t *testing.T) {
			client(t, test.library)
			l := newLab(t, 3)
			l.sessionTimeout = 3 * time.Second
			workers := l.start(test.library, 2)
			sleeper, next := workers[0], workers[1]
			for _, w := range workers {
				l.mustDo(w, "t", "open", "x", test.recipe, "/paused")
			}
			old := l.token(l.mustDo(sleeper, "t", "acquire", "x", "-1"))
			waiting := l.later(next, "t", "acquire", "x", "-1")
			l.awaitQueue("/paused", 2)

			if err := l.pause(sleeper); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			reply := <-waiting
			took := time.Since(start)
			if reply.Kind != OK {
				t.Fatalf("the next in the queue: %s", reply)
			}
			// The last sign of life was at most a ping interval before the stop.
			if took < l.sessionTimeout/2 || took > 3*l.sessionTimeout {
				t.Errorf("the next got the lock %v after the holder was stopped; its session lasts %v", took,
					l.sessionTimeout)
			}
			t.Logf("figures: the next got the lock %v after the holder was stopped", took.Round(time.Millisecond))
			token := l.token(reply.Text)
			if token <= old {
				t.Errorf("the new holder's token is %d, the old one's %d", token, old)
			}

			l.wake(sleeper, test.recipe == "mutex" && test.library == "gozk", old)

			// It is just another client again. (It gives its lock back, as its program would;
			// kazoo's and Curator's releases need not fail.)
			l.do(sleeper, "t", "release", "x")
			again := l.later(sleeper, "t", "acquire", "x", "-1")
			l.awaitQueue("/paused", 2)
			l.mustDo(next, "t", "release", "x")
			if reply = <-again; reply.Kind != OK {
				t.Fatalf("the sleeper again: %s", reply)
			}
			if last := l.token(reply.Text); last <= token {
				t.Errorf("the sleeper's new token is %d, the one before it %d", last, token)
			}
			l.stopWorkers()
			l.checkNothingLeft()
		})
	}
}

// wake lets the stopped worker go on, and waits until its library has told it that its session, or
// its grant, is over. A Grant has to say so from the first moment on; the other libraries need some
// time to find out.
func (l *lab) wake(w *Worker, hasGrant bool, token int64) {
	l.t.Helper()
	var answer <-chan Reply
	if hasGrant {
		// It is there to be answered when the process wakes.
		answer = l.later(w, "t", "check", "x")
	}
	from := l.history.Len()
	start := time.Now()
	if err := l.resume(w); err != nil {
		l.t.Fatal(err)
	}
	if hasGrant {
		if reply, want := <-answer, fmt.Sprintf("lost %d", token); reply.Text != want {
			l.t.Errorf("what the grant says at waking: %s, want %q", reply, want)
		}
	}
	err := l.history.Follow(l.ctx, from, func(op Op) bool {
		return op.Worker == w.name && (op.F == FExpired || op.F == FLost)
	})
	if err != nil {
		l.t.Fatalf("%s does not say that it lost the lock: %v", w.name, err)
	}
	l.t.Logf("figures: the sleeper was told %v after it woke", time.Since(start).Round(time.Millisecond))
}

// token is the fencing token in the reply to acquire.
func (l *lab) token(text string) int64 {
	l.t.Helper()
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil || token == 0 {
		l.t.Fatalf("no fencing token: %q", text)
	}
	return token
}

// awaitQueue waits until a lock's path has n children.
func (l *lab) awaitQueue(path string, n int) {
	l.t.Helper()
	conn := l.connect()
	defer conn.Close()
	l.waitFor(strconv.Itoa(n), func() string {
		if _, err := conn.Sync(path); err != nil {
			return err.Error()
		}
		children, _, err := conn.Children(path)
		if err != nil {
			return err.Error()
		}
		return strconv.Itoa(len(children))
	})
}

// pause stops a worker's process, resume lets it go on.
func (l *lab) pause(w *Worker) error {
	l.history.Add(Op{Worker: w.name, Kind: Info, F: FPause})
	return w.process.Pause(l.ctx)
}

func (l *lab) resume(w *Worker) error {
	l.history.Add(Op{Worker: w.name, Kind: Info, F: FResume})
	return w.process.Resume()
}
