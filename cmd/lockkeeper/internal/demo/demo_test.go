package demo

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// quick has all events of a story happen soon.
var quick = pauses{kill: time.Second, back: 100 * time.Millisecond, cut: 100 * time.Millisecond, heal: 100 * time.Millisecond}

// listener is a terminal that calls a function for the first line that contains a text.
type listener struct {
	mu   sync.Mutex
	all  strings.Builder
	text string
	f    func()
}

// Write implements io.Writer.
func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	if l.f != nil && strings.Contains(string(b), l.text) {
		l.f()
		l.f = nil
	}
	return len(b), nil
}

// play tells a story until a line contains a text, and checks that nothing is left of it. It
// returns the lines.
func play(t *testing.T, until string) string {
	t.Helper()
	if raceEnabled {
		t.Skip("go-zookeeper 1.0.4 has a data race when it connects again: recipes/setwatches_test.go")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &listener{text: until, f: cancel}
	begin := time.Now()
	if err := run(ctx, Config{Out: out, Command: "lockkeeper"}, quick); err != nil {
		t.Errorf("%v", err)
	}
	if out.f != nil {
		t.Errorf("no line had %q within %v", until, time.Since(begin))
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	const patience, pause = 10 * time.Second, 10 * time.Millisecond
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(pause) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before there were %d\n%s", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
		}
	}
	return out.all.String()
}

// TestStory has each event of the story, in its order: a lock is held while others wait, the leader
// is killed and comes back, a holder is cut off and learns of it before another one has its lock.
// At the end nothing is left.
func TestStory(t *testing.T) {
	if testing.Short() {
		t.Skip("ten seconds of real time; not with -short")
	}
	lines := play(t, "the cut is healed")
	rest := lines
	for _, want := range []string{
		`locks -servers 127\.0\.0\.1:\d+,`, `/demo/report   a lock for one at a time`,
		`/demo/report   \w+ holds it, token \d+`, `\*\*\* member \d, which leads, is killed`,
		`\*\*\* member \d leads, after`, `\*\*\* member \d is back, .* and lost 0 locks`,
		`\*\*\* \w+, which holds /demo/report, and member \d are cut off`,
		`\*\*\* \w+ learns, \d+\.\d s after the cut`, `\*\*\* \w+ got the lock \d+\.\d s after the cut`,
		`the cut is healed`, `the end: .* is removed`,
	} {
		found := regexp.MustCompile(want).FindStringIndex(rest)
		if found == nil {
			t.Fatalf("no line %q in its place in\n%s", want, lines)
		}
		rest = rest[found[1]:]
	}
	for _, want := range []string{`report +\w+ holds it, token \d+; waiting: \w+`,
		`catalog +(reader-\d, )?(reader-\d reads?|writer writes), token \d+`, `primary +\w+ leads, token \d+`} {
		if !regexp.MustCompile(want).MatchString(lines) {
			t.Errorf("no line %q in\n%s", want, lines)
		}
	}
}

// TestEndsWhileMembersAreDownOrCutOff: an end in the middle leaves nothing either.
func TestEndsWhileMembersAreDownOrCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of real time; not with -short")
	}
	for _, at := range []string{"is killed", "are cut off"} {
		begin := time.Now()
		play(t, at)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%s: it took %v", at, took)
		}
	}
}

// TestEndsByItself: For ends it.
func TestEndsByItself(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	out := new(listener)
	if err := Run(t.Context(), Config{Out: out, Command: "lockkeeper", For: 100 * time.Millisecond}); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
