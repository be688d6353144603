package locknode

import (
	"slices"
	"testing"
	"time"
)

func TestAhead(t *testing.T) {
	names := []string{"b__lock__0000000004", "leases", "a-lock-0000000002", "__READ__0000000001", "own-lock-0000000005",
		"__READ__0000000000", "later-lock-0000000006"}
	ahead := Ahead(names, "own-lock-0000000005", map[string]bool{"b__lock__0000000004": true})
	if want := []string{"__READ__0000000000", "__READ__0000000001", "a-lock-0000000002"}; !slices.Equal(ahead, want) {
		t.Errorf("ahead are %q, want %q", ahead, want)
	}
	if front := AtFront(ahead); len(front) != 3 {
		t.Errorf("%q at the front: the first writer waits for the readers", front)
	}
	if front := AtFront(ahead[2:]); len(front) != 1 {
		t.Errorf("%q at the front of writers", front)
	}
	if front := AtFront(ahead[:2]); len(front) != 2 {
		t.Errorf("%q at the front of readers", front)
	}
}

func TestExplain(t *testing.T) {
	node := func(name string, session int64, token int64) Contender {
		return New("/l", name, session, time.Time{}, token, nil)
	}
	readers := []Contender{node("__READ__0000000000", 1, 10), node("__READ__0000000001", 2, 11)}
	holders, before, merged := Explain("/l", readers, node("__WRIT__0000000002", 3, 12), 1)
	if len(holders) != 1 || holders[0].Session != 1 || before == nil || before.Session != 3 || before.Held || merged != 0 {
		t.Errorf("held by %+v, behind %+v, %d merged", holders, before, merged)
	}
	holders, before, _ = Explain("/l", readers, readers[1], 8)
	if len(holders) == 0 || before == nil || !before.Held {
		t.Errorf("held by %+v, behind %+v", holders, before)
	}
	// The next to get a lease has made it, and has a place in the queue.
	queue := New("/l/locks", "a-lock-0000000000", 5, time.Time{}, 20, nil)
	leases := []Contender{New("/l/leases", "a-lease-0000000000", 4, time.Time{}, 15, nil),
		New("/l/leases", "a-lease-0000000001", 5, time.Time{}, 21, nil)}
	holders, before, merged = Explain("/l", leases, queue, 8)
	if len(holders) != 1 || holders[0].Session != 4 || before == nil || before.Session != 5 || before.Held || merged != 1 {
		t.Errorf("held by %+v, behind %+v, %d merged", holders, before, merged)
	}
}
