package model

import (
	"math"
	"slices"
)

// order gives each member a place; states that differ in the places of their members only are one.
type order [MaxMembers]uint8

// view is the state as it looks with the members in another order.
type view struct {
	place order
	sets  [256]Set
	logs  []int32 // by LogID; -1: not needed yet
}

// views has the view of each order that was needed.
type views map[order]*view

func (m *Model) view(all views, place order) *view {
	if w := all[place]; w != nil {
		return w
	}
	w := &view{place: place}
	for set := range w.sets {
		for v := range Server(maxServers) {
			if Set(set).has(v) {
				w.sets[set] |= 1 << w.server(v)
			}
		}
	}
	all[place] = w
	return w
}

func (w *view) server(v Server) Server {
	if v == nobody {
		return v
	}
	return Server(int(w.place[v.member()])*Disks + int(v)%Disks)
}

// members is a set of members, as bits.
func (w *view) members(bits uint8) (out uint8) {
	for x := range w.place {
		if bits&(1<<x) != 0 {
			out |= 1 << w.place[x]
		}
	}
	return out
}

// log is the log with the configurations that the view shows.
func (w *view) log(m *Model, id LogID) LogID {
	for len(w.logs) < len(m.logs.all) {
		w.logs = append(w.logs, -1)
	}
	if w.logs[id] >= 0 {
		return LogID(w.logs[id])
	}
	var out LogID
	for _, e := range m.logs.all[id].entries {
		e.Voters, e.Nonvoters = w.sets[e.Voters], w.sets[e.Nonvoters]
		out = m.logs.add(out, e)
	}
	w.logs[id] = int32(out)
	return out
}

// Marks of parts that a state may lack, so that none is taken for another.
const (
	hasStood uint64 = 1 << (58 + iota)
	hasAnswered
	hasApplied
	hasSession
	hasLease
)

// hash is a hash of the state as the view shows it.
func (w *view) hash(m *Model, s *State) uint64 {
	n := m.bounds.Members
	var at [MaxMembers]int // by place
	for x, p := range w.place {
		at[p] = x
	}
	h := mix(uint64(s.Entries)|uint64(s.Returns)<<8|uint64(s.Words)<<16|uint64(s.Broken)<<24,
		uint64(w.members(s.Seconds)))
	if s.Session != (Session{}) {
		h = w.session(h, &s.Session)
	}
	for p := range n {
		x := at[p]
		q := &s.Members[x]
		h = mix(h, uint64(q.Disk)|uint64(q.Role)<<8|uint64(w.sets[q.Votes])<<16|uint64(q.Commit)<<24|
			uint64(w.sets[q.Blank])<<32|uint64(w.members(q.Word))<<40|uint64(q.Cluster)<<48|uint64(q.Beat)<<52)
		var acked uint64
		for r := range n {
			for k := range Disks {
				acked = acked<<8 | uint64(q.Acked[at[r]*Disks+k])
			}
		}
		h = mix(h, acked)
		if q.Applied != 0 {
			h = mix(h, hasApplied|uint64(w.log(m, q.Applied)))
		}
		if q.Lease != (Lease{}) {
			h = w.lease(h, &q.Lease)
		}
		for k := range Disks {
			d := &s.Disks[x*Disks+k]
			h = mix(h, uint64(d.Cluster)|uint64(d.Term)<<8|uint64(d.VoteTerm)<<16|uint64(w.server(d.VoteFor))<<24|
				uint64(w.log(m, d.Log))<<32|uint64(d.Unsynced)<<56)
		}
	}
	for c := range s.Clusters {
		k := &s.Clusters[c]
		if k.First == 0 && k.Committed == 0 {
			break
		}
		h = mix(h, uint64(w.log(m, k.First))|uint64(w.log(m, k.Committed))<<16)
		for i := range m.logs.length(k.Committed) {
			h = mix(h, uint64(k.In[i+1]))
		}
		if k.Answered {
			h = mix(h, hasAnswered)
		}
		for t := 2; t <= m.bounds.Terms+1; t++ {
			term := &k.Terms[t]
			h = mix(h, uint64(w.log(m, term.Log))|uint64(w.server(term.Leader))<<32|uint64(term.Snapshot)<<40)
			for p := range n {
				for k := range Disks {
					v := at[p]*Disks + k
					if log := term.Stands[v]; log != 0 || term.Early[v] != 0 {
						h = mix(h, hasStood|uint64(p*Disks+k)<<32|uint64(w.log(m, log))|uint64(term.Early[v])<<40)
					}
				}
			}
		}
	}
	return h
}

