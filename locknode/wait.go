package locknode

import (
	"cmp"
	"slices"
	"strings"
)

// SortNames sorts the names of nodes in the order of a queue, as far as the names tell it.
func SortNames(names []string) {
	numbers := make(map[string]int64, len(names))
	for _, name := range names {
		numbers[name], _ = Sequence(name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[a], numbers[b]), strings.Compare(a, b))
	})
}

// Ahead lists the nodes of a queue in front of own, the first one first, but for passed ones.
func Ahead(names []string, own string, passed map[string]bool) (ahead []string) {
	place, _ := Sequence(own)
	for _, name := range names {
		if n, ok := Sequence(name); ok && name != own && n <= place && !passed[name] {
			ahead = append(ahead, name)
		}
	}
	SortNames(ahead)
	return ahead
}

// AtFront returns, of the nodes that [Ahead] has listed, those that may hold the lock, and the
// first one that waits for them.
func AtFront(ahead []string) []string {
	end := slices.IndexFunc(ahead, func(name string) bool { return KindOf(name) != KindRead })
	if end < 0 {
		return ahead
	}
	return ahead[:end+1]
}

// Explain tells a contender that waits for a lock who is in front of it. It is given some of the
// contenders in front, and next, the one for which it waits. It returns the first holders among
// them, up to most, and next as it is judged. merged is the number of contenders that were given
// twice: one has a lease and a place in the queue of a semaphore.
func Explain(lock string, others []Contender, next Contender, most int,
) (holders []Contender, before *Contender, merged int) {
	all := append(slices.Clone(others), next)
	judged := Resolve(Sorted(lock, all))
	for i := range judged {
		c := &judged[i]
		if (c.Held || c.MayHold) && len(holders) < most {
			holders = append(holders, *c)
		}
		// Its lease stands for one that has a lease and a place in the queue.
		if c.Node == next.Node || before == nil && !c.Held && c.Session == next.Session {
			before = c
		}
	}
	return holders, before, len(all) - len(judged)
}
