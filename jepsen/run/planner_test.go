package run

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/jepsen"
)

func TestCanAct(t *testing.T) {
	halves, _ := cutGroups([][]int{{1, 2}, {3, 4}})
	bridge, _ := cutBridge([]int{1, 2, 4, 5, 3}, 0)
	hearsMajority, _ := cutRing([]int{1, 2, 3, 4, 5}, 3)
	alone, _ := cutGroups([][]int{{1}, {2, 3}})
	for _, c := range []struct {
		name    string
		members int
		harms   []harm
		want    bool
	}{
		{"nothing is broken", 3, nil, true},
		{"one of three is down", 3, []harm{{down: []int{2}}}, true},
		{"two of three are down", 3, []harm{{down: []int{2}}, {down: []int{3}}}, false},
		{"one of three is down, and one weak", 3, []harm{{down: []int{2}}, {weak: []int{3}}}, false},
		{"the same one is down twice", 3, []harm{{down: []int{2}}, {down: []int{2}}}, true},
		{"two of four are down", 4, []harm{{down: []int{1, 2}}}, false},
		{"halves of four", 4, []harm{{cuts: halves}}, false},
		{"one of three is cut off", 3, []harm{{cuts: alone}}, true},
		{"one is cut off, and one of the others is down", 3, []harm{{cuts: alone}, {down: []int{3}}}, false},
		{"a bridge between halves of five", 5, []harm{{cuts: bridge}}, true},
		{"the bridge is down", 5, []harm{{cuts: bridge}, {down: []int{3}}}, false},
		{"each of five hears a majority, none is heard by one", 5, []harm{{cuts: hearsMajority}}, false},
		{"one direction only", 3, []harm{{cuts: cut{{1, 2}, {2, 3}, {3, 1}}}}, false},
		{"one of one is down", 1, []harm{{down: []int{1}}}, false},
	} {
		if got := canAct(c.members, c.harms); got != c.want {
			t.Errorf("%s: a majority can act: %v, want %v", c.name, got, c.want)
		}
	}
}

// Nemeses that stop members as they please leave a majority for as long as the planner was told,
// and use up most of their allowance.
func TestPlannerKeepsAMajority(t *testing.T) {
	for _, able := range []float64{0, 0.5, 0.9, 1} {
		synctest.Test(t, func(t *testing.T) {
			history := jepsen.NewHistory()
			f := &field{history: history, out: io.Discard, claimed: make(map[any]string)}
			unable, lostAt := time.Duration(0), time.Duration(0)
			f.planner = planner{members: 3, able: able, now: history.Now, changed: func(able bool) {
				if able {
					unable += history.Now() - lostAt
				} else {
					lostAt = history.Now()
				}
			}}
			f.planner.begin()
			const length = time.Hour
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			var running sync.WaitGroup
			for _, name := range []string{"a", "b", "c"} {
				n := nemesis{
					name: name, rest: seconds(1, 5), lasts: seconds(1, 8),
					plan: func(_ context.Context, _ *field, rng *rand.Rand) (*act, error) {
						nothing := func(context.Context) error { return nil }
						return &act{start: nothing, mend: nothing, harm: harm{down: rng.Perm(4)[:2]}}, nil
					},
				}
				running.Go(func() {
					if err := n.run(ctx, f, 1); err != nil {
						t.Error(err)
					}
				})
			}
			running.Wait()
			got := 1 - float64(unable)/float64(length)
			if got < able {
				t.Errorf("a majority could act for %.3f of the time, want %.2f at least", got, able)
			}
			if able == 0.5 && got > 0.6 {
				t.Errorf("a majority could act for %.3f of the time: next to nothing was broken", got)
			}
			if len(f.planner.active) > 0 || f.planner.lost {
				t.Errorf("%d acts have not ended, lost %v", len(f.planner.active), f.planner.lost)
			}
		})
	}
}
