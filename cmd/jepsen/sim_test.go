package main

import (
	"testing"

	"lockkeeper/jepsen/sim"
)

// Runs of one seed that differ fail with -repeat; without it, each seed has a run of its own.
func TestRepeatedRunsMustBeTheSame(t *testing.T) {
	for _, c := range []struct {
		journals []string
		repeat   bool
		ok       bool
	}{
		{[]string{"a", "a"}, true, true},
		{[]string{"a", "b"}, true, false},
		{[]string{"a", "b"}, false, true},
	} {
		s := &simRun{flags: &simFlags{repeat: c.repeat}, quiet: true, digests: make(map[string]int)}
		for _, journal := range c.journals {
			s.ended(&sim.Result{Journal: journal}, nil)
		}
		if s.ok() != c.ok {
			t.Errorf("journals %v, -repeat %v: ok is %v", c.journals, c.repeat, s.ok())
		}
	}
}
