package model

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var long = flag.Bool("model.long", false, "explore larger bounds, for some minutes")

// TestProtocol explores the protocol that is built. No state breaks the contract.
func TestProtocol(t *testing.T) {
	bounds := []Bounds{
		{Members: 3, Terms: 2, Writes: 1, Replaced: 1, Changes: 3},
		{Members: 3, Terms: 2, Writes: 1, Replaced: 1, Changes: 3, Blank: true},
		{Members: 3, Terms: 1, Writes: 1, Replaced: 3, Changes: 9},
		{Members: 3, Terms: 1, Writes: 2, Words: 2, Replaced: 1, Blank: true},
		{Members: 3, Terms: 3, Writes: 0},
		{Members: 2, Terms: 2, Writes: 1, Replaced: 1, Returns: 1, Changes: 3, Words: 1, Blank: true},
	}
	if *long {
		bounds = []Bounds{
			{Members: 3, Terms: 2, Writes: 1, Replaced: 2, Changes: 6},
			{Members: 3, Terms: 2, Writes: 1, Replaced: 1, Returns: 1, Changes: 3},
			{Members: 3, Terms: 1, Writes: 2, Replaced: 1, Changes: 3, Words: 1, Blank: true},
			{Members: 3, Terms: 2, Writes: 2, Replaced: 2, Changes: 3, Blank: true},
			{Members: 3, Terms: 3, Writes: 0, Replaced: 1, Changes: 3},
			{Members: 3, Terms: 3, Writes: 1},
		}
	}
	if testing.Short() {
		bounds = bounds[:1]
	}
	for _, b := range bounds {
		m := New(Rules{}, b)
		start := time.Now()
		r, err := Explore(m)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %d states, %d steps deep, %.1f s", b, r.States, r.Depth, time.Since(start).Seconds())
		if r.Broken != Kept {
			t.Errorf("%+v: %v\n%s", b, r.Broken, m.Text(r.Script))
		}
	}
}

// mutation is a part that the protocol lacks, or an assumption that does not hold.
type mutation struct {
	name   string
	rules  Rules
	bounds Bounds
	broken Invariant // Kept: the contract does not depend on it
	steps  int       // of a shortest counterexample
}

var mutations = []mutation{
	{"servers are numbers: two leaders", Rules{ByNumber: true, BirthByMajority: true},
		Bounds{Members: 3, Terms: 1, Replaced: 1, Blank: true}, OneLeader, 13},
	{"servers are numbers: two histories", Rules{ByNumber: true, BirthByMajority: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Blank: true, Find: OneEntry}, OneEntry, 18},
	{"votes of a replaced disk count", Rules{VotesByNumber: true},
		Bounds{Members: 3, Terms: 1, Replaced: 1}, OneLeader, 8},
	{"acknowledgements of a replaced disk count", Rules{AcksByNumber: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1}, NothingLost, 11},
	{"a majority gives birth", Rules{BirthByMajority: true, LostMajority: true},
		Bounds{Members: 3, Terms: 1, Writes: 2, Replaced: 1, Blank: true}, OneCluster, 23},
	{"a join is forgotten", Rules{VolatileJoin: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Blank: true}, NothingLost, 27},
	{"the word names a running member", Rules{RunningWord: true},
		Bounds{Members: 3, Terms: 1, Writes: 2, Words: 1, Blank: true}, OneCluster, 18},
	{"an answer does not say whom the word names", Rules{SilentWord: true},
		Bounds{Members: 3, Terms: 1, Writes: 2, Words: 1, Blank: true}, OneCluster, 18},
	{"the word is false", Rules{FalseWord: true},
		Bounds{Members: 3, Terms: 1, Writes: 2, Words: 1, Blank: true}, OneCluster, 18},
	{"a vote is two transactions", Rules{HalfVote: true},
		Bounds{Members: 3, Terms: 3}, NothingLost, 14},
	{"a saved term falls", Rules{FallingTerm: true},
		Bounds{Members: 3, Terms: 2}, NothingLost, 8},
	{"a change without a majority", Rules{LonelyChange: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Changes: 3}, NothingLost, 11},
	{"a change before the one before is committed", Rules{HastyChange: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Changes: 3}, NothingLost, 17},
	{"two voters change in one entry", Rules{SkipNonvoter: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Returns: 1, Changes: 3}, NothingLost, 20},
	{"two disks of three are lost", Rules{LostMajority: true},
		Bounds{Members: 3, Terms: 1, Writes: 2, Replaced: 2, Blank: true}, OneCluster, 26},
	{"a disk is set back", Rules{SetBack: true},
		Bounds{Members: 3, Terms: 1}, OneLeader, 7},
	{"one disk of three is lost, before the cluster has a write", Rules{LostMajority: true},
		Bounds{Members: 3, Terms: 1, Writes: 2, Replaced: 1, Changes: 3, Blank: true}, Kept, 0},
	{"a voter counts before it has the log", Rules{PromoteEmpty: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Changes: 3}, Kept, 0},
	{"the new disk first, then the old one", Rules{PromoteFirst: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Changes: 3}, Kept, 0},
	{"servers outside the configuration get votes", Rules{AnyCandidate: true},
		Bounds{Members: 3, Terms: 2, Replaced: 1, Changes: 3}, Kept, 0},
}

