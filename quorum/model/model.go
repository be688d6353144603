package model

// Model is the protocol without some rules, in some bounds.
type Model struct {
	rules  Rules
	bounds Bounds
	logs   logs
	visit  func(*State, Step)
	next   State // the successor that is being made

	asymmetric bool // for tests: states that differ in the members' numbers are different
}

// New returns the protocol without these rules, in these bounds.
func New(without Rules, bounds Bounds) *Model {
	if without.has(DiskIDs) {
		without |= Without(DiskInVotes, DiskInAcks)
	}
	if bounds.Voters == 0 {
		bounds.Voters = bounds.Members
	}
	return &Model{rules: without, bounds: bounds, logs: newLogs(without)}
}

// without reports whether the protocol lacks a rule.
func (m *Model) without(r Rule) bool { return m.rules.has(r) }

// First is the state in which the exploration begins.
func (m *Model) First() State { return m.Begin(func(_, _ *State, _ Step) {}) }

// Begin is First. It visits the steps to the first state, of which there are some with Bounds.Led.
func (m *Model) Begin(visit func(s, n *State, step Step)) State {
	s := firstState()
	if m.bounds.Blank {
		return s
	}
	var voters Set
	for x := range m.bounds.Voters {
		voters |= 1 << s.server(x)
	}
	s.Clusters[0].First = m.logs.add(0, Entry{Term: 1, Kind: Config, Voters: voters})
	for x := range m.bounds.Voters {
		s.Disks[s.server(x)] = Disk{Cluster: 1, Term: 1, VoteFor: nobody, Log: s.Clusters[0].First}
	}
	if m.bounds.Led {
		m.lead(&s, visit)
	}
	return s
}

// lead has the first member elected in term 2, and its first entry stored by all voters.
func (m *Model) lead(s *State, visit func(s, n *State, step Step)) {
	script := []Step{{Action: Stand}}
	for x := 1; x < m.bounds.Voters; x++ {
		script = append(script, Step{Action: Vote, A: uint8(x), B: 2})
	}
	script = append(script, Step{Action: Lead})
	if m.bounds.Parallel {
		script = append(script, Step{Action: Flush})
	}
	for x := 1; x < m.bounds.Voters; x++ {
		script = append(script, Step{Action: Store, A: uint8(x), B: 2})
	}
	script = append(script, Step{Action: Commit, B: 2})
	s.Session.At = 1 // for these steps
	for _, step := range script {
		next, ok := m.Take(s, step)
		if !ok {
			panic("model: the protocol has no step " + m.command(s, step))
		}
		visit(s, &next, step)
		*s = next
	}
	s.Session.At = 0
}

// Next calls visit with each successor of s, and the step to it. Each mechanism adds its steps; one
// that the bounds switch off has none. The successor is valid during the call.
func (m *Model) Next(s *State, visit func(s *State, step Step)) {
	m.visit = visit
	if m.connects(s) {
		return
	}
	m.time(s)
	m.issue(s)
	for x := range m.bounds.Members {
		if m.asleep(s, x) {
			continue
		}
		m.faults(s, x)
		m.birth(s, x)
		if s.cluster(x) == 0 {
			m.join(s, x)
			continue
		}
		m.elections(s, x)
		m.entries(s, x)
		m.notices(s, x)
		m.beats(s, x)
		m.leases(s, x)
		m.snapshots(s, x)
		if s.Members[x].Role == Leader {
			m.leader(s, x)
			m.commands(s, x)
			m.changes(s, x)
		}
	}
}

// from begins a successor of s. There is one at a time: it ends with emit.
func (m *Model) from(s *State) *State {
	m.next = *s
	return &m.next
}

// emit checks the invariants that compare a state with the one before, and visits the successor.
func (m *Model) emit(s, n *State, step Step) {
	m.compare(s, n, step)
	m.visit(n, step)
}

// config is the configuration by which member x counts votes and acknowledgements: the newest in
// its log, committed or not.
func (m *Model) config(s *State, x int) Entry {
	return m.known(s, x, s.disk(x).Log, int(s.Members[x].Commit))
}

// known is the configuration by which a member of the cluster of x counts, with this log. Without
// NewestConfiguration it is the newest up to the commit index that it knows, which for a follower
// may be none.
func (m *Model) known(s *State, x int, log LogID, commit int) Entry {
	if !m.without(NewestConfiguration) {
		return m.logs.config(log)
	}
	first := m.logs.length(s.Clusters[s.cluster(x)-1].First)
	return m.logs.config(m.logs.first(log, max(first, commit)))
}

// identity is the server of the set that v counts as, if it counts as one.
func (m *Model) identity(v Server, in Set, byNumber bool) (Server, bool) {
	if in.has(v) {
		return v, true
	}
	for k := range Disks {
		if w := Server(v.member()*Disks + k); byNumber && in.has(w) {
			return w, true
		}
	}
	return 0, false
}
