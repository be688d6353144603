package run

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

func TestParseTicks(t *testing.T) {
	busy, total := parseTicks("cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if busy != 81 || total != 531 {
		t.Errorf("%d of %d ticks, want 81 of 531", busy, total)
	}
	if busy, total := parseTicks(""); busy != 0 || total != 0 {
		t.Errorf("%d of %d ticks of nothing", busy, total)
	}
}

func TestMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*machineInterval)
		defer cancel()
		m := newMachine()
		m.watch(ctx)
		if text := m.text(); !strings.HasSuffix(text, "; a timer of this process was late by up to 0s") {
			t.Errorf("virtual time is never late: %s", text)
		}
	})
}
