package model

import (
	"fmt"
	"strings"
)

// A script is a conversation in the form of quorum/testdata: a line "> command" is followed by the
// answer, indented. The first command is "> start" with bounds and rules; each of the others is a
// step, in the form of ActionInfo.Form. "> members" lists the members, "> contract" says which
// promise is broken. Other lines are comments.

// String is the member's number and the letter of the disk: 2b is member 2's second disk.
func (v Server) String() string {
	if v == nobody {
		return "nobody"
	}
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

func (e Entry) String() string {
	switch {
	case e.Kind == Write && e.Value >= command(1, 0):
		return fmt.Sprintf("command %d of connection %d", e.Value&15, e.Value>>4)
	case e.Kind == Write:
		return fmt.Sprintf("write %d", e.Value)
	case e.Kind == Config && e.Nonvoters != 0:
		return fmt.Sprintf("voters %v nonvoters %v", e.Voters, e.Nonvoters)
	case e.Kind == Config:
		return fmt.Sprintf("voters %v", e.Voters)
	}
	return [...]string{Noop: "first", Ending: "end of the session", Attach: "connection 2",
		Restored: "another state"}[e.Kind]
}

// Follow takes the steps of a script from the first state. It ends with an error at a step that the
// protocol does not have there.
func (m *Model) Follow(script []Step) (State, error) {
	s := m.First()
	for i, step := range script {
		next, ok := m.Take(&s, step)
		if !ok {
			return s, fmt.Errorf("model: step %d, %s: the protocol has no such step there", i+1, m.command(&s, step))
		}
		s = next
	}
	return s, nil
}

// Take takes a step from a state, if the protocol has it there.
func (m *Model) Take(s *State, step Step) (next State, ok bool) {
	m.Next(s, func(n *State, to Step) {
		if to == step {
			next, ok = *n, true
		}
	})
	return next, ok
}

// Text is the script of these steps, with the members and the broken promise at its end.
func (m *Model) Text(script []Step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "> start %s\n", Flags(m.rules, m.bounds))
	s := m.First()
	for _, step := range script {
		fmt.Fprintf(&b, "> %s\n", m.command(&s, step))
		next, ok := m.Take(&s, step)
		if !ok {
			b.WriteString("  there is no such step\n")
			break
		}
		b.WriteString(m.answer(&s, &next, step))
		s = next
	}
	fmt.Fprintf(&b, "> members\n%s> contract\n  broken: %v\n", m.table(&s), s.Broken)
	return b.String()
}

// Play plays a script, and returns it with the answers that the model gives, and its steps.
func Play(text string) (out string, m *Model, steps []Step, err error) {
	var b strings.Builder
	var s State
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "> ")
		flags, start := strings.CutPrefix(command, "start ")
		switch {
		case !ok && strings.HasPrefix(line, "  "):
			continue // an answer
		case !ok:
		case start:
			without, bounds, err := parseFlags(flags)
			if err != nil {
				return "", nil, nil, err
			}
			m = New(without, bounds)
			s = m.First()
		case m == nil:
			return "", nil, nil, fmt.Errorf("model: the script begins with %q, not with start", command)
		}
		b.WriteString(line)
		switch {
		case !ok || start:
		case command == "members":
			b.WriteString(m.table(&s))
		case command == "contract":
			fmt.Fprintf(&b, "  broken: %v\n", s.Broken)
		default:
			step, next, err := m.find(&s, command)
			if err != nil {
				return "", m, steps, err
			}
			b.WriteString(m.answer(&s, &next, step))
			s, steps = next, append(steps, step)
		}
	}
	return b.String(), m, steps, nil
}

// find returns the step with this command.
func (m *Model) find(s *State, command string) (step Step, next State, err error) {
	found := false
	m.Next(s, func(n *State, to Step) {
		if !found && m.command(s, to) == command {
			step, next, found = to, *n, true
		}
	})
	if !found {
		return step, next, fmt.Errorf("model: %q: the protocol has no such step there", command)
	}
	return step, next, nil
}

