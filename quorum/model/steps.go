package model

// Model is the protocol with its rules and bounds.
type Model struct {
	rules  Rules
	bounds Bounds
	logs   logs
	emit   func(State, Step)

	asymmetric bool // for tests: states that differ in the members' numbers are different
}

// New returns the protocol with these rules, in these bounds.
func New(rules Rules, bounds Bounds) *Model {
	rules.VotesByNumber = rules.VotesByNumber || rules.ByNumber
	rules.AcksByNumber = rules.AcksByNumber || rules.ByNumber
	return &Model{rules: rules, bounds: bounds, logs: newLogs()}
}

// First is the state in which the exploration begins.
func (m *Model) First() State {
	s := firstState()
	if m.bounds.Blank {
		return s
	}
	var all Set
	for x := range m.bounds.Members {
		all |= 1 << s.server(x)
	}
	s.Clusters[0].First = m.logs.add(0, Entry{Term: 1, Kind: Config, Voters: all})
	for x := range m.bounds.Members {
		s.Disks[s.server(x)] = Disk{Cluster: 1, Term: 1, VoteFor: nobody, Log: s.Clusters[0].First}
	}
	return s
}

// Action is the kind of a step.
type Action uint8

// The actions. Each is one transaction of one member, or one of the operator or a client.
const (
	Crash   Action = iota // of A: its volatile state is gone
	Replace               // the disk of A, by a blank one
	Return                // of A's other disk
	Damage                // Rules.SetBack: A's disk loses its newest entry, and its vote
	Say                   // the operator's word to A: the members B (bits) never worked
	Ask                   // A asks B, which answers as blank
	Birth                 // A begins a cluster
	Join                  // A's blank disk joins cluster B
	Stand                 // A begins an election
	Adopt                 // A takes over term B, and does nothing else
	Half                  // A saves the term B of a vote, crashes, and has not saved the candidate
	Vote                  // A votes in term B for server C
	Lead                  // A is elected, and appends the first entry of its term
	Store                 // A stores the next entry of the leader of term B, and acknowledges it
	Cut                   // A removes the entries that the leader of term B lacks, and crashes
	Ack                   // A acknowledges entries that it has to the leader of term B
	Commit                // A, a leader, commits up to B
	Propose               // a client's write to A, a leader
	Add                   // A, a leader, adds server B as a nonvoter
	Remove                // A, a leader, removes server B
	Promote               // A, a leader, gives server B a vote
	Swap                  // A, a leader, removes server C and gives B a vote in one entry
)

// Step is an action with its operands.
type Step struct {
	Action  Action
	A, B, C uint8
}

