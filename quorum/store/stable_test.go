package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/simdisk"
)

// The library saves a vote as two values. They are one transaction here, whichever store has them,
// and the one that comes first is not visible before the other.
func TestVoteIsOneTransaction(t *testing.T) {
	file, err := openBoltFile(filepath.Join(t.TempDir(), logFileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, store := range map[string]Stable{"raft.db": file, "simulated": simdisk.New()} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(nil, store, &fakeOwner{})
			saved := func() (uint64, string) {
				term, err := storedNumber(store, keyVoteTerm)
				candidate, _ := store.Get(keyVoteCandidate)
				if err != nil {
					t.Error(err)
				}
				return term, string(candidate)
			}
			for i, candidate := range []string{"1", "2"} {
				term := uint64(5 + i)
				beforeTerm, before := saved()
				if err := errors.Join(g.SetUint64(keyTerm, term), g.SetUint64(keyVoteTerm, term)); err != nil {
					t.Fatal(err)
				}
				if gotTerm, got := saved(); gotTerm != beforeTerm || got != before {
					t.Errorf("half a vote is saved: term %d for %q", gotTerm, got)
				}
				if err := g.Set(keyVoteCandidate, []byte(candidate)); err != nil {
					t.Fatal(err)
				}
				if gotTerm, got := saved(); gotTerm != term || got != candidate {
					t.Errorf("saved: term %d for %q, want %d for %q", gotTerm, got, term, candidate)
				}
			}
		})
	}
}

// What the library must never save stops the member: a term below the saved one, in which the
// member may have voted, and a second vote in a term.
//
// Defends: C1.
func TestTermsNeverFall(t *testing.T) {
	for _, tt := range []struct {
		about string
		write func(g *guard) error
		want  string
	}{
		{"an older term", func(g *guard) error { return g.SetUint64(keyTerm, 6) }, "the term falls from 7 to 6"},
		{"a vote of an older term", func(g *guard) error {
			return errors.Join(g.SetUint64(keyVoteTerm, 6), g.Set(keyVoteCandidate, []byte("1")))
		}, "a vote of term 6 in term 7"},
		{"a second vote", func(g *guard) error {
			return errors.Join(g.SetUint64(keyVoteTerm, 7), g.Set(keyVoteCandidate, []byte("2")))
		}, "a vote of term 7 after one of term 7"},
	} {
		t.Run(tt.about, func(t *testing.T) {
			disk, owner := simdisk.New(), &fakeOwner{}
			g := newGuard(nil, disk, owner)
			if err := errors.Join(g.SetUint64(keyTerm, 7), g.SetUint64(keyVoteTerm, 7), g.Set(keyVoteCandidate, []byte("1"))); err != nil {
				t.Fatal(err)
			}
			if err := tt.write(g); err == nil || len(owner.writeFailed) != 1 || !strings.Contains(owner.writeFailed[0].Error(), tt.want) {
				t.Errorf("write: %v, the member ends with %v, want %q", err, owner.writeFailed, tt.want)
			}
			if term, _ := disk.GetUint64(keyTerm); term != 7 {
				t.Errorf("the saved term is %d", term)
			}
			if candidate, _ := disk.Get(keyVoteCandidate); string(candidate) != "1" {
				t.Errorf("the saved vote is for %q", candidate)
			}
		})
	}
}
