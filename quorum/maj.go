package quorum

import "fmt"

// Maj is the majority rule: a set of voters is a quorum if it holds more than half of all voters
// (set.size > n/2). Observers are not voters and never count, neither in the set nor in n.
type Maj struct {
	voters int
}

// NewMaj returns the rule for a cluster of that many voters, at least 1.
func NewMaj(voters int) Maj {
	if voters < 1 {
		panic(fmt.Sprintf("quorum: a cluster of %d voters", voters))
	}
	return Maj{voters: voters}
}

// Voters is n, the number of voters of the whole cluster.
func (m Maj) Voters() int { return m.voters }

// Quorum reports whether that many voters are a quorum.
func (m Maj) Quorum(voters int) bool { return voters > m.voters/2 }

// Size is the smallest number of voters that is a quorum.
func (m Maj) Size() int { return m.voters/2 + 1 }

// Tolerates is the number of voters that may fail while the rest still is a quorum.
func (m Maj) Tolerates() int { return m.voters - m.Size() }

// EvenWarning says why an even number of voters is a poor choice; it is empty for an odd number.
func (m Maj) EvenWarning() string {
	if m.voters%2 == 1 {
		return ""
	}
	return fmt.Sprintf("%d voters tolerate the failure of %d, no more than %d voters do: a side may act only if it holds more than half (set.size > %d/2), "+
		"so a split into two halves stops both", m.voters, m.Tolerates(), m.voters-1, m.voters)
}
