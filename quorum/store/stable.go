package store

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Stable is where a member keeps its term, its newest vote and a few other values.
type Stable interface {
	raft.StableStore
	// SetVote sets the term of the newest vote and its candidate, the values of keyVoteTerm and
	// keyVoteCandidate, in one transaction: a power cut leaves both, or neither.
	SetVote(term uint64, candidate []byte) error
}

// The keys of raft's values.
var (
	keyTerm          = []byte(Term)
	keyVoteTerm      = []byte(VoteTerm)
	keyVoteCandidate = []byte(VoteCandidate)
)

// setTerm saves raft's term. Errors: the saved term is higher, so the member may have voted or
// acknowledged entries in it; an error of the store.
func (g *guard) setTerm(term uint64) error {
	saved, err := storedNumber(g.Stable, keyTerm)
	if err == nil && term < saved {
		err = fmt.Errorf("the term falls from %d to %d", saved, term)
	}
	if err != nil {
		return err
	}
	return g.Stable.SetUint64(keyTerm, term)
}

// setVote saves a vote. Errors: it contradicts the saved term or the saved vote; an error of the
// store.
func (g *guard) setVote(term uint64, candidate []byte) error {
	saved, err := storedNumber(g.Stable, keyTerm)
	if err != nil {
		return err
	}
	last, err := storedNumber(g.Stable, keyVoteTerm)
	switch {
	case err != nil:
		return err
	case term != saved:
		return fmt.Errorf("a vote of term %d in term %d", term, saved)
	case term <= last:
		return fmt.Errorf("a vote of term %d after one of term %d", term, last)
	}
	return g.Stable.SetVote(term, candidate)
}