// Next calls emit with each successor of s, and the step to it.
func (m *Model) Next(s *State, emit func(State, Step)) {
	m.emit = emit
	for x := range m.bounds.Members {
		m.faults(s, x)
		if m.blank(s, x) {
			m.birth(s, x)
		}
		if s.cluster(x) == 0 {
			m.join(s, x)
		} else {
			m.elections(s, x)
			m.entries(s, x)
		}
		if s.Members[x].Role == Leader {
			m.leader(s, x)
		}
	}
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

// blank reports whether member x answers as blank.
func (m *Model) blank(s *State, x int) bool {
	d := &s.Disks[s.server(x)]
	return d.Log == 0 && s.cluster(x) == 0
}

// faults has the crashes and the changes of disks.
func (m *Model) faults(s *State, x int) {
	p := &s.Members[x]
	if *p != (Member{Disk: p.Disk}) {
		n := *s
		n.forget(x)
		m.emit(n, Step{Action: Crash, A: uint8(x)})
	}
	second := s.Seconds&(1<<x) != 0
	if !second && Set(s.Seconds).size() < m.bounds.Replaced && m.mayLose(s, x) {
		n := *s
		if m.bounds.Returns == 0 {
			n.Disks[n.server(x)] = Disk{VoteFor: nobody} // nobody will ever see it again
		}
		n.Seconds |= 1 << x
		n.Members[x].Disk = 1
		n.forget(x)
		m.emit(n, Step{Action: Replace, A: uint8(x)})
	}
	if second && int(s.Returns) < m.bounds.Returns && m.mayLose(s, x) {
		n := *s
		n.Returns++
		n.Members[x].Disk = 1 - n.Members[x].Disk
		n.forget(x)
		m.emit(n, Step{Action: Return, A: uint8(x)})
	}
	if d := &s.Disks[s.server(x)]; m.rules.SetBack && m.logs.length(d.Log) > 1 {
		n := *s
		n.forget(x)
		e := &n.Disks[n.server(x)]
		e.Log = m.logs.all[d.Log].prefix
		e.Term, e.VoteTerm, e.VoteFor = m.logs.at(e.Log, m.logs.length(e.Log)).Term, 0, nobody
		m.emit(n, Step{Action: Damage, A: uint8(x)})
	}
}

// birth has the steps of a blank member x before there is a cluster.
func (m *Model) birth(s *State, x int) {
	if !m.bounds.Blank {
		return
	}
	m.say(s, x)
	p := &s.Members[x]
	required := (Set(1)<<m.bounds.Members - 1) &^ Set(p.Word)
	if !m.rules.BirthByMajority && required&(1<<x-1) != 0 {
		return // a member with a lower number begins the cluster
	}
	voters := Set(1) << s.server(x)
	for y := range m.bounds.Members {
		of := Set(1<<Disks-1) << (y * Disks)
		voters |= p.Blank & of
		v := Set(1) << s.server(y)
		refused := s.Members[y].Word&(1<<x) != 0 && !m.rules.SilentWord
		if y == x || !required.has(Server(y)) || !m.blank(s, y) || refused || p.Blank&v != 0 {
			continue
		}
		n := *s
		n.Members[x].Blank = p.Blank&^of | v
		m.emit(n, Step{Action: Ask, A: uint8(x), B: uint8(y)})
	}
	need := required.size()
	if m.rules.BirthByMajority {
		need = m.bounds.Members/2 + 1
	}
	if voters.size() < need {
		return
	}
	if m.rules.ByNumber {
		voters = 0
		for y := range m.bounds.Members {
			voters |= 1 << (y * Disks)
		}
	}
	n := *s
	first := m.logs.add(0, Entry{Term: 1, Kind: Config, Voters: voters})
	for c := range n.Clusters {
		if k := &n.Clusters[c]; k.First == 0 || k.First == first {
			k.First = first
			n.forget(x)
			d := &n.Disks[n.server(x)]
			d.Cluster, d.Term, d.Log = uint8(c+1), max(d.Term, 1), first
			m.emit(n, Step{Action: Birth, A: uint8(x), B: uint8(c + 1)})
			return
		}
	}
}

// say has the operator's words to member x.
func (m *Model) say(s *State, x int) {
	if int(s.Words) >= m.bounds.Words || s.Members[x].Word != 0 {
		return
	}
	for word := Set(1); word < 1<<m.bounds.Members; word++ {
		if word.has(Server(x)) || !m.wordIsTrue(s, word) {
			continue
		}
		n := *s
		n.Words++
		n.Members[x].Word, n.Members[x].Blank = uint8(word), 0
		m.emit(n, Step{Action: Say, A: uint8(x), B: uint8(word)})
	}
}

// wordIsTrue reports whether the members of word never worked, and are not running: a process that
// is stopped has forgotten which blank disks have answered it.
func (m *Model) wordIsTrue(s *State, word Set) bool {
	for y := range m.bounds.Members {
		if !word.has(Server(y)) {
			continue
		}
		for k := range Disks {
			if d := &s.Disks[y*Disks+k]; (d.Cluster != 0 || d.Log != 0) && !m.rules.FalseWord {
				return false
			}
		}
		if p := &s.Members[y]; (p.Blank != 0 || p.Word != 0) && !m.rules.RunningWord {
			return false
		}
	}
	return true
}

// join has the joins of the blank disk of member x: a request of a cluster, to this very disk, has
// arrived. Answering it is another transaction.
func (m *Model) join(s *State, x int) {
	v := s.server(x)
	for c := range s.Clusters {
		if !m.addressed(s, uint8(c+1), v) {
			continue
		}
		n := *s
		n.Members[x].Blank, n.Members[x].Word = 0, 0
		if m.rules.VolatileJoin {
			n.Members[x].Cluster = uint8(c + 1)
		} else {
			n.Disks[v].Cluster = uint8(c + 1)
		}
		m.emit(n, Step{Action: Join, A: uint8(x), B: uint8(c + 1)})
	}
}

// addressed reports whether any request of cluster c was ever sent to v.
func (m *Model) addressed(s *State, c uint8, v Server) bool {
	for t := range s.Clusters[c-1].Terms {
		term := &s.Clusters[c-1].Terms[t]
		if m.sent(term, uint8(t), v) > 0 {
			return true
		}
		for w, log := range term.Stands {
			_, ok := m.identity(v, m.logs.config(log).Voters, m.rules.VotesByNumber)
			if ok && Server(w) != v && !(m.rules.VotesByNumber && w/Disks == v.member()) {
				return true
			}
		}
	}
	return false
}

// sent is the number of entries that the leader of a term may have sent to v: those up to the
// configuration that removes it.
func (m *Model) sent(term *Term, t uint8, v Server) int {
	if term.Leader != nobody && m.rules.AcksByNumber && term.Leader.member() == v.member() {
		return 0 // no number sends to itself
	}
	log := term.Log
	for log != 0 {
		l := &m.logs.all[log]
		e := m.logs.config(log)
		if _, ok := m.identity(v, e.Voters|e.Nonvoters, m.rules.AcksByNumber); ok {
			return len(l.entries)
		}
		if l.config == 0 || e.Term != t {
			return 0 // the leader began with this configuration
		}
		log = m.logs.first(log, l.config-1)
	}
	return 0
}

// elections has the steps of member x that have to do with votes.
func (m *Model) elections(s *State, x int) {
	v, c, p := s.server(x), s.cluster(x), &s.Members[x]
	d := &s.Disks[v]
	config := m.logs.config(d.Log)
	me, voter := m.identity(v, config.Voters, m.rules.VotesByNumber)
	if voter && p.Role != Leader && int(d.Term) <= m.bounds.Terms {
		n := *s
		n.follow(x, d.Term+1)
		e := &n.Disks[v]
		e.VoteTerm, e.VoteFor = e.Term, v
		n.Members[x].Role, n.Members[x].Votes = Candidate, 1<<me
		n.Clusters[c-1].Terms[e.Term].Stands[v] = d.Log
		m.emit(n, Step{Action: Stand, A: uint8(x)})
	}
	if p.Role == Candidate && config.Voters.majority(p.Votes) {
		m.elected(s, x)
	}
	for t := d.Term; int(t) <= m.bounds.Terms+1; t++ {
		for w, log := range s.Clusters[c-1].Terms[t].Stands {
			if log != 0 && Server(w) != v {
				m.vote(s, x, t, Server(w), log)
			}
		}
	}
}

// elected makes member x the leader of its term.
func (m *Model) elected(s *State, x int) {
	n := *s
	v := n.server(x)
	d, p := &n.Disks[v], &n.Members[x]
	d.Log = m.logs.add(d.Log, Entry{Term: d.Term, Kind: Noop})
	p.Role, p.Votes = Leader, 0
	m.acknowledge(&n, x, v, m.logs.length(d.Log))
	m.led(&n, n.cluster(x), d.Term, v, d.Log)
	m.emit(n, Step{Action: Lead, A: uint8(x)})
}

// vote has the steps of member x when w, with this log, asks for its vote in term t, which is not
// below its own.
func (m *Model) vote(s *State, x int, t uint8, w Server, log LogID) {
	v, p := s.server(x), &s.Members[x]
	d := &s.Disks[v]
	id, sent := m.identity(v, m.logs.config(log).Voters, m.rules.VotesByNumber)
	if m.rules.VotesByNumber && w.member() == x {
		return // no number sends to itself
	}
	config := m.logs.config(d.Log)
	_, voter := m.identity(w, config.Voters, m.rules.ByNumber)
	_, known := m.identity(w, config.Voters|config.Nonvoters, m.rules.ByNumber)
	if !sent || config.Kind == Config && !known && !m.rules.AnyCandidate {
		return // it refuses, and keeps its term
	}
	if t > d.Term {
		n := *s
		n.follow(x, t)
		m.emit(n, Step{Action: Adopt, A: uint8(x), B: t})
	}
	again := d.VoteTerm == t && d.VoteFor == w
	fresh := d.VoteTerm < t && m.logs.last(log) >= m.logs.last(d.Log)
	if config.Kind == Config && !voter && !m.rules.AnyCandidate || p.Role == Leader && t == d.Term || !again && !fresh {
		return
	}
	n := *s
	n.follow(x, t)
	e := &n.Disks[v]
	e.VoteTerm, e.VoteFor = t, w
	if q := &n.Members[w.member()]; n.server(w.member()) == w && q.Role == Candidate && n.Disks[w].Term == t {
		q.Votes |= 1 << id
	}
	m.emit(n, Step{Action: Vote, A: uint8(x), B: t, C: uint8(w)})
	if m.rules.HalfVote && d.VoteTerm < t {
		n = *s
		n.follow(x, t)
		n.forget(x)
		n.Disks[v].VoteTerm = t
		m.emit(n, Step{Action: Half, A: uint8(x), B: t})
	}
}

// acknowledge records at the leader x that v has the first n entries of its log.
func (m *Model) acknowledge(s *State, x int, v Server, n int) {
	e := m.logs.config(s.Disks[s.server(x)].Log)
	if id, ok := m.identity(v, e.Voters|e.Nonvoters, m.rules.AcksByNumber); ok {
		p := &s.Members[x]
		p.Acked[id] = max(p.Acked[id], uint8(n))
	}
}

// entries has the steps of member x when entries of a leader arrive. A request with several entries
// is one step for each: a crash may leave any number of them, and an acknowledgement of fewer
// entries promises less.
func (m *Model) entries(s *State, x int) {
	v, c := s.server(x), s.cluster(x)
	d := &s.Disks[v]
	for t := uint8(2); int(t) <= m.bounds.Terms+1; t++ {
		term := &s.Clusters[c-1].Terms[t]
		if t < d.Term && !m.rules.FallingTerm || term.Leader == nobody || term.Leader == v {
			continue
		}
		sent := m.sent(term, t, v)
		if sent == 0 || s.Members[x].Role == Leader && t == d.Term {
			continue
		}
		log := m.logs.first(term.Log, sent)
		same := m.logs.common(d.Log, log)
		m.receive(s, x, t, d.Log, same, Ack)
		if same < sent {
			m.receive(s, x, t, m.logs.first(log, same+1), same+1, Store)
		}
		if same < min(sent, m.logs.length(d.Log)) {
			n := *s
			n.follow(x, t)
			n.forget(x)
			n.Disks[v].Log = m.logs.first(d.Log, same)
			m.emit(n, Step{Action: Cut, A: uint8(x), B: t})
		}
	}
}

// receive has member x keep log, and acknowledge the first n entries to the leader of term t.
func (m *Model) receive(s *State, x int, t uint8, log LogID, n int, action Action) {
	next := *s
	v := next.server(x)
	next.follow(x, t)
	next.Disks[v].Log = log
	w := next.Clusters[next.cluster(x)-1].Terms[t].Leader
	l := w.member()
	if next.server(l) == w && next.Members[l].Role == Leader && next.Disks[w].Term == t {
		m.acknowledge(&next, l, v, n)
	}
	if next != *s {
		m.emit(next, Step{Action: action, A: uint8(x), B: t})
	}
}

// leader has the steps of the leader x.
func (m *Model) leader(s *State, x int) {
	p, d := &s.Members[x], &s.Disks[s.server(x)]
	config := m.logs.config(d.Log)
	for i := m.logs.length(d.Log); i > int(p.Commit); i-- {
		var have Set
		for v, n := range p.Acked {
			if int(n) >= i {
				have |= 1 << v
			}
		}
		e := m.logs.at(d.Log, i)
		if e.Term != d.Term || !config.Voters.majority(have) && !(m.rules.LonelyChange && e.Kind == Config) {
			continue
		}
		n := *s
		n.Members[x].Commit = uint8(i)
		m.committed(&n, n.cluster(x), d.Term, m.logs.first(d.Log, i))
		m.emit(n, Step{Action: Commit, A: uint8(x), B: uint8(i)})
		break
	}
	if int(s.Writes) < m.bounds.Writes {
		n := *s
		n.Writes++
		m.append(&n, x, Entry{Kind: Write, Value: n.Writes}, Step{Action: Propose})
	}
	m.heal(s, x)
}

// append has the leader x append an entry of its term.
func (m *Model) append(n *State, x int, e Entry, step Step) {
	v := n.server(x)
	d := &n.Disks[v]
	if m.logs.length(d.Log) == maxLog {
		panic("model: the bounds need longer logs")
	}
	e.Term = d.Term
	d.Log = m.logs.add(d.Log, e)
	if term := &n.Clusters[n.cluster(x)-1].Terms[d.Term]; term.Leader == v {
		term.Log = d.Log
	}
	m.acknowledge(n, x, v, m.logs.length(d.Log))
	step.A = uint8(x)
	m.emit(*n, step)
}

// heal has the changes of members by the leader x: it takes in a disk that is in no configuration,
// in three entries, each after the one before is committed.
func (m *Model) heal(s *State, x int) {
	p, d := &s.Members[x], &s.Disks[s.server(x)]
	config, index := m.logs.config(d.Log), m.logs.all[d.Log].config
	settled := p.Commit > 0 || m.rules.UnsettledChange
	stable := index <= int(p.Commit) || config.Term < d.Term && settled || m.rules.HastyChange
	if !settled || !stable || m.changes(d.Log) >= m.bounds.Changes {
		return
	}
	for y := range m.bounds.Members {
		v := s.server(y)
		if _, ok := m.identity(v, config.Voters, m.rules.ByNumber); y == x || ok &&
			m.others(config.Voters|config.Nonvoters, v) == 0 {
			continue
		}
		if c := s.cluster(y); c == 0 || c == s.cluster(x) {
			m.change(s, x, v, config)
		}
	}
}

// others is the other disks of v's member in the set.
func (m *Model) others(in Set, v Server) Set {
	return in & (Set(1<<Disks-1) << (v.member() * Disks)) &^ (1 << v)
}

// changes counts the configurations behind the first.
func (m *Model) changes(log LogID) int {
	n := -1
	for _, e := range m.logs.all[log].entries {
		if e.Kind == Config {
			n++
		}
	}
	return n
}

// change has the leader x take the next change for v, the disk that a member has now.
func (m *Model) change(s *State, x int, v Server, config Entry) {
	one := Set(1) << v
	old := m.others(config.Voters|config.Nonvoters, v)
	vote := config.Voters.has(v)
	caughtUp := s.Members[x].Acked[v] >= max(s.Members[x].Commit, 1) || m.rules.PromoteEmpty
	next := Entry{Kind: Config, Voters: config.Voters, Nonvoters: config.Nonvoters}
	step := Step{Action: Add, B: uint8(v)}
	switch {
	case !vote && !config.Nonvoters.has(v):
		next.Nonvoters |= one
	case !vote && !caughtUp:
		return
	case old != 0 && m.rules.SkipNonvoter:
		step.Action, step.C = Swap, uint8(lowest(old))
		next.Voters, next.Nonvoters = next.Voters&^old|one, next.Nonvoters&^old&^one
	case old != 0 && (vote || !m.rules.PromoteFirst):
		w := lowest(old)
		step.Action, step.B = Remove, uint8(w)
		next.Voters, next.Nonvoters = next.Voters&^(1<<w), next.Nonvoters&^(1<<w)
	default:
		step.Action = Promote
		next.Voters, next.Nonvoters = next.Voters|one, next.Nonvoters&^one
	}
	n := *s
	m.append(&n, x, next, step)
}

// lowest is the server of a set with the lowest number.
func lowest(s Set) Server {
	v := Server(0)
	for !s.has(v) {
		v++
	}
	return v
}
