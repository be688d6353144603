package znode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lockkeeper/wire"
)

// A listing that is made a part at a time, while children come and go, ends with those that there
// are.
//
// Defends: C9.
func TestListingAgreesWithChildren(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorstStore(t)
		w.must(wire.OpCreate, wire.CreateRequest{Path: "/d", ACL: wire.OpenACL})
		apply := func(op wire.Op, body wire.Record) { // it may fail
			w.s.Apply(1, &Entry{Commands: []Command{w.command(op, body)}}, nil)
		}
		change := func() {
			child, other := fmt.Sprintf("/d/%d", rng.IntN(20)), fmt.Sprintf("/d/%d", rng.IntN(20))
			switch rng.IntN(5) {
			case 0, 1:
				apply(wire.OpCreate, wire.CreateRequest{Path: child, ACL: wire.OpenACL})
			case 2, 3:
				apply(wire.OpDelete, wire.DeleteRequest{Path: child, Version: -1})
			default: // taken back
				apply(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{opDelete(child), opCreate(other, wire.OpenACL, 0), opDelete("/-")}})
			}
		}
		for range 30 {
			change()
		}
		l, other := w.s.List("/d"), w.s.List("/")
		for {
			if done, lost := l.Step(w.s, 1+rng.IntN(3)); lost {
				t.Fatalf("seed %d: the node is lost", seed)
			} else if done {
				break
			}
			for range rng.IntN(4) {
				change()
			}
		}
		l.Close()
		got := slices.Sorted(slices.Values(l.Names()))
		names, _, _ := w.s.Children("/d", []Identity{{Scheme: schemeSuper}})
		if slices.Sort(names); !slices.Equal(got, names) {
			t.Fatalf("seed %d: listed %v, there are %v", seed, got, names)
		}
		if other.Close(); w.s.state.tree.listings.Load() != nil {
			t.Fatalf("seed %d: listings are left", seed)
		}
	}
}

func TestListingOfANodeThatIsDeleted(t *testing.T) {
	w := newWorstStore(t)
	w.populate([]string{"/d", "/d/a", "/d/b"}, 0)
	l := w.s.List("/d")
	if done, lost := l.Step(w.s, 1); done || lost {
		t.Fatal(done, lost)
	}
	for _, path := range []string{"/d/b", "/d/a", "/d"} {
		w.must(wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1})
	}
	w.populate([]string{"/e"}, 0) // may take its row
	if done, lost := l.Step(w.s, 1); done || !lost {
		t.Errorf("done %v, lost %v", done, lost)
	}
	l.Close()
	if w.s.List("/d") != nil {
		t.Error("a node that is not there is listed")
	}
}