// TestMutations takes parts of the protocol away. The explorer finds a counterexample for each that
// the contract needs, as short as it can be.
func TestMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("explores millions of states; not with -short")
	}
	for _, u := range mutations {
		t.Run(u.name, func(t *testing.T) {
			m := New(u.rules, u.bounds)
			r, err := Explore(m)
			if err != nil {
				t.Fatal(err)
			}
			if r.Broken != u.broken || len(r.Script) != u.steps {
				t.Errorf("broken: %v, in %d steps; want %v, in %d", r.Broken, len(r.Script), u.broken, u.steps)
			}
			t.Logf("%d states\n%s", r.States, m.Text(r.Script))
		})
	}
}

// The counterexample to changes of members by a leader that has committed nothing in its term needs
// four members and 47 steps, too many to be found. It is played here.
func TestChangeByAnUnsettledLeader(t *testing.T) {
	bounds := Bounds{Members: 4, Terms: 4, Replaced: 2, Returns: 6, Changes: 6}
	rules := Rules{UnsettledChange: true}
	m := New(rules, bounds)
	s, err := m.Follow(unsettled)
	if err != nil {
		t.Fatal(err)
	}
	if s.Broken != NothingLost {
		t.Errorf("broken: %v\n%s", s.Broken, m.Text(unsettled))
	}
	_, err = New(Rules{}, bounds).Follow(unsettled)
	if err == nil || !strings.Contains(err.Error(), "Action:19") {
		t.Errorf("the protocol takes all steps, or ends at another than the first removal: %v", err)
	}
}

// unsettled is the counterexample. Members are 0 to 3, their disks 0 to 7.
var unsettled = []Step{
	// Member 2 leads term 2, and adds the second disks of members 3 and 0 as nonvoters.
	{Replace, 3, 0, 0}, {Stand, 2, 0, 0}, {Vote, 0, 2, 4}, {Vote, 1, 2, 4}, {Lead, 2, 0, 0},
	{Store, 0, 2, 0}, {Store, 1, 2, 0}, {Commit, 2, 2, 0}, {Add, 2, 7, 0},
	{Store, 0, 2, 0}, {Store, 1, 2, 0}, {Commit, 2, 3, 0},
	{Return, 3, 0, 0}, {Store, 3, 2, 0}, {Store, 3, 2, 0}, {Replace, 0, 0, 0}, {Add, 2, 1, 0},
	{Store, 1, 2, 0}, {Store, 3, 2, 0}, {Commit, 2, 4, 0},
	// Member 0 is back with its first disk and leads term 3. It alone knows that 3's is removed.
	{Return, 0, 0, 0}, {Store, 0, 2, 0}, {Return, 3, 0, 0}, {Stand, 0, 0, 0},
	{Vote, 1, 3, 0}, {Vote, 2, 3, 0}, {Lead, 0, 0, 0}, {Join, 3, 1, 0}, {Store, 3, 3, 0}, {Remove, 0, 6, 0},
	// Member 1 leads term 4, and commits that 0's is removed, with member 3's first disk.
	{Return, 3, 0, 0}, {Return, 0, 0, 0}, {Stand, 1, 0, 0}, {Vote, 2, 4, 2}, {Vote, 3, 4, 2}, {Lead, 1, 0, 0},
	{Join, 0, 1, 0}, {Store, 0, 4, 0}, {Remove, 1, 0, 0},
	{Store, 3, 4, 0}, {Store, 3, 4, 0}, {Commit, 1, 6, 0},
	// Member 0 is back with its first disk. 2 has heard of neither removal: a majority of three.
	{Return, 0, 0, 0}, {Stand, 0, 0, 0}, {Stand, 0, 0, 0}, {Vote, 2, 5, 0}, {Lead, 0, 0, 0},
}

// TestSymmetry compares the numbers of states with and without the symmetry of the members.
func TestSymmetry(t *testing.T) {
	with, err := Explore(New(Rules{}, Bounds{Members: 3, Terms: 1, Writes: 1, Replaced: 1, Changes: 3}))
	if err != nil {
		t.Fatal(err)
	}
	b := Bounds{Members: 3, Terms: 1, Writes: 1, Replaced: 1, Changes: 3, Blank: true, Words: 1}
	if n := New(Rules{}, b).fixed(); n != 3 {
		t.Errorf("%d members are fixed where the operator decides which one begins; want 3", n)
	}
	b.Blank = false
	m := New(Rules{}, b)
	m.asymmetric = true
	without, err := Explore(m)
	if err != nil {
		t.Fatal(err)
	}
	if without.Depth != with.Depth || without.States < 4*with.States || without.States > 6*with.States {
		t.Errorf("%d states, %d deep with the symmetry, %d and %d without", with.States, with.Depth, without.States, without.Depth)
	}
}
