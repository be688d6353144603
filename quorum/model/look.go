package model

// The parts of a state that other packages look at, beside its exported fields.

// Bounds are the bounds of the model.
func (m *Model) Bounds() Bounds { return m.bounds }

// Entries is the entries of a log, which belong to the model.
func (m *Model) Entries(id LogID) []Entry { return m.logs.all[id].entries }

// Server is the disk that member x has now.
func (s *State) Server(x int) Server { return s.server(x) }

// Cluster is the cluster that member x belongs to; 0: none.
func (s *State) Cluster(x int) uint8 { return s.cluster(x) }

// Servers is the servers of a set, in their order.
func (s Set) Servers() (list []Server) {
	for v := range Server(maxServers) {
		if s.has(v) {
			list = append(list, v)
		}
	}
	return list
}

// Without reports whether the protocol lacks a rule.
func (m *Model) Without(r Rule) bool { return m.without(r) }

// TakesEffect reports whether the state executes the entry at an index of a log.
func (m *Model) TakesEffect(id LogID, index int) bool {
	return m.logs.all[m.logs.first(id, index)].effect
}

// Session is the state's knowledge of the session's commands behind a log.
func (m *Model) Session(id LogID) Commands { return m.logs.all[id].session.Commands }