// session folds the session into a hash.
func (w *view) session(h uint64, s *Session) uint64 {
	at := uint64(s.At)
	if at > 0 {
		at = uint64(w.place[at-1]) + 1
	}
	h = mix(h, hasSession|at|uint64(s.Belief)<<8|uint64(s.Errors)<<16|uint64(s.Sleeps)<<24|uint64(s.Moves)<<32)
	if s.Ended {
		h = mix(h, hasAnswered)
	}
	for _, n := range s.Sent {
		h = mix(h, uint64(n))
	}
	return h
}

// lease folds a member's part in the lease into a hash.
func (w *view) lease(h uint64, l *Lease) uint64 {
	bits := hasLease | uint64(l.Confirmed) | uint64(l.Due)<<8 | uint64(w.sets[l.Answers])<<16
	bits |= uint64(l.Proposed) << 32
	if l.Under {
		bits |= 1 << 24
	}
	if l.Asleep {
		bits |= 1 << 25
	}
	var contact uint64
	for v, age := range l.Contact {
		contact |= uint64(age) << (8 * w.server(Server(v)))
	}
	return mix(mix(h, bits), contact)
}

// looks is a hash of a member by itself, which does not depend on the numbers of the members.
func (m *Model) looks(s *State, x int) uint64 {
	q := &s.Members[x]
	h := mix(uint64(s.Seconds>>x&1), uint64(q.Disk)|uint64(q.Role)<<8|uint64(q.Votes.size())<<16|uint64(q.Commit)<<24|
		uint64(q.Lease.Confirmed)<<32|uint64(q.Lease.Due)<<40)
	if int(s.Session.At) == x+1 {
		h = mix(h, 1)
	}
	for k := range Disks {
		d := &s.Disks[x*Disks+k]
		if *d == (Disk{VoteFor: nobody}) {
			continue
		}
		bits := uint64(d.Cluster) | uint64(d.Term)<<8 | uint64(d.VoteTerm)<<16
		if d.VoteFor.member() == x {
			bits |= 1 << 24
		}
		h = mix(mix(h, bits), m.logs.all[d.Log].shape)
	}
	for t := 2; t <= m.bounds.Terms+1; t++ {
		if term := &s.Clusters[0].Terms[t]; term.Stands[s.server(x)] != 0 {
			h = mix(h, uint64(t))
		}
	}
	return h
}

// fixed is the number of members that no symmetry exchanges: the one that begins the cluster, or
// all where the operator's word may change which one that is.
func (m *Model) fixed() int {
	switch {
	case m.asymmetric || m.bounds.Import > 0 || m.bounds.Blank && m.bounds.Voters < m.bounds.Members:
		return m.bounds.Members
	case !m.bounds.Blank || m.without(EveryVoter) && m.bounds.Words == 0:
		return 0
	case m.bounds.Words == 0:
		return 1
	}
	return m.bounds.Members
}

// fingerprint is equal for states that differ in the numbers of their members only.
func (m *Model) fingerprint(all views, s *State) uint64 {
	n, fixed := m.bounds.Members, m.fixed()
	var looks [MaxMembers]uint64
	var sorted [MaxMembers]int
	for x := range n {
		sorted[x] = x
		looks[x] = m.looks(s, x)
	}
	slices.SortFunc(sorted[fixed:n], func(x, y int) int {
		switch {
		case looks[x] < looks[y]:
			return -1
		case looks[x] > looks[y]:
			return 1
		}
		return x - y
	})
	least := uint64(math.MaxUint64)
	var try func(i int)
	try = func(i int) {
		if i == n {
			var place order
			for p := range MaxMembers {
				place[p] = uint8(p)
			}
			for p, x := range sorted[:n] {
				place[x] = uint8(p)
			}
			least = min(least, m.view(all, place).hash(m, s))
			return
		}
		for j := i; j < n; j++ {
			if j > i && (i < fixed || looks[sorted[j]] != looks[sorted[i]]) {
				break
			}
			sorted[i], sorted[j] = sorted[j], sorted[i]
			try(i + 1)
			sorted[i], sorted[j] = sorted[j], sorted[i]
		}
	}
	try(0)
	return least
}
