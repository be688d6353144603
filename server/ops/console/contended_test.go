package console

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"lockkeeper/wire"
)

// TestGranted: the next holder is named when the first of a queue goes and the next one waited for
// it, and in no other case.
func TestGranted(t *testing.T) {
	const write, read, lease = "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-", "__READ__", "lease-"
	for name, tt := range map[string]struct {
		nodes []string // of sessions 1, 2, ...
		goes  int
		want  []wire.SessionID
	}{
		"the holder of a mutex":       {[]string{write, write, write}, 1, []wire.SessionID{2}},
		"the only one":                {[]string{write}, 1, nil},
		"one that waits":              {[]string{write, write, write}, 2, nil},
		"a reader before a writer":    {[]string{read, "__WRIT__"}, 1, []wire.SessionID{2}},
		"a writer before readers":     {[]string{"__WRIT__", read, read}, 1, []wire.SessionID{2}},
		"a reader beside a reader":    {[]string{read, read}, 1, nil},
		"a lease":                     {[]string{lease, lease}, 1, nil},
		"a leader":                    {[]string{"latch-", "latch-"}, 1, []wire.SessionID{2}},
		"a member of a group":         {[]string{"member-", "member-"}, 1, nil},
		"a member, before a strange":  {[]string{write, "member-"}, 1, nil},
		"kazoo's":                     {[]string{"x__lock__", "y__lock__"}, 1, []wire.SessionID{2}},
		"a node that is no contender": {[]string{"plain-", write}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTape(t, 0)
			var got []wire.SessionID
			p.r.Granted = func(next wire.SessionID) { got = append(got, next) }
			var nodes []string
			for i, node := range tt.nodes {
				id := wire.SessionID(i + 1)
				p.open(id)
				if i == 0 {
					p.create(1, "/l", "", wire.ModePersistent)
				}
				nodes = append(nodes, p.create(id, "/l/"+node, "", wire.ModeEphemeralSequential))
			}
			p.request(wire.SessionID(tt.goes), wire.OpDelete, wire.DeleteRequest{Path: nodes[tt.goes-1], Version: -1})
			if !slices.Equal(got, tt.want) {
				t.Errorf("granted to %v, want %v", got, tt.want)
			}
		})
	}
}

// TestContended: the locks with the most waiters, who waits in them, and for how long; not those
// that nobody waits for, nor groups.
func TestContended(t *testing.T) {
	p := newTape(t, 0)
	for id := range wire.SessionID(9) {
		p.open(id + 1)
	}
	add := func(path, node string, contenders int) (firstWaits int64) {
		p.create(1, path, "", wire.ModePersistent)
		for i := range contenders {
			p.create(wire.SessionID(i+1), path+"/"+node, "", wire.ModeEphemeralSequential)
			if i == 1 {
				firstWaits = p.ms
			}
		}
		return firstWaits
	}
	add("/alone", "x-lock-", 1)
	add("/group", "member-", 9)
	add("/readers", "__READ__", 5)
	two := add("/two", "x-lock-", 2)
	four := add("/four", "latch-", 4)
	nine := add("/nine", "x__lock__", 9)
	want := []Contention{{"/nine", 8, nine}, {"/four", 3, four}, {"/two", 1, two}}
	if got := Survey(p.view, 10).Contended; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("contended: %v, want %v", got, want)
	}
	if got := Survey(p.view, 2).Contended; len(got) > 2 || got[0] != want[0] {
		t.Errorf("two of them: %v", got)
	}
	if wait := want[0].LongestWait(time.UnixMilli(nine + 7000)); wait != 7*time.Second {
		t.Errorf("it has waited for %v", wait)
	}
}

// TestContendedSemaphores: who waits for a lease counts once, for the semaphore and not for its
// queue, and a holder does not count.
func TestContendedSemaphores(t *testing.T) {
	const curator, kazoo = "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-", "b7bfcd3227404d3880a0eccd4e5100c"
	p := newTape(t, 0)
	for id := range wire.SessionID(5) {
		p.open(id + 1)
	}
	for _, path := range []string{"/s", "/s/leases", "/s/locks", "/k", "/k-__lock__"} {
		p.create(1, path, "", wire.ModePersistent)
	}
	p.create(1, "/s/leases/"+curator+"lease-", "", wire.ModeEphemeralSequential)
	p.create(2, "/s/locks/"+curator+"lock-", "", wire.ModeEphemeralSequential)
	second := p.ms
	p.create(2, "/s/leases/"+curator+"lease-", "", wire.ModeEphemeralSequential)
	p.create(3, "/s/locks/"+curator+"lock-", "", wire.ModeEphemeralSequential)
	p.create(4, "/k/"+kazoo+"1", "", wire.ModeEphemeral)
	p.create(5, "/k-__lock__/"+kazoo+"2__lock__", "", wire.ModeEphemeralSequential)
	got, want := Survey(p.view, 10), []Contention{{"/s", 2, second}, {"/k", 1, p.ms}}
	if fmt.Sprint(got.Contended) != fmt.Sprint(want) || got.Deadlocks != 0 || !got.Known {
		t.Errorf("%+v, want %v", got, want)
	}
}

