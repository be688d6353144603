package model

import "fmt"

// The rules that package trace asks of real members, as the model asks them of its own.

// Place is where a leader has put an entry. There is one entry at a place.
type Place struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

func (p Place) String() string { return fmt.Sprintf("%d.%d", p.Term, p.Index) }

// UpToDate reports whether a voter with a log that ends at p may vote for a candidate with a log
// that ends at of (thesis, 3.6.1).
func (p Place) UpToDate(of Place) bool {
	if of.Term != p.Term {
		return of.Term > p.Term
	}
	return of.Index >= p.Index
}

// Majority reports whether have voters are more than half of voters.
func Majority(have, voters int) bool { return 2*have > voters }

// Turn is the place of a session's command among those that took effect.
type Turn uint8

// The turns. Next alone may take effect (C2, C5).
const (
	Next   Turn = iota // it follows the newest command
	Repeat             // it took effect before
	Gap                // the command before it has not taken effect
	Moved              // the session has a newer connection
)

// Commands is the state's knowledge of the commands of a session.
type Commands struct {
	Generation uint64 // of the newest connection
	Seq        uint64 // of the newest command of it
}

// Turn is the turn of a command.
func (c Commands) Turn(generation, seq uint64) Turn {
	switch {
	case generation != c.Generation:
		return Moved
	case seq <= c.Seq:
		return Repeat
	case seq > c.Seq+1:
		return Gap
	}
	return Next
}
