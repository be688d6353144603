package play

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// written is the stdin of a client's process, with the lab's commands.
type written struct{ bytes.Buffer }

// Close implements io.Closer.
func (*written) Close() error { return nil }

// agentOf is the client A without a library: the test adds events to its history.
func agentOf(stdin io.WriteCloser) *agent {
	return &agent{name: "A", node: "a", history: NewHistory(), host: &host{stdin: stdin}}
}

// TestLibraryHangs: a library that never ends a command is waited for answerTimeout beyond the time
// that the command has, and a process that ends is not waited for.
func TestLibraryHangs(t *testing.T) {
	for _, x := range []struct {
		event string
		took  time.Duration
	}{{"", 5*time.Second + answerTimeout}, {Killed, time.Second}, {Refused, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			a := agentOf(new(written))
			if x.event != "" {
				time.AfterFunc(time.Second, func() { a.history.Add(Event{Who: "A", What: x.event}) })
			}
			began := time.Now()
			e, err := a.do(t.Context(), Command{Do: "lock", Wait: 5 * time.Second})
			if took := time.Since(began); took != x.took || e.What != x.event {
				t.Errorf("%q after %v, want %q after %v", e.What, took, x.event, x.took)
			}
			if (x.event == "") != errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%q: %v", x.event, err)
			}
		})
	}
}

// TestLateLock: A gives back a lock that it gets when the story has gone on, and nothing else.
func TestLateLock(t *testing.T) {
	for event, gives := range map[string]bool{Locked: true, Refused: false, Killed: false} {
		synctest.Test(t, func(t *testing.T) {
			stdin := new(written)
			s := &trio{stage: &Stage{}, lease: 2 * time.Second, history: NewHistory()}
			s.a = agentOf(stdin)
			s.a.history = s.history
			s.history.Add(Event{Who: "A", What: Locked}) // of an earlier command
			from := s.history.len()
			time.AfterFunc(s.patience(), func() { s.history.Add(Event{Who: "A", What: event}) })
			time.AfterFunc(s.patience()+time.Second, func() { s.history.Add(Event{Who: "A", What: Unlocked}) })
			if err := s.giveBackLate(t.Context(), from); err != nil {
				t.Errorf("%s: %v", event, err)
			}
			if gave := strings.Contains(stdin.String(), `"unlock"`); gave != gives {
				t.Errorf("%s: the lab wrote %q", event, stdin)
			}
		})
	}
}