// TestSurveyCountsDeadlocks, also those over the locks around a command.
func TestSurveyCountsDeadlocks(t *testing.T) {
	p := newTape(t, 0)
	for id := range wire.SessionID(6) {
		p.open(id + 1)
	}
	const node = "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-"
	take := func(id wire.SessionID, lock, data string) {
		p.create(id, lock+"/"+node, data, wire.ModeEphemeralSequential)
	}
	for _, lock := range []string{"/a", "/b", "/c", "/d", "/e"} {
		p.create(1, lock, "", wire.ModePersistent)
	}
	want := func(n int) {
		t.Helper()
		if got := Survey(p.view, 10); got.Deadlocks != n || !got.Known {
			t.Errorf("%d deadlocks (known: %v), want %d", got.Deadlocks, got.Known, n)
		}
	}
	take(1, "/a", "")
	take(2, "/b", "")
	take(1, "/b", "")
	want(0)
	take(2, "/a", "")
	want(1)
	take(3, "/c", "")
	take(4, "/d", "")
	take(5, "/d", `{"by":"lockkeeper/recipes","since":"2026-11-21T14:00:00Z","within":["0x3"]}`)
	want(1)
	take(6, "/c", `{"by":"lockkeeper/recipes","since":"2026-11-21T14:00:00Z","within":["0x4"]}`)
	want(2)
	take(1, "/e", "")
	take(1, "/e", "") // threads that share a session
	want(2)
}

// TestLongHolds: a lock that is held for long while others wait, or for much longer by somebody
// alone; an election is meant to last.
func TestLongHolds(t *testing.T) {
	p := newTape(t, 0)
	p.open(1)
	p.open(2)
	for path, contenders := range map[string]int{"/waited": 2, "/alone": 1} {
		p.create(1, path, "", wire.ModePersistent)
		for id := range contenders {
			p.create(wire.SessionID(id+1), path+"/x-lock-", "", wire.ModeEphemeralSequential)
		}
	}
	p.create(1, "/elected", "", wire.ModePersistent)
	p.create(1, "/elected/x-latch-", "", wire.ModeEphemeralSequential)
	p.create(2, "/elected/x-latch-", "", wire.ModeEphemeralSequential)
	x := newIndex(p.view, p.r, math.MaxInt)
	for _, tt := range []struct {
		after time.Duration
		want  []string
	}{
		{longMs*time.Millisecond - time.Second, nil},
		{longMs*time.Millisecond + time.Second, []string{"/waited"}},
		{longAloneTimes*longMs*time.Millisecond - time.Second, []string{"/waited"}},
		{longAloneTimes*longMs*time.Millisecond + time.Second, []string{"/alone", "/waited"}},
	} {
		var got []string
		x.with(func() {
			for _, l := range x.locks {
				if l.isLong(instant(p.ms).Add(tt.after)) {
					got = append(got, l.path)
				}
			}
		})
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("after %v: %v, want %v", tt.after, got, tt.want)
		}
	}
}

// A queue behind many other nodes is not searched for: anybody can make them, and the state is
// locked meanwhile.
func TestContendedLooksAtFewNodes(t *testing.T) {
	for _, others := range []int{contendedChildren - 3, contendedChildren} {
		p := newTape(t, 0)
		p.open(1)
		p.create(1, "/l", "", wire.ModePersistent)
		for i := range others {
			p.create(1, fmt.Sprintf("/l/%d", i), "", wire.ModePersistent)
		}
		for range 3 {
			p.create(1, "/l/x-lock-", "", wire.ModeEphemeralSequential)
		}
		if got := Survey(p.view, 10).Contended; (len(got) == 1) != (others < contendedChildren) {
			t.Errorf("behind %d others: %v", others, got)
		}
	}
}
