package keeper

import (
	"strings"
	"testing"

	"lockkeeper/jepsen/locklab/lock"
)

// TestHoldersOfOneName: two clients of one name, of two clusters, have their own answers.
func TestHoldersOfOneName(t *testing.T) {
	p := &holders{holders: make(map[string]*holder)}
	one, two := p.add(lock.Config{Node: "store"}), p.add(lock.Config{Node: "store"})
	p.read(strings.NewReader(two.name + " ok 2\n" + one.name + " ok 1\n"))
	if got := <-one.answers; got != "ok 1" {
		t.Errorf("the first client has the answer %q", got)
	}
	if got := <-two.answers; got != "ok 2" {
		t.Errorf("the second client has the answer %q", got)
	}
}
