package model

import (
	"context"
	"errors"
	"testing"
)

// TestExploreEnds gives up beyond the bounds, and with its context.
func TestExploreEnds(t *testing.T) {
	b := Bounds{Members: 3, Terms: 2, Entries: 3, Lost: 1, Changes: 3, States: 5000}
	r, err := Explore(t.Context(), New(0, b))
	if many := tooMany(0); !errors.As(err, &many) || r.States < 5000 || r.States > 5100 {
		t.Errorf("%d states: %v", r.States, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Explore(ctx, New(0, b)); !errors.Is(err, context.Canceled) {
		t.Errorf("%d states: %v", r.States, err)
	}
}

// TestFingerprints remembers each fingerprint, also 0, while the table grows.
func TestFingerprints(t *testing.T) {
	var set fingerprints
	const n = 20000
	for range 2 {
		for i := range uint64(n) {
			if fresh := set.n < n; set.add(mix(0, i)*min(i, 1)) != fresh {
				t.Fatalf("fingerprint %d: fresh is %v", i, !fresh)
			}
		}
	}
	if set.n != n {
		t.Errorf("%d of %d fingerprints", set.n, n)
	}
}

// TestTooManyLogs ends with an error.
func TestTooManyLogs(t *testing.T) {
	m := New(0, Bounds{Members: 3, Terms: 1})
	for i := range 1<<16 - 2 {
		m.logs.add(0, Entry{Term: uint8(i), Voters: Set(i >> 8)})
	}
	if r, err := Explore(t.Context(), m); !errors.Is(err, tooManyLogs{}) {
		t.Errorf("%d states: %v", r.States, err)
	}
}
