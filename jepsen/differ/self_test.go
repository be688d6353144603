package differ

import (
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// twins is an arena of two lockkeepers. What the second one says goes through a filter.
func twins(t *testing.T, filter func(*item) *item) *arena {
	t.Helper()
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	return &arena{targets: [2]jepsen.Target{lockkeeper, lockkeeper}, dir: t.TempDir(), filter: filter}
}

// The seed of the tests below. Its round has no quota, so that nothing in it is left to chance.
const twinsSeed = 7

func TestTwinsDoNotDiffer(t *testing.T) {
	ar := twins(t, nil)
	n, _ := ar.round(t, twinsSeed, limit{ops: 1000}, make(map[string]int))
	if n < 1000 {
		t.Errorf("%d requests only", n)
	}
}

// TestFaultsAreFound breaks the second server's answers in ways that a server may be broken.
func TestFaultsAreFound(t *testing.T) {
	stat := func(it *item, change func(*wire.Stat)) *item {
		if it.kind != reply || it.request == nil || it.request.Op != wire.OpGetData || it.header.Err != wire.CodeOK {
			return it
		}
		var q wire.GetDataResponse
		if err := wire.Decode(it.body, &q); err != nil {
			return it
		}
		change(&q.Stat)
		changed := *it
		changed.body = q.Append(nil)
		return &changed
	}
	code := func(it *item, from, to wire.Code) *item {
		if it.kind != reply || it.header.Err != from {
			return it
		}
		changed := *it
		changed.header.Err = to
		return &changed
	}
	tests := []struct {
		name   string
		filter func(*item) *item
		shrink bool
	}{
		{"mtime differs from that of the same zxid", func(it *item) *item {
			return stat(it, func(s *wire.Stat) {
				if s.Version > 0 {
					s.Mtime = s.Ctime - 3_600_000
				}
			})
		}, false},
		{"pzxid does not move", func(it *item) *item {
			return stat(it, func(s *wire.Stat) { s.Pzxid = s.Czxid })
		}, false},
		{"no event for children", func(it *item) *item {
			var e wire.WatcherEvent
			if it.kind == event && wire.Decode(it.body, &e) == nil && e.Type == wire.EventNodeChildrenChanged {
				return nil
			}
			return it
		}, true},
		{"NotEmpty before BadVersion", func(it *item) *item { return code(it, wire.CodeBadVersion, wire.CodeNotEmpty) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ar := twins(t, tt.filter)
			g := newGenerator(twinsSeed, players)
			d, err := ar.open(t.Context(), g.mood)
			if err != nil {
				t.Fatal(err)
			}
			done, steps, diff, err := d.fight(t.Context(), g, limit{ops: 3000})
			if closed := d.close(); err != nil || closed != nil {
				t.Fatal(err, closed)
			}
			if diff == nil {
				t.Fatalf("not found with %d requests", done)
			}
			t.Logf("found after %d requests: %v", done, diff)
			if !tt.shrink { // it takes new servers for each try
				return
			}
			s, err := ar.shrink(t.Context(), g.mood, steps, diff, 2*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("shrunk: %v", s)
			if len(s.best) > 12 {
				t.Errorf("not shrunk: %d steps", len(s.best))
			}
		})
	}
}
