package model

import (
	"fmt"
	"strings"
)

// String is the member's number and the letter of the disk: 2b is member 2's second disk.
func (v Server) String() string {
	return fmt.Sprintf("%d%c", v.member()+1, 'a'+rune(v)%Disks)
}

func (s Set) String() string {
	var words []string
	for v := range Server(maxServers) {
		if s.has(v) {
			words = append(words, v.String())
		}
	}
	return strings.Join(words, " ")
}

// numbers lists members that are the bits of a number.
func numbers(bits uint8) string {
	var words []string
	for x := range MaxMembers {
		if bits&(1<<x) != 0 {
			words = append(words, fmt.Sprint(x+1))
		}
	}
	return strings.Join(words, " and ")
}

// Follow takes the steps of a script from the first state. It ends with an error at a step that the
// protocol does not have there.
func (m *Model) Follow(script []Step) (State, error) {
	s := m.First()
	for i, step := range script {
		var next *State
		m.Next(&s, func(n State, to Step) {
			if to == step {
				next = &n
			}
		})
		if next == nil {
			return s, fmt.Errorf("model: step %d, %+v: there is no such step", i+1, step)
		}
		s = *next
	}
	return s, nil
}

// Text is the steps of a script from the first state, a line each, and the disks at its end.
func (m *Model) Text(script []Step) string {
	var b strings.Builder
	s := m.First()
	for i, step := range script {
		next, err := m.Follow(script[:i+1])
		if err != nil {
			return b.String() + err.Error() + "\n"
		}
		fmt.Fprintf(&b, "%3d  %s\n", i+1, m.line(&s, &next, step))
		s = next
	}
	for x := range m.bounds.Members {
		v := s.server(x)
		d := s.Disks[v]
		fmt.Fprintf(&b, "     %v: cluster %s, term %d, log %s\n", v, clusterName(s.cluster(x)), d.Term,
			m.logText(d.Log))
	}
	fmt.Fprintf(&b, "     broken: %v\n", s.Broken)
	return b.String()
}

func clusterName(c uint8) string {
	if c == 0 {
		return "none"
	}
	return string(rune('A' + c - 1))
}

func (m *Model) logText(id LogID) string {
	var words []string
	for _, e := range m.logs.all[id].entries {
		words = append(words, fmt.Sprintf("%d:%v", e.Term, e))
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func (e Entry) String() string {
	switch e.Kind {
	case Write:
		return fmt.Sprintf("write %d", e.Value)
	case Config:
		if e.Nonvoters != 0 {
			return fmt.Sprintf("voters %v nonvoters %v", e.Voters, e.Nonvoters)
		}
		return fmt.Sprintf("voters %v", e.Voters)
	}
	return "first"
}

// line is a step as a sentence.
func (m *Model) line(from, to *State, step Step) string {
	x, v := int(step.A), to.server(int(step.A))
	log := to.Disks[v].Log
	leader := func() Server { return from.Clusters[from.cluster(x)-1].Terms[step.B].Leader }
	last := func() string { return m.logs.at(log, m.logs.length(log)).String() }
	switch step.Action {
	case Crash:
		return fmt.Sprintf("%v crashes and starts again", v)
	case Replace:
		return fmt.Sprintf("member %d loses its disk and starts with a blank one: %v", x+1, v)
	case Return:
		return fmt.Sprintf("member %d starts with its other disk again: %v", x+1, v)
	case Damage:
		return fmt.Sprintf("%v is set back: %s", v, m.logText(log))
	case Say:
		return fmt.Sprintf("the operator tells %v that %s never worked", v, numbers(step.B))
	case Ask:
		return fmt.Sprintf("%v asks member %d: blank, disk %v", v, step.B+1, to.server(int(step.B)))
	case Birth:
		return fmt.Sprintf("%v begins cluster %s: %s", v, clusterName(step.B), last())
	case Join:
		return fmt.Sprintf("%v joins cluster %s", v, clusterName(step.B))
	case Stand:
		return fmt.Sprintf("%v stands for election in term %d", v, to.Disks[v].Term)
	case Adopt:
		return fmt.Sprintf("%v refuses to vote in term %d, or crashes before it does", v, step.B)
	case Half:
		return fmt.Sprintf("%v saves the term %d of a vote and crashes: its candidate is still %v",
			v, step.B, to.Disks[v].VoteFor)
	case Vote:
		return fmt.Sprintf("%v votes for %v in term %d", v, Server(step.C), step.B)
	case Lead:
		return fmt.Sprintf("%v is elected in term %d", v, to.Disks[v].Term)
	case Store:
		return fmt.Sprintf("%v stores and acknowledges %q of %v", v, last(), leader())
	case Cut:
		return fmt.Sprintf("%v removes entries that %v does not have, and crashes", v, leader())
	case Ack:
		return fmt.Sprintf("%v acknowledges to %v what it has", v, leader())
	case Commit:
		return fmt.Sprintf("%v commits %q", v, m.logs.at(log, int(step.B)))
	case Propose:
		return fmt.Sprintf("a client sends %q to %v", last(), v)
	}
	return fmt.Sprintf("%v appends %q", v, last())
}
