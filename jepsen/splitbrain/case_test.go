package splitbrain

import (
	"slices"
	"testing"
)

// The cases of the textbooks are among the cases, with the answers of the textbooks. These are
// written down here by hand.
func TestTextbook(t *testing.T) {
	type answer struct {
		voters int
		name   string
		goes   int // the side that goes on, -1 for none
	}
	for _, want := range []answer{
		{3, "1 | 2, leader left", 1}, {3, "1 | 2, leader right", 1},
		{3, "1 dead (the leader)", 0}, {3, "1 dead (not the leader)", 0}, {3, "2 dead (the leader)", -1},
		{3, "2 dead (not the leader)", -1},
		{3, "1 dead, 1 | 1", -1},
		{4, "1 | 3, leader left", 1}, {4, "2 | 2", -1}, {4, "1 dead (the leader)", 0}, {4, "2 dead (the leader)", -1},
		{4, "1 dead, 1 | 2, leader left", -1},
		{5, "1 | 4, leader right", 1}, {5, "2 | 3, leader left", 1}, {5, "2 dead (the leader)", 0},
		{5, "3 dead (not the leader)", -1},
		{5, "1 dead, 1 | 3, leader left", 1}, {5, "1 dead, 2 | 2", -1},
		{6, "3 | 3", -1}, {6, "2 | 4, leader left", 1}, {6, "3 dead (the leader)", -1},
		{7, "3 | 4, leader left", 1}, {7, "3 dead (the leader)", 0}, {7, "4 dead (the leader)", -1},
	} {
		i := slices.IndexFunc(Cases(want.voters), func(c Case) bool { return c.String() == want.name })
		if i < 0 {
			t.Errorf("%d voters: there is no case %q", want.voters, want.name)
			continue
		}
		if got := Cases(want.voters)[i].Goes(); got != want.goes {
			t.Errorf("%d voters, %s: side %d goes on, want %d", want.voters, want.name, got, want.goes)
		}
	}
	for _, c := range ObserverCases() {
		two := slices.IndexFunc(c.Sides, func(g Group) bool { return g.Voters >= 2 })
		if c.Goes() != two {
			t.Errorf("%s: side %d goes on, want %d, which has two of three voters", c, c.Goes(), two)
		}
	}
}

// Every cut by size is there, with the leader on either side, and every number of dead; and no case
// is there twice.
func TestCasesAreComplete(t *testing.T) {
	for n := 2; n <= 7; n++ {
		cases := Cases(n)
		names := make(map[string]bool)
		for _, c := range cases {
			if names[c.String()] {
				t.Errorf("%d voters: %q is there twice", n, c)
			}
			names[c.String()] = true
			goes := 0
			members := c.Dead
			for i, g := range c.Sides {
				members.Voters, members.Observers = members.Voters+g.Voters, members.Observers+g.Observers
				if c.Quorum(i) {
					goes++
				}
			}
			if members != c.Cluster || goes > 1 {
				t.Errorf("%d voters, %s: %v members, %d sides go on", n, c, members, goes)
			}
		}
		cuts := n/2 + (n-1)/2 // one for each k and place of the leader; halves are alike
		dead := 2 * (n - 1)
		if want := cuts + dead + (n-1)/2; len(cases) != want {
			t.Errorf("%d voters: %d cases, want %d", n, len(cases), want)
		}
		for _, c := range BriefCases(n) {
			if !names[c.String()] {
				t.Errorf("%d voters: %q is brief only", n, c)
			}
		}
	}
}

// Whichever member leads, each has one place, the leader the one that the case wants.
func TestCast(t *testing.T) {
	cases := slices.Concat(Cases(2), Cases(5), Cases(6), ObserverCases())
	for _, c := range cases {
		for leader := 1; leader <= c.Cluster.Voters; leader++ {
			sides, dead := c.assign(leader)
			all := slices.Clone(dead)
			at := -1
			for i, side := range sides {
				all = append(all, side...)
				if slices.Contains(side, leader) {
					at = i
				}
				voters := 0
				for _, id := range side {
					if id <= c.Cluster.Voters {
						voters++
					}
				}
				if voters != c.Sides[i].Voters || len(side) != c.Sides[i].size() {
					t.Errorf("%s, m%d leads: side %d is %v", c, leader, i, side)
				}
			}
			slices.Sort(all)
			if at != c.Leader || len(all) != c.Cluster.size() || len(slices.Compact(all)) != c.Cluster.size() {
				t.Errorf("%s, m%d leads: %v, dead %v", c, leader, sides, dead)
			}
		}
	}
}