// command is a step from s in the form of its action.
func (m *Model) command(s *State, step Step) string {
	var words []string
	for word := range strings.FieldsSeq(step.Action.Info().Form) {
		name, kind, _ := strings.Cut(word, ":")
		operand, ok := map[string]uint8{"A": step.A, "B": step.B, "C": step.C}[name]
		if ok {
			word = operandText(s, operand, kind)
		}
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func operandText(s *State, operand uint8, kind string) string {
	switch kind {
	case "", "member":
		return s.server(int(operand)).String()
	case "server":
		return Server(operand).String()
	case "cluster":
		return clusterName(operand)
	case "members":
		return numbers(operand)
	case "clock":
		switch c := Clock(operand); {
		case c == SlowClient:
			return "but not for the client"
		case c >= FastMember:
			return fmt.Sprintf("twice for %v", s.server(int(c-FastMember)))
		case c >= SlowMember:
			return fmt.Sprintf("but not for %v", s.server(int(c-SlowMember)))
		}
		return ""
	}
	return fmt.Sprint(operand)
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

func clusterName(c uint8) string {
	if c == 0 {
		return "none"
	}
	return string(rune('A' + c - 1))
}

// answer is the difference that a step made, a line each.
func (m *Model) answer(from, to *State, step Step) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	for x := range m.bounds.Members {
		v, old, now := to.server(x), from.disk(x), to.disk(x)
		switch {
		case from.server(x) != v:
			line("disk %v", v)
			continue
		case step.Action == Vote && x == int(step.A):
		case old.Term != now.Term:
			line("%v: term %d", v, now.Term)
		}
		switch n := m.logs.length(now.Log); {
		case old.Log == now.Log:
		case n > 0 && m.logs.all[now.Log].prefix == old.Log:
			line("%v: entry %d.%d %v", v, m.logs.at(now.Log, n).Term, n, m.logs.at(now.Log, n))
		default:
			line("%v: log %s", v, m.logText(now.Log))
		}
		m.leaseAnswer(line, v, &from.Members[x], &to.Members[x], step)
	}
	for c := range to.Clusters {
		if old, now := from.Clusters[c].Committed, to.Clusters[c].Committed; old != now {
			line("committed: %s", m.logText(now))
		}
	}
	if step.Action == Send || step.Action == Tick && to.Session.Belief != from.Session.Belief {
		line("the client believes itself connected for %d ticks", to.Session.Belief)
	}
	return b.String()
}

// leaseAnswer is the difference that a step made to the lease on a member.
func (m *Model) leaseAnswer(line func(string, ...any), v Server, from, to *Member, step Step) {
	if now := to.Lease.Due; step.Action != Crash && from.Lease.Due != now && now > 0 {
		line("%v: ends the session in %d ticks", v, now-1)
	}
	if now := to.Lease.Confirmed; from.Lease.Confirmed != now && now > 0 {
		line("%v: confirmed %d ticks ago", v, now-1)
	}
}

func (m *Model) logText(id LogID) string {
	var words []string
	for _, e := range m.logs.all[id].entries {
		words = append(words, fmt.Sprintf("%d %v", e.Term, e))
	}
	return strings.Join(words, ", ")
}

// table is the members, a line each.
func (m *Model) table(s *State) string {
	var b strings.Builder
	for x := range m.bounds.Members {
		d := s.disk(x)
		role := [...]string{"follower", "candidate", "leader"}[s.Members[x].Role]
		cluster := ""
		if m.bounds.Blank {
			cluster = "  cluster " + clusterName(s.cluster(x))
		}
		unsynced := ""
		if d.Unsynced > 0 {
			unsynced = fmt.Sprintf(" (%d unsynced)", d.Unsynced)
		}
		fmt.Fprintf(&b, "  %v  %-9s  term %d%s  log %s%s\n", s.server(x), role, d.Term, cluster, m.logText(d.Log),
			unsynced)
	}
	return b.String()
}
