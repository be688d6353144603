package splitbrain

import (
	"fmt"
	"strings"

	"lockkeeper/quorum"
)

// A Group is some members, by their kinds.
type Group struct {
	Voters    int `json:"voters"`
	Observers int `json:"observers,omitempty"`
}

// size is the number of its members.
func (g Group) size() int { return g.Voters + g.Observers }

// String is the group's size, as 2 or 1+2 observers.
func (g Group) String() string {
	switch {
	case g.Observers == 0:
		return fmt.Sprint(g.Voters)
	case g.Voters == 0:
		return plural(g.Observers, "observer")
	}
	return fmt.Sprintf("%d+%s", g.Voters, plural(g.Observers, "observer"))
}

// A Case is one way in which a cluster is broken: some members are dead, and the others are in one
// piece or in two that cannot reach each other.
type Case struct {
	// Cluster is all members.
	Cluster Group `json:"cluster"`
	// Sides are the living members: one side, or two.
	Sides []Group `json:"sides"`
	Dead  Group   `json:"dead"`
	// Leader is the side that the leader is on when it happens; -1: the leader dies.
	Leader int `json:"leader"`
}

// String is the case in a few words, as "1 | 4, leader left". Left is the first side, right the
// second one.
func (c Case) String() string {
	var parts []string
	if c.Dead.size() > 0 {
		parts = append(parts, c.Dead.String()+" dead")
	}
	if len(c.Sides) == 2 {
		parts = append(parts, c.Sides[0].String()+" | "+c.Sides[1].String())
	}
	switch {
	case c.Leader < 0:
		parts[0] += " (the leader)"
	case len(c.Sides) == 1:
		parts[0] += " (not the leader)"
	case c.Sides[0] == c.Sides[1]: // there is nothing to choose
	default:
		parts = append(parts, "leader "+[]string{"left", "right"}[c.Leader])
	}
	return strings.Join(parts, ", ")
}

// Quorum is quorum.Maj of a side: whether it may go on. Dead voters are counted, in n; observers
// are not, on either side of the comparison.
func (c Case) Quorum(side int) bool {
	return quorum.NewMaj(c.Cluster.Voters).Quorum(c.Sides[side].Voters)
}

// Arithmetic writes out the computation of Quorum.
func (c Case) Arithmetic(side int) string {
	sign := "≤"
	if c.Quorum(side) {
		sign = ">"
	}
	return fmt.Sprintf("%d %s %d/2", c.Sides[side].Voters, sign, c.Cluster.Voters)
}

// Goes is the side that goes on, -1 if none does. There cannot be two: the majority prevents it.
func (c Case) Goes() int {
	for i := range c.Sides {
		if c.Quorum(i) {
			return i
		}
	}
	return -1
}

// assign says which members play a case: the numbers of the living, by side, and of the dead.
// Voters are numbered from 1, observers behind them. The leader goes where the case wants it, the
// others fill up the groups in their order.
func (c Case) assign(leader int) (sides [][]int, dead []int) {
	var voters, observers []int
	for id := 1; id <= c.Cluster.size(); id++ {
		switch {
		case id == leader:
		case id <= c.Cluster.Voters:
			voters = append(voters, id)
		default:
			observers = append(observers, id)
		}
	}
	fill := func(g Group, hasLeader bool) []int {
		var ids []int
		n := g.Voters
		if hasLeader {
			ids = append(ids, leader)
			n--
		}
		ids = append(append(ids, voters[:n]...), observers[:g.Observers]...)
		voters, observers = voters[n:], observers[g.Observers:]
		return ids
	}
	for i, g := range c.Sides {
		sides = append(sides, fill(g, c.Leader == i))
	}
	return sides, fill(c.Dead, c.Leader < 0)
}

// Cases are all cases of a cluster of n voters: every cut in two by size, with the leader on either
// side; every number of dead members, the leader among them and not; one dead member and every cut
// of the others.
func Cases(n int) []Case {
	cluster := Group{Voters: n}
	var all []Case
	add := func(dead, leader int, sides ...int) {
		c := Case{Cluster: cluster, Dead: Group{Voters: dead}, Leader: leader}
		for _, k := range sides {
			c.Sides = append(c.Sides, Group{Voters: k})
		}
		all = append(all, c)
	}
	for k := 1; k <= n/2; k++ {
		add(0, 0, k, n-k)
		if k < n-k {
			add(0, 1, k, n-k)
		}
	}
	for k := 1; k < n; k++ {
		add(k, -1, n-k)
		add(k, 0, n-k)
	}
	for k := 1; k <= (n-1)/2; k++ {
		add(1, 0, k, n-1-k)
	}
	return all
}

// ObserverCases are cuts of a cluster of three voters and two observers, which do not count:
// wherever they are, the side with two voters goes on.
func ObserverCases() []Case {
	var all []Case
	add := func(leader int, dead Group, sides ...Group) {
		all = append(all, Case{Cluster: Group{3, 2}, Sides: sides, Dead: dead, Leader: leader})
	}
	add(0, Group{}, Group{1, 2}, Group{2, 0})
	add(1, Group{}, Group{1, 2}, Group{2, 0})
	add(1, Group{}, Group{1, 1}, Group{2, 1})
	add(1, Group{}, Group{0, 2}, Group{3, 0})
	add(-1, Group{2, 0}, Group{1, 2})
	return all
}

// BriefCases are the most telling ones of Cases(n), for those in a hurry: the smallest cut, from
// the leader's side; the cut into halves; as many dead as the rest survives; one more.
func BriefCases(n int) []Case {
	tolerates := quorum.NewMaj(n).Tolerates()
	var brief []Case
	for _, c := range Cases(n) {
		dead, cut := c.Dead.Voters, len(c.Sides) == 2
		switch {
		case cut && dead == 0 && c.Leader == 0 && (c.Sides[0].Voters == 1 || c.Sides[0] == c.Sides[1]),
			!cut && c.Leader < 0 && (dead == tolerates || dead == tolerates+1):
			brief = append(brief, c)
		}
	}
	return brief
}

// CutOff is the case that Beside draws: of three voters a follower is cut off from the two others.
func CutOff() Case {
	return Case{Cluster: Group{Voters: 3}, Sides: []Group{{Voters: 1}, {Voters: 2}}, Leader: 1}
}

// StoryCase is the cut of a cluster of n voters that docs/split-brain.md tells: as even as n
// allows, with the leader on the smaller side.
func StoryCase(n int) Case {
	return Case{Cluster: Group{Voters: n}, Sides: []Group{{Voters: n / 2}, {Voters: n - n/2}}}
}
