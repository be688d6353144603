package differ

import (
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// twins is an arena of two lockkeepers. The second one's answers go through a filter.
func twins(t *testing.T, filter func([]item) []item) *arena {
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

// each changes items one by one; one that becomes nil is left out.
func each(change func(*item) *item) func([]item) []item {
	return func(items []item) (list []item) {
		for i := range items {
			if it := change(&items[i]); it != nil {
				list = append(list, *it)
			}
		}
		return list
	}
}

// changeStat changes the Stat of an answered getData.
func changeStat(it *item, change func(*wire.Stat)) *item {
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

// changeCode replaces a code of a reply.
func changeCode(it *item, from, to wire.Code) *item {
	if it.kind != reply || it.header.Err != from {
		return it
	}
	changed := *it
	changed.header.Err = to
	return &changed
}

// A fault is a way in which a server may be broken. Some are shrunk, too, which takes new servers
// for each try.
type fault struct {
	name   string
	filter func([]item) []item
	shrink bool
}

func faults() []fault {
	return []fault{
		{"mtime differs from that of the same zxid", each(func(it *item) *item {
			return changeStat(it, func(s *wire.Stat) {
				if s.Version > 0 {
					s.Mtime = s.Ctime - 3_600_000
				}
			})
		}), false},
		{"pzxid does not move", each(func(it *item) *item {
			return changeStat(it, func(s *wire.Stat) { s.Pzxid = s.Czxid })
		}), false},
		{"no event for children", each(func(it *item) *item {
			var e wire.WatcherEvent
			if it.kind == event && wire.Decode(it.body, &e) == nil && e.Type == wire.EventNodeChildrenChanged {
				return nil
			}
			return it
		}), true},
		{"another path", each(func(it *item) *item {
			var q wire.CreateResponse
			if it.kind != reply || it.request == nil || it.request.Op != wire.OpCreate ||
				it.header.Err != wire.CodeOK || wire.Decode(it.body, &q) != nil {
				return it
			}
			changed := *it
			changed.body = wire.CreateResponse{Path: q.Path + "0"}.Append(nil)
			return &changed
		}), false},
		{"an event comes behind the next reply", func(items []item) []item {
			for i := range len(items) - 1 {
				if items[i].kind == event && items[i+1].kind == reply {
					items[i], items[i+1] = items[i+1], items[i]
				}
			}
			return items
		}, false},
		{"NotEmpty before BadVersion", each(func(it *item) *item {
			return changeCode(it, wire.CodeBadVersion, wire.CodeNotEmpty)
		}), true},
	}
}

// TestFaultsAreFound breaks the second server's answers in ways that a server may be broken.
func TestFaultsAreFound(t *testing.T) {
	for _, tt := range faults() {
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
			if !tt.shrink {
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
