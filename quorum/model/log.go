package model

import "math/bits"

// Server is the identity of a disk: member*Disks + the disk's place in the life of the member.
type Server uint8

// member is the member that the disk is in.
func (v Server) member() int { return int(v) / Disks }

// Set is a set of servers.
type Set uint8

func (s Set) has(v Server) bool { return s&(1<<v) != 0 }

func (s Set) size() int { return bits.OnesCount8(uint8(s)) }

// majority reports whether of is more than half of s.
func (s Set) majority(of Set) bool { return Majority((s & of).size(), s.size()) }

// Kind is the kind of an entry.
type Kind uint8

// The kinds of entries.
const (
	Noop     Kind = iota // the first entry of a leader
	Write                // a client's write
	Config               // the members from here on
	Ending               // the end of the session
	Attach               // the session's next connection
	Restored             // without RestoreInLog: a state that the leader alone has
)

// Entry is an entry of a log.
type Entry struct {
	Term      uint8
	Kind      Kind
	Value     uint8 // of a Write: its number, or command(generation, seq); Ending: the connection
	Voters    Set   // of a Config
	Nonvoters Set   // of a Config
}

// LogID names a log in the table of a Model. Equal logs have equal IDs; 0 is the empty log.
type LogID uint16

// log is a log as the table keeps it, with what is derived from its entries.
type log struct {
	entries []Entry
	prefix  LogID // all entries but the last
	config  int   // index of the newest Config; 0 if there is none
	shape   uint64
	effect  bool    // the last entry takes effect
	session session // after all entries
	ended   bool    // the session has ended
}

// session is the state's knowledge of the session's commands.
type session struct {
	Commands
	twice bool // a command took effect twice, behind a gap, or on an older connection
}

// logs is the table of all logs that an exploration has seen. It grows, and never changes.
type logs struct {
	without Rules
	all     []log
	next    map[appended]LogID
}

type appended struct {
	to    LogID
	entry Entry
}

func newLogs(without Rules) logs {
	empty := log{session: session{Commands: Commands{Generation: 1}}}
	return logs{without: without, all: []log{empty}, next: map[appended]LogID{}}
}

// add returns the log that is id with one more entry.
func (t *logs) add(id LogID, e Entry) LogID {
	key := appended{id, e}
	if next, ok := t.next[key]; ok {
		return next
	}
	old := t.all[id]
	l := log{prefix: id, config: old.config, session: old.session, ended: old.ended,
		shape: mix(old.shape, uint64(e.Term)<<16|uint64(e.Value)<<8|uint64(e.Kind))}
	if l.effect = l.session.apply(e, t.without); l.effect && e.Kind == Ending {
		l.ended = true
	}
	l.entries = append(append(l.entries, old.entries...), e)
	if e.Kind == Config {
		l.config = len(l.entries)
	}
	next := LogID(len(t.all))
	if int(next) != len(t.all) {
		panic(tooManyLogs{})
	}
	t.all = append(t.all, l)
	t.next[key] = next
	return next
}

// apply applies an entry to the session, and reports whether it takes effect: a command that was
// applied is skipped, one behind a gap and one of an older connection are refused.
func (s *session) apply(e Entry, without Rules) (effect bool) {
	switch {
	case e.Kind == Attach:
		s.Commands = Commands{Generation: maxGeneration}
	case e.Kind == Ending:
		return uint64(e.Value) == s.Generation || without.has(EndNamesConnection)
	case e.Kind == Write && e.Value >= command(1, 0):
		turn := s.Turn(uint64(e.Value>>4), uint64(e.Value&15))
		if turn == Next {
			s.Seq++
			break
		}
		effect = without.has([...]Rule{Repeat: DropRepeats, Gap: RefuseGaps, Moved: RefuseMoved}[turn])
		s.twice = s.twice || effect
		return effect
	}
	return true
}

// length is the index of the last entry.
func (t *logs) length(id LogID) int { return len(t.all[id].entries) }

// at is the entry at index, from 1.
func (t *logs) at(id LogID, index int) Entry { return t.all[id].entries[index-1] }

// first returns the first n entries.
func (t *logs) first(id LogID, n int) LogID {
	for t.length(id) > n {
		id = t.all[id].prefix
	}
	return id
}

// common is the length of the longest common prefix.
func (t *logs) common(a, b LogID) int {
	n := min(t.length(a), t.length(b))
	a, b = t.first(a, n), t.first(b, n)
	for a != b {
		a, b = t.all[a].prefix, t.all[b].prefix
		n--
	}
	return n
}

// matches is the length of the longest common prefix as Raft sees it: it compares the terms of the
// entries, and relies on a term having one entry at an index.
func (t *logs) matches(a, b LogID) int {
	n := min(t.length(a), t.length(b))
	x, y := t.all[t.first(a, n)].entries, t.all[t.first(b, n)].entries
	for n > 0 && x[n-1].Term != y[n-1].Term {
		n--
	}
	return n
}

// config is the newest configuration, committed or not.
func (t *logs) config(id LogID) Entry {
	l := &t.all[id]
	if l.config == 0 {
		return Entry{}
	}
	return l.entries[l.config-1]
}

// last is the place of the last entry.
func (t *logs) last(id LogID) Place {
	n := t.length(id)
	if n == 0 {
		return Place{}
	}
	return Place{Index: uint64(n), Term: uint64(t.at(id, n).Term)}
}

// mix folds x into a hash.
func mix(h, x uint64) uint64 {
	hi, lo := bits.Mul64(h^x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo ^ x<<1
}
