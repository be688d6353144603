package model

import (
	"fmt"
	"slices"
	"strings"
)

// Knob is a bound as a flag of a command line. One of Int and Bool is nil.
type Knob struct {
	Name, Help string
	Int        *int
	Bool       *bool
}

// Knobs is the fields of b.
func (b *Bounds) Knobs() []Knob {
	return []Knob{
		{"members", "members, 1 to 4", &b.Members, nil},
		{"voters", "the first of them, in the first configuration; 0: all", &b.Voters, nil},
		{"terms", "terms with elections, 1 to 4", &b.Terms, nil},
		{"entries", "entries that are proposed for clients", &b.Entries, nil},
		{"lost", "disks that are lost and replaced, one for each member at the most", &b.Lost, nil},
		{"returns", "returns of disks that were replaced", &b.Returns, nil},
		{"changes", "configurations behind the first; a replaced disk takes three", &b.Changes, nil},
		{"remove", "leaders remove any voter, as an operator asks", nil, &b.Remove},
		{"steady", "no process crashes", nil, &b.Steady},
		{"led", "begin with a leader of term 2, the first entry of which all voters have", nil, &b.Led},
		{"blank", "begin with blank disks, not with a cluster", nil, &b.Blank},
		{"words", "words of the operator at the first start (blank)", &b.Words, nil},
		{"import", "entries of a ZooKeeper that each of three members may have imported (blank)", &b.Import, nil},
		{"parallel", "leaders write their disks in parallel", nil, &b.Parallel},
		{"early", "early commit", nil, &b.Early},
		{"snapshots", "states, snapshots and restores", nil, &b.Snapshots},
		{"commands", "commands of a session's connection (entries bounds their copies)", &b.Commands, nil},
		{"lease", "the timeout of a session in ticks, a multiple of 3; 0: no session", &b.Lease, nil},
		{"errors", "ticks that a clock misses or counts twice (lease)", &b.Errors, nil},
		{"suspends", "suspends of a machine (lease)", &b.Suspends, nil},
		{"moves", "moves of the client to another member, at most 1 (lease)", &b.Moves, nil},
		{"lemmas", "also look for the broken lemmas, majorities-meet and electable", nil, &b.Lemmas},
		{"states", "give up beyond that number of states; 0: never", &b.States, nil},
	}
}

// Validate reports bounds that a State has no room for.
func (b *Bounds) Validate() error {
	log := 1 + b.Terms + b.Entries + b.Changes + b.Import
	if b.Lease > 0 {
		log += b.Terms + 2*b.Moves
	}
	switch {
	case b.Members < 1 || b.Members > MaxMembers || b.Voters < 0 || b.Voters > b.Members:
		return fmt.Errorf("members are 1 to %d, voters at most as many", MaxMembers)
	case b.Terms < 1 || b.Terms >= MaxTerm:
		return fmt.Errorf("terms are 1 to %d", MaxTerm-1)
	case b.Moves < 0 || b.Moves >= maxGeneration || b.Moves > 0 && (b.Lease == 0 || b.Commands > 0):
		return fmt.Errorf("moves are at most %d, with lease and without commands", maxGeneration-1)
	case b.Lease%3 != 0 || b.Lease < 0 || b.Lease > 30:
		return fmt.Errorf("lease is a multiple of 3, at most 30")
	case b.Led && (b.Blank || b.Voters == 1 || b.Members == 1):
		return fmt.Errorf("led needs two voters or more that are not blank")
	case b.Import > 0 && (b.Members != 3 || !b.Blank):
		return fmt.Errorf("import needs three members that are blank")
	case b.Commands > 9 || b.Entries > 15 || log > maxLog:
		return fmt.Errorf("a log may have %d entries, the bounds need %d", maxLog, log)
	}
	return nil
}

// Flags is the command line of these bounds and rules.
func Flags(without Rules, b Bounds) string {
	var words []string
	for _, k := range b.Knobs() {
		switch {
		case k.Int != nil && *k.Int != 0 && !(k.Name == "voters" && b.Voters == b.Members):
			words = append(words, fmt.Sprintf("-%s %d", k.Name, *k.Int))
		case k.Bool != nil && *k.Bool:
			words = append(words, "-"+k.Name)
		}
	}
	if b.Find != Kept {
		words = append(words, "-find "+b.Find.Name())
	}
	var names []string
	for r := range NumRules {
		if without.has(r) {
			names = append(names, r.String())
		}
	}
	if len(names) > 0 {
		words = append(words, "-without "+strings.Join(names, ","))
	}
	return strings.Join(words, " ")
}

// ParseRules returns the rules with these names, which commas separate.
func ParseRules(names string) (without Rules, err error) {
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		r, ok := RuleNamed(name)
		if !ok {
			return 0, fmt.Errorf("there is no rule %q", name)
		}
		without |= Without(r)
	}
	return without, nil
}

// parseFlags is the inverse of Flags.
func parseFlags(line string) (without Rules, b Bounds, err error) {
	words := strings.Fields(line)
	knobs := b.Knobs()
	for i := 0; i < len(words); i++ {
		name, value := strings.TrimPrefix(words[i], "-"), ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		k := slices.IndexFunc(knobs, func(k Knob) bool { return k.Name == name })
		switch {
		case name == "without":
			without, err = ParseRules(value)
			i++
		case name == "find":
			var ok bool
			if b.Find, ok = InvariantNamed(value); !ok {
				err = fmt.Errorf("there is no invariant %q", value)
			}
			i++
		case k < 0:
			err = fmt.Errorf("there is no bound %q", name)
		case knobs[k].Bool != nil:
			*knobs[k].Bool = true
		default:
			_, err = fmt.Sscan(value, knobs[k].Int)
			i++
		}
		if err != nil {
			return 0, Bounds{}, fmt.Errorf("model: %s: %w", words[i], err)
		}
	}
	return without, b, b.Validate()
}
