package jepsen

import (
	"strings"
	"testing"
	"time"
)

// script builds a history from one line per entry:
//
//	a got 5        contender a got the lock with token 5
//	a got 5 shared
//	a left         a's release is invoked
//	a lost         a's recipe says so
//	a! suspended   what a's worker says; also: expired, pause, connected <session>
func script(t *testing.T, lines string) []Op {
	t.Helper()
	var ops []Op
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		worker, isWorker := strings.CutSuffix(words[0], "!")
		op := Op{Time: time.Duration(len(ops)) * time.Second, Worker: worker, Kind: Info}
		if !isWorker {
			op.Contender, op.Lock, op.Mode = worker+"/l", "/l", Exclusive
		}
		switch words[1] {
		case "got":
			op.Kind, op.F = OK, FAcquire
			for _, c := range words[2] {
				op.Token = op.Token*10 + int64(c-'0')
			}
			if len(words) > 3 {
				op.Mode = Mode(words[3])
			}
			if op.Mode == Lease {
				op.Leases = 2
			}
		case "left":
			op.Kind, op.F = Invoke, FRelease
		case "connected":
			op.F, op.Session = FConnected, words[2]
		case "lost", "suspended", "expired", "pause", "resume":
			op.F = words[1]
		default:
			t.Fatalf("script: %q", line)
		}
		ops = append(ops, op)
	}
	return ops
}

// Every kind of broken promise must be seen, and nothing else.
func TestCheckLocks(t *testing.T) {
	for _, test := range []struct {
		name, history string
		want          []string // a piece of each violation
	}{
		{"one after the other", "a got 1\na left\nb got 2\nb left\na got 3", nil},
		{"two holders", "a got 1\nb got 2", []string{"b/l got it (exclusive) while a/l holds it"}},
		{"three holders", "a got 1\nb got 2\nc got 3", []string{"b/l got it", "c/l got it (exclusive) while a/l", "c/l got it (exclusive) while b/l"}},
		{"twice the same", "a got 1\na got 2", []string{"while a/l holds it", "a/l got it twice"}},
		{"readers", "a got 1 shared\nb got 2 shared\na left\nb left\nc got 3", nil},
		{"readers in any order", "a got 2 shared\nb got 1 shared", nil},
		{"reader and writer", "a got 1 shared\nb got 2", []string{"b/l got it (exclusive) while a/l holds it (shared)"}},
		{"writer and reader", "a got 1\nb got 2 shared", []string{"b/l got it (shared) while a/l holds it (exclusive)"}},
		{"two leases of two", "a got 0 lease\nb got 0 lease\na left\nc got 0 lease", nil},
		{"three leases of two", "a got 0 lease\nb got 0 lease\nc got 0 lease", []string{"while a/l", "while b/l"}},
		{"token goes back", "a got 2\na left\nb got 1", []string{"fencing token 1 (exclusive) after 2"}},
		{"token stays", "a got 2\na left\nb got 2", []string{"fencing token 2 (exclusive) after 2"}},
		{"reader's token behind a writer's", "a got 5\na left\nb got 4 shared", []string{"fencing token 4 (shared) after 5"}},
		{"writer's token behind a reader's", "a got 5 shared\na left\nb got 4", []string{"fencing token 4 (exclusive) after 5"}},
		{"lost by itself", "a got 1\na lost\nb got 2", nil},
		{"expired", "a! connected s1\na got 1\na! suspended\na! expired\nb got 2", nil},
		{"overtaken in doubt, then expired", "a! connected s1\na got 1\na! suspended\nb got 2\na! connected s2", nil},
		{"overtaken in doubt, then given up", "a! connected s1\na got 1\na! suspended\nb got 2\na left\na! connected s1", nil},
		{"overtaken in doubt, and back", "a! connected s1\na got 1\na! suspended\nb got 2\na! connected s1", []string{"a/l came back"}},
		{"overtaken while stopped", "a! connected s1\na got 1\na! pause\nb got 2\na! resume\na! suspended\na lost\na! connected s2", nil},
		{"stopped, but not overtaken", "a! connected s1\na got 1\na! pause\na! resume\na! suspended\na! connected s1\na left\nb got 2", nil},
		{"back from doubt, then two holders", "a! connected s1\na got 1\na! suspended\na! connected s1\nb got 2", []string{"b/l got it"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := CheckLocks(script(t, test.history)).Violations
			ok := len(got) == len(test.want)
			for i := 0; ok && i < len(got); i++ {
				ok = strings.Contains(got[i], test.want[i])
			}
			if !ok {
				t.Errorf("history:\n%s\ngot  %q\nwant %q", test.history, got, test.want)
			}
		})
	}
}

func TestCheckLocksCounts(t *testing.T) {
	report := CheckLocks(script(t, "a got 1 shared\nb got 2 shared\na left\na got 3 shared\na left\nb left"))
	if report.Acquired["a/l"] != 2 || report.Acquired["b/l"] != 1 || report.Crowd["/l"] != 2 {
		t.Errorf("Acquired = %v, Crowd = %v", report.Acquired, report.Crowd)
	}
}
