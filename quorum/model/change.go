package model

// changes has the changes of the configuration by the leader x, one voter in an entry, each after
// the one before is committed. It takes in a disk that a member has now and the configuration
// lacks, in three entries, and with Bounds.Remove it removes voters.
func (m *Model) changes(s *State, x int) {
	p, d := &s.Members[x], s.disk(x)
	config, index := m.logs.config(d.Log), m.logs.all[d.Log].config
	settled := p.Commit > 0 || m.without(SettledChanges)
	stable := index <= int(p.Commit) || config.Term < d.Term && settled || m.without(OneChange)
	if !settled || !stable || m.configurations(d.Log) >= m.bounds.Changes {
		return
	}
	for y := range m.bounds.Members {
		v := s.server(y)
		if y == x {
			continue
		}
		if m.bounds.Remove && config.Voters.has(v) {
			next := Entry{Kind: Config, Voters: config.Voters &^ (1 << v), Nonvoters: config.Nonvoters}
			n := m.from(s)
			m.append(s, n, x, next, Step{Action: Remove, B: uint8(v)})
		}
		_, counted := m.identity(v, config.Voters, m.without(DiskIDs))
		if counted && m.others(config.Voters|config.Nonvoters, v) == 0 {
			continue
		}
		if c := s.cluster(y); c == 0 || c == s.cluster(x) {
			m.takeIn(s, x, v, config)
		}
	}
}

// others is the other disks of v's member in the set.
func (m *Model) others(in Set, v Server) Set {
	return in & (Set(1<<Disks-1) << (v.member() * Disks)) &^ (1 << v)
}

// configurations counts the configurations behind the first.
func (m *Model) configurations(log LogID) int {
	n := -1
	for _, e := range m.logs.all[log].entries {
		if e.Kind == Config {
			n++
		}
	}
	return n
}

// takeIn has the leader x take the next step for v, the disk that a member has now.
func (m *Model) takeIn(s *State, x int, v Server, config Entry) {
	one := Set(1) << v
	old := m.others(config.Voters|config.Nonvoters, v)
	vote := config.Voters.has(v)
	caughtUp := s.Members[x].Acked[v] >= max(s.Members[x].Commit, 1) || m.without(CaughtUpVoters)
	next := Entry{Kind: Config, Voters: config.Voters, Nonvoters: config.Nonvoters}
	step := Step{Action: Add, B: uint8(v)}
	switch {
	case !vote && !config.Nonvoters.has(v):
		next.Nonvoters |= one
	case !vote && !caughtUp:
		return
	case old != 0 && m.without(OneVoter):
		step.Action, step.C = Swap, uint8(lowest(old))
		next.Voters, next.Nonvoters = next.Voters&^old|one, next.Nonvoters&^old&^one
	case old != 0 && (vote || !m.without(OldDiskFirst)):
		w := lowest(old)
		step.Action, step.B = Remove, uint8(w)
		next.Voters, next.Nonvoters = next.Voters&^(1<<w), next.Nonvoters&^(1<<w)
	default:
		step.Action = Promote
		next.Voters, next.Nonvoters = next.Voters|one, next.Nonvoters&^one
	}
	n := m.from(s)
	m.append(s, n, x, next, step)
}

// lowest is the server of a set with the lowest number.
func lowest(s Set) Server {
	v := Server(0)
	for !s.has(v) {
		v++
	}
	return v
}
