package trace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
)

const a, b, c raft.ServerID = "1-000000000000000a", "2-000000000000000b", "3-000000000000000c"

var (
	all   = []raft.ServerID{a, b, c}
	first = Entry{Place: Place{1, 1}, Digest: 1, Voters: all}
)

// entry is one that changes nothing. Its content follows from its place.
func entry(term, index uint64) Entry {
	return Entry{Place: Place{index, term}, Digest: 10*term + index}
}

func start(on raft.ServerID) Event { return Event{On: on, Kind: Started} }

func stored(on raft.ServerID, entries ...Entry) Event {
	return Event{On: on, Kind: Stored, Entries: entries}
}

func saveTerm(on raft.ServerID, term uint64) Event { return Event{On: on, Kind: SavedTerm, Term: term} }

func vote(on raft.ServerID, term uint64, of raft.ServerID) Event {
	return Event{On: on, Kind: SavedVote, Term: term, Of: of}
}

func apply(on raft.ServerID, term, index uint64) Event {
	return Event{On: on, Kind: Applied, Last: Place{index, term}}
}

// executed is the entry 2.3 of the leader a with these commands, which the leader applies after
// 4 s.
func executed(commands ...Command) []Event {
	e := apply(a, 2, 3)
	for i := range commands {
		commands[i].Index, commands[i].Session = 3, 7
	}
	e.At, e.Commands = 4*time.Second, commands
	written := append([]Event{stored(a, entry(2, 3))}, sent(b, 2, a, Place{2, 2}, entry(2, 3))...)
	for i := range written {
		written[i].At = 3 * time.Second
	}
	return append(written, e)
}

// told is bytes to the client of session 7, who believes in it for a second from then on.
func told(on raft.ServerID, at time.Duration, generation uint64) Event {
	return Event{On: on, Kind: Sent, At: at, Session: 7, Generation: generation, Belief: time.Second}
}

// reply is a frame with this header.
func reply(xid wire.Xid, zxid wire.Zxid) Frame { return Frame{Xid: xid, Zxid: zxid} }

// called is a request of the client of session 7, over the first connection, to the member b.
func called(op wire.Op, xid wire.Xid, w *wire.SetWatchesRequest) Event {
	return Event{On: b, Kind: Called, At: 4 * time.Second, Session: 7, Generation: 1, Call: &Call{xid, op, w}}
}

// answered is frames to the client of session 7, over the first connection, behind its requests for
// the replies.
func answered(on raft.ServerID, frames ...Frame) (events []Event) {
	for _, f := range frames {
		if f.Xid == wire.XidNotification || f.Xid == wire.XidPing {
			continue
		}
		e := called(wire.OpGetData, f.Xid, nil)
		e.On = on
		events = append(events, e)
	}
	return append(events, framed(on, frames...))
}

// framed is frames to the client of session 7, over the first connection.
func framed(on raft.ServerID, frames ...Frame) Event {
	e := told(on, 4*time.Second, 1)
	e.Frames = frames
	return e
}

// done is the entry 2.2 with a command, as a member executes it.
func done(on raft.ServerID, c Command) Event {
	c.Index, c.Session, c.Generation = 2, 7, 1
	e := apply(on, 2, 2)
	e.Commands = []Command{c}
	return e
}

// replaced is a state that a snapshot has replaced, by the one with a zxid.
func replaced(on raft.ServerID, zxid wire.Zxid) []Event {
	ask := request(on, Install, 2, a, Place{2, 2})
	return []Event{saveTerm(on, 2), ask, {On: on, Kind: Restored, Zxid: zxid}, yes(ask)}
}

// request is one of raft. Its number follows from its operands.
func request(on raft.ServerID, kind Request, term uint64, of raft.ServerID, last Place, entries ...Entry) Event {
	number := term*1000 + last.Index*10 + uint64(len(entries))
	return Event{On: on, Kind: Asked, Number: number, Request: kind, Term: term, Of: of, Last: last, Entries: entries}
}

// yes is a positive answer to a request.
func yes(to Event) Event {
	return Event{On: to.On, Kind: Answered, Number: to.Number, Term: to.Term, OK: true}
}

// granted is the vote of a member, with the request for it.
func granted(on raft.ServerID, term uint64, of raft.ServerID, last Place) []Event {
	ask := request(on, Vote, term, of, last)
	return []Event{ask, saveTerm(on, term), vote(on, term, of), yes(ask)}
}

// stands is a candidate that votes for itself.
func stands(on raft.ServerID, term uint64) []Event {
	return []Event{saveTerm(on, term), vote(on, term, on)}
}

// sent is entries of a leader that a member stores.
func sent(on raft.ServerID, term uint64, of raft.ServerID, last Place, entries ...Entry) []Event {
	ask := request(on, Append, term, of, last, entries...)
	return []Event{ask, stored(on, entries...), yes(ask)}
}

// begun is a cluster of three members, of whom a is elected in term 2 by b, and commits its first
// entry with it.
func begun() []Event {
	return slices.Concat(
		[]Event{start(a), start(b), start(c), stored(a, first), stored(b, first), stored(c, first)},
		stands(a, 2), granted(b, 2, a, first.Place),
		[]Event{stored(a, entry(2, 2))}, sent(b, 2, a, first.Place, entry(2, 2)),
		[]Event{apply(b, 2, 2), apply(a, 2, 2)})
}

func check(events []Event) error {
	checker := NewChecker()
	for _, e := range events {
		if err := checker.Add(e); err != nil {
			return err
		}
	}
	return checker.Finish()
}

func TestExplained(t *testing.T) {
	two := entry(2, 2).Place
	third := request(c, Append, 2, a, first.Place, entry(2, 2))
	snapshot := request(c, Install, 2, a, two)
	change := Entry{Place: Place{3, 2}, Digest: 99, Voters: []raft.ServerID{a, b}}
	for name, more := range map[string][]Event{
		"nothing more": nil,
		"a member whose term is newer asks, and the leader steps down": slices.Concat(stands(b, 3),
			granted(c, 3, b, two), granted(a, 3, b, two), []Event{stored(b, entry(3, 3))}),
		"a candidate is voted for and crashes before its own vote": {saveTerm(b, 3), request(c, Vote, 3, b, two),
			{On: b, Kind: Started, Term: 3, VoteTerm: 2, Of: a, First: 1, Last: two,
				Entries: []Entry{first, entry(2, 2)}}},
		"the log of a member goes on behind a snapshot": {saveTerm(c, 2), snapshot, yes(snapshot), apply(c, 2, 2),
			stored(a, entry(2, 3)), request(c, Append, 2, a, two, entry(2, 3)), stored(c, entry(2, 3))},
		"a write was durable that nobody has answered": {third, {On: c, Kind: Started, Term: 2, First: 1, Last: two,
			Entries: []Entry{first, entry(2, 2)}}},
		"a change of members that is seen later explains a commit": slices.Concat([]Event{stored(a, change)},
			sent(b, 2, a, two, change), []Event{stored(a, entry(2, 4)), apply(a, 2, 4),
				stored(a, Entry{Place: Place{5, 2}, Digest: 100, Voters: []raft.ServerID{a}})}),
		"a deposed leader is elected with an entry that it has not written": slices.Concat(
			[]Event{request(b, Append, 2, a, two, entry(2, 3)), stored(b, entry(2, 3))},
			[]Event{saveTerm(c, 2)}, sent(c, 2, a, first.Place, entry(2, 2), entry(2, 3)),
			stands(a, 3), granted(b, 3, a, entry(2, 3).Place)),
		"a leader asks by entries that it has not written": {request(c, Append, 2, a, Place{5, 2}, entry(2, 6))},
		"a deposed leader is elected again, and asks behind an entry that it has not written": slices.Concat(
			stands(a, 3), granted(b, 3, a, Place{3, 2}), []Event{request(c, Append, 3, a, Place{3, 2}, entry(3, 4)),
				stored(a, entry(2, 3)), request(c, Append, 3, a, two, entry(2, 3), entry(3, 4))}),
		"a session moves and ends, and its clients are told in time": slices.Concat(
			[]Event{told(b, 2*time.Second, 1), told(c, 1500*time.Millisecond, 2)},
			executed(Command{Deed: Attached, Generation: 1}, Command{Deed: Wrote, Generation: 1, Seq: 1},
				Command{Deed: Attached, Generation: 2}, Command{Deed: Wrote, Generation: 2, Seq: 1},
				Command{Deed: Expired, Generation: 2}),
			[]Event{told(b, 5*time.Second, 1)}),
		"a client closes its session and is told so": append(executed(Command{Deed: Attached, Generation: 1},
			Command{Deed: Closed, Generation: 1, Seq: 1}), told(a, 5*time.Second, 1)),
		"a watch fires before the reply that shows its change, the others when the client connects again": slices.Concat(
			answered(b, reply(1, 5), reply(wire.XidNotification, 6), reply(2, 6)),
			answered(b, reply(wire.XidPing, 6), reply(wire.XidAuth, 0), reply(wire.XidNotification, -1),
				reply(wire.XidSetWatches, 6))),
		"read-only connections have no generation": {
			{On: b, Kind: Called, Session: 7, Call: &Call{Xid: 1}}, {On: c, Kind: Called, Session: 7, Call: &Call{Xid: 2}},
			{On: c, Kind: Sent, Session: 7, Frames: []Frame{reply(2, 5)}}},
		"requests of goroutines that do not wait for each other, as go-zookeeper numbers them": {
			called(wire.OpGetData, 2, nil), called(wire.OpSetData, 1, nil), framed(b, reply(2, 5), reply(1, 6))},
		"a state is replaced, and its clients have the last replies of the old one": slices.Concat(
			answered(c, reply(1, 5)), replaced(c, 7), answered(c, reply(2, 6))),
		"a snapshot is sent that never arrives whole, and then an older one by another leader": slices.Concat(
			[]Event{stored(a, entry(2, 3)), saveTerm(c, 2)}, sent(b, 2, a, two, entry(2, 3)),
			[]Event{request(c, Install, 2, a, entry(2, 3).Place)},
			stands(b, 3), granted(c, 3, b, entry(2, 3).Place), []Event{
				request(c, Install, 3, b, two), {On: c, Kind: Restored}, yes(request(c, Install, 3, b, two)),
				request(c, Append, 3, b, two, entry(2, 3)), stored(c, entry(2, 3)), apply(c, 2, 3)}),
		"a snapshot is installed, and entries of it are acknowledged before it": {
			saveTerm(c, 2), snapshot, {On: c, Kind: Restored}, request(c, Append, 2, a, first.Place, entry(2, 2)),
			yes(request(c, Append, 2, a, first.Place, entry(2, 2))), yes(snapshot)},
		"a snapshot comes late, behind a newer one, and is declined": slices.Concat(
			[]Event{stored(a, entry(2, 3)), saveTerm(c, 2)}, sent(b, 2, a, two, entry(2, 3)), []Event{
				request(c, Install, 2, a, entry(2, 3).Place), {On: c, Kind: Restored},
				yes(request(c, Install, 2, a, entry(2, 3).Place)), snapshot, yes(snapshot), stored(a, entry(2, 4)),
				request(c, Append, 2, a, entry(2, 3).Place, entry(2, 4)), stored(c, entry(2, 4))}),
		"the log behind a snapshot conflicts with the leader's": slices.Concat(
			[]Event{saveTerm(c, 2)}, sent(c, 2, a, first.Place, entry(2, 2), entry(2, 3)),
			stands(b, 3), granted(a, 3, b, two), []Event{stored(b, entry(3, 3)),
				request(c, Install, 3, b, two), saveTerm(c, 3), {On: c, Kind: Removed, First: 1, Last: Place{Index: 2}},
				{On: c, Kind: Restored}, yes(request(c, Install, 3, b, two)),
				request(c, Append, 3, b, two, entry(3, 3)), {On: c, Kind: Removed, First: 3, Last: Place{Index: 3}},
				stored(c, entry(3, 3)), yes(request(c, Append, 3, b, two, entry(3, 3)))}),
		"a state is replaced by the same one": slices.Concat(
			answered(c, reply(1, 5)), replaced(c, 5), answered(c, reply(2, 5))),
		"a voter is removed":                     slices.Concat([]Event{stored(a, change)}, sent(b, 2, a, two, change)),
		"a member was set back":                  {{On: c, Kind: SetBack}, {On: c, Kind: Started}},
		"a disk is damaged, and cannot be read":  {{On: c, Kind: Damaged}, {On: c, Kind: Unreadable}, start("3-d")},
		"a member lost its disk while it stored": {third, start("3-d")},
	} {
		if err := check(append(begun(), more...)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The actions of a new cluster: the votes and entries of begun, then a lost disk during a change,
// and a leader that was deposed and removes its entries.
func TestActions(t *testing.T) {
	checker := NewChecker()
	change := Entry{Place: Place{3, 2}, Digest: 99, Voters: []raft.ServerID{a, b}}
	for _, e := range slices.Concat(begun(), []Event{stored(a, change), start("3-new")}, stands(b, 3),
		granted(c, 3, b, entry(2, 2).Place), []Event{stored(b, entry(3, 3)),
			request(b, Append, 2, a, entry(2, 2).Place), request(a, Append, 3, b, entry(2, 2).Place, entry(3, 3)),
			saveTerm(a, 3), {On: a, Kind: Removed, First: 3, Last: Place{Index: 3}}}) {
		if err := checker.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	for action, n := range map[Action]int{"stand": 2, "vote": 2, "grant a vote": 2, "append as leader": 2,
		"append a change": 4,
		"start":           3, "start during a change": 1, "asked to append, older than its vote": 1,
		"cut own entries": 1,
		"install":         0} {
		if checker.Seen[action] != n {
			t.Errorf("%s: %d times, want %d", action, checker.Seen[action], n)
		}
	}
	if n := checker.Pairs[Pair{"vote", "grant a vote"}]; n != 2 {
		t.Errorf("a vote was granted %d times right behind a vote, want 2", n)
	}
	for action := range checker.Seen {
		if !slices.Contains(Actions, action) {
			t.Errorf("%q is none of Actions", action)
		}
	}
}

func TestNotExplained(t *testing.T) {
	two := entry(2, 2).Place
	heldBack := request(c, Append, 2, a, first.Place, entry(2, 2))
	change := func(index, digest uint64, voters ...raft.ServerID) Entry {
		return Entry{Place: Place{index, 2}, Digest: digest, Voters: voters}
	}
	for _, x := range []struct {
		name, because string
		more          []Event
	}{
		{"the saved term falls", "its term was 2", []Event{saveTerm(b, 1)}},
		{"a term is lost", "its term was 2", []Event{{On: b, Kind: Started, Term: 1}}},
		{"two votes in a term", "one vote in a term",
			slices.Concat(stands(c, 2), []Event{request(b, Vote, 2, c, first.Place), vote(b, 2, c)})},
		{"a vote is lost", "its vote of term 2",
			[]Event{{On: b, Kind: Started, Term: 2, VoteTerm: 1, Of: b, First: 1, Last: two,
				Entries: []Entry{first, entry(2, 2)}}}},
		{"half of a vote is saved", "has not asked",
			[]Event{{On: c, Kind: Started, Term: 3, VoteTerm: 3, Of: a, First: 1,
				Last: first.Place, Entries: []Entry{first}}}},
		{"a vote without a request", "has not asked",
			slices.Concat(stands(c, 3), []Event{saveTerm(b, 3), vote(b, 3, c)})},
		{"a vote for a log that is behind", "section 5.4.1",
			slices.Concat(stands(c, 3), granted(b, 3, c, first.Place))},
		{"a candidate says that its log is shorter", "ended with",
			slices.Concat(stands(b, 3), []Event{request(c, Vote, 3, b, first.Place)})},
		{"a candidate has not saved its term", "has saved term 0", []Event{request(b, Vote, 3, c, first.Place)}},
		{"a vote is answered and not saved", "is not saved", slices.Concat(stands(b, 3), []Event{
			request(c, Vote, 3, b, two), saveTerm(c, 3), yes(request(c, Vote, 3, b, two))})},
		{"two leaders in a term", "no majority has voted",
			[]Event{saveTerm(c, 2), vote(c, 2, c), request(b, Append, 2, c, first.Place)}},
		{"a leader that nobody has elected", "no majority has voted",
			slices.Concat(stands(c, 3), []Event{request(b, Append, 3, c, first.Place)})},
		{"an entry that no leader has made", "has not been elected", []Event{stored(c, entry(2, 2), entry(3, 3))}},
		{"another entry at the same place", "log matching", []Event{stored(c, Entry{Place: two, Digest: 5})}},
		{"an entry behind a gap", "its log ends before", []Event{stored(c, entry(2, 3))}},
		{"a leader puts an entry behind another leader's", "append-only", slices.Concat([]Event{stored(a, entry(2, 3))},
			stands(b, 3), granted(c, 3, b, two), []Event{stored(b, entry(3, 3)),
				request(c, Append, 3, b, entry(2, 3).Place, entry(3, 4))})},
		{"an acknowledgement of a write that is not durable", "not on its disk",
			[]Event{heldBack, saveTerm(c, 2), yes(heldBack)}},
		{"an acknowledgement of entries behind a snapshot that is installed", "not on its disk", []Event{
			saveTerm(c, 2), request(c, Install, 2, a, first.Place), {On: c, Kind: Restored}, heldBack, yes(heldBack)}},
		{"an acknowledgement in an old term", "section 5.1",
			slices.Concat(stands(c, 3), []Event{heldBack, yes(heldBack)})},
		{"an acknowledgement before the term is saved", "has saved 0",
			[]Event{heldBack, stored(c, entry(2, 2)), yes(heldBack)}},
		{"an acknowledgement of entries that nobody knows", "not on its disk", []Event{saveTerm(c, 2),
			request(c, Append, 2, a, Place{5, 2}), yes(request(c, Append, 2, a, Place{5, 2}))}},
		{"a leader asks by an entry of another", "nobody has made", []Event{request(c, Append, 2, a, Place{5, 1})}},
		{"a durable entry is lost", "was durable",
			[]Event{{On: b, Kind: Started, Term: 2, VoteTerm: 2, Of: a, First: 1, Last: first.Place,
				Entries: []Entry{first}}}},
		{"a committed entry is removed", "is committed",
			[]Event{{On: b, Kind: Removed, First: 2, Last: Place{Index: 2}}}},
		{"entries are compacted that are not committed", "it compacts",
			[]Event{stored(a, entry(2, 3)), {On: a, Kind: Removed, First: 1, Last: Place{Index: 3}}}},
		{"an entry is applied that one member has", "no majority", []Event{stored(a, entry(2, 3)), apply(a, 2, 3)}},
		{"an entry is applied that is on no disk of this member", "not on its disk",
			[]Event{saveTerm(c, 2), apply(c, 2, 2)}},
		{"a snapshot that is not committed", "is not committed",
			[]Event{stored(a, entry(2, 3)), request(c, Install, 2, a, entry(2, 3).Place)}},
		{"two voters change at once", "one at a time", []Event{stored(a, change(3, 9, a))}},
		{"a change of members before the last one is committed", "section 4.1",
			[]Event{stored(a, change(3, 9, a, b), change(4, 10, a, b, c))}},
		{"a leader that lacks a committed entry", "leader completeness", slices.Concat(
			[]Event{{On: b, Kind: SetBack}, {On: b, Kind: Started, Term: 1, First: 1, Last: first.Place,
				Entries: []Entry{first}}},
			stands(c, 3), granted(b, 3, c, first.Place))},
		{"a disk that nobody has damaged cannot be read", "nobody has damaged",
			[]Event{{On: b, Kind: Damaged}, {On: c, Kind: Unreadable}}},
		{"an entry that its leader has not sent", "has not sent it", []Event{stored(c, entry(2, 2))}},
		{"an entry is applied again", "the state goes back", []Event{apply(a, 2, 2)}},
		{"a snapshot takes the state back", "the state goes back",
			[]Event{request(b, Install, 2, a, first.Place), {On: b, Kind: Restored}}},
		{"a change of members by a new leader", "as of 2015", slices.Concat(stands(b, 3), granted(c, 3, b, two),
			[]Event{stored(b, entry(3, 3), Entry{Place: Place{4, 3}, Digest: 9, Voters: []raft.ServerID{a, b}})})},
		{"a command is executed twice", "each once", executed(Command{Deed: Attached, Generation: 1},
			Command{Deed: Wrote, Generation: 1, Seq: 1}, Command{Deed: Wrote, Generation: 1, Seq: 1})},
		{"a command is executed behind a gap", "each once", executed(Command{Deed: Attached, Generation: 1},
			Command{Deed: Wrote, Generation: 1, Seq: 2})},
		{"the end of an older connection ends the session", "C7", executed(Command{Deed: Attached, Generation: 2},
			Command{Deed: Expired, Generation: 1})},
		{"a client believes in a session when it ends", "believes in it until", append(
			[]Event{told(b, 2500*time.Millisecond, 1)}, executed(Command{Deed: Expired, Generation: 1})...)},
		{"a session ends twice", "ends again", executed(Command{Deed: Expired, Generation: 1},
			Command{Deed: Expired, Generation: 1})},
		{"two changes have one zxid", "each has its own", executed(
			Command{Deed: Wrote, Generation: 1, Seq: 1, Zxid: 5, Changed: true},
			Command{Deed: Wrote, Generation: 1, Seq: 2, Zxid: 5, Changed: true})},
		{"a node has another time than its entry", "C8", executed(
			Command{Deed: Wrote, Generation: 1, Seq: 1, MtimeMs: 2, EntryMs: 1})},
		{"a watch fires behind the reply that shows its change", "C3",
			answered(b, reply(1, 5), reply(2, 6), reply(wire.XidNotification, 6))},
		{"a read is answered before a write before it", "C2", []Event{called(wire.OpSetData, 1, nil),
			called(wire.OpGetData, 2, nil), framed(b, reply(2, 5)), framed(b, reply(1, 5))}},
		{"a request is answered twice", "C2", append(answered(b, reply(1, 5)), framed(b, reply(1, 5)))},
		{"nobody has asked", "C2", []Event{framed(b, reply(1, 5))}},
		{"a reply shows an older state", "C4", answered(b, reply(1, 5), reply(2, 4))},
		{"a connection outlives the state of its member", "missed watches", slices.Concat(
			executed(Command{Deed: Attached, Generation: 1}), answered(c, reply(1, 5)), replaced(c, 7),
			[]Event{framed(c, reply(wire.XidPing, 7))})},
		{"a member that lags sends bytes behind the end", "has ended", append(
			executed(Command{Deed: Expired, Generation: 1}), told(b, 4*time.Second, 1))},
		{"two clusters answer clients", "another cluster", slices.Concat(
			executed(Command{Deed: Attached, Generation: 1}),
			[]Event{start("1-x"), stored("1-x", Entry{Place: Place{1, 1}, Digest: 2, Voters: []raft.ServerID{"1-x"}})},
			stands("1-x", 2), []Event{stored("1-x", entry(2, 2)), {On: "1-x", Kind: Applied, Last: two,
				Commands: []Command{{Index: 2, Deed: Attached, Session: 8, Generation: 1}}}})},
		{"a cluster begins with older imported data", "docs/decisions/016", []Event{
			{On: "1-x", Kind: Started, Snapshot: Place{4, 1}}, {On: "2-x", Kind: Started, Snapshot: Place{5, 1}},
			stored("1-x", Entry{Place: Place{5, 1}, Digest: 2, Voters: []raft.ServerID{"1-x", "2-x"}})}},
		{"two clusters", "belongs to no cluster", []Event{request(b, Append, 2, "1-other", first.Place)}},
	} {
		err := check(append(begun(), x.more...))
		if err == nil || !strings.Contains(err.Error(), x.because) {
			t.Errorf("%s: %v, want %q", x.name, err, x.because)
		}
	}
}

// TestMembersExecuteTheSame: an entry that does something else on another member is not explained,
// also if it does nothing there; a member that has started again does the same once more.
func TestMembersExecuteTheSame(t *testing.T) {
	wrote := Command{Deed: Wrote, Seq: 1, Zxid: 5, Changed: true, Result: 1}
	other := wrote
	other.Result = 2
	again := Event{On: b, Kind: Started, Term: 2, VoteTerm: 2, Of: a, First: 1, Last: entry(2, 2).Place,
		Entries: []Entry{first, entry(2, 2)}}
	until := begun()[:len(begun())-2]
	for _, x := range []struct {
		more []Event
		same bool
	}{
		{[]Event{done(a, wrote), done(b, wrote), again, done(b, wrote)}, true},
		{[]Event{done(a, wrote), done(b, other)}, false},
		{[]Event{done(a, wrote), apply(b, 2, 2)}, false},
		{[]Event{apply(a, 2, 2), done(b, wrote)}, false},
		{[]Event{done(a, wrote), done(b, wrote), again, done(b, other)}, false},
	} {
		err := check(append(slices.Clone(until), x.more...))
		if x.same != (err == nil) || err != nil && !strings.Contains(err.Error(), "did something else") {
			t.Errorf("%v: %v", x.more, err)
		}
	}
}

// TestCalls: a sync shows what any client had seen when it was called, and a setWatches tells of
// what its client has missed, before its reply.
func TestCalls(t *testing.T) {
	watches := func(w wire.SetWatchesRequest) Event { return called(wire.OpSetWatches, wire.XidSetWatches, &w) }
	event := func(kind wire.EventType, path string) Frame {
		return Frame{Xid: wire.XidNotification, Zxid: wire.ZxidNone, Change: Change{kind, path}}
	}
	elsewhere := answered(c, reply(1, 9))
	for i := range elsewhere {
		elsewhere[i].Session = 8
	}
	sync := called(wire.OpSync, 2, nil)
	failed := reply(2, 5)
	failed.Code = wire.CodeNoAuth
	const made, gone = wire.EventNodeCreated, wire.EventNodeDeleted
	const data, child = wire.EventNodeDataChanged, wire.EventNodeChildrenChanged
	at := func(zxid wire.Zxid, kind wire.EventType, path string) Command {
		return Command{Zxid: zxid, Changed: true, Changes: []Change{{kind, path}}}
	}
	past := append(executed(at(5, made, "/a"), at(6, data, "/a"), at(7, gone, "/b"), at(8, child, "/a")),
		answered(b, reply(1, 5))...)
	both := wire.SetWatchesRequest{RelativeZxid: 5, Data: []string{"/a"}, Child: []string{"/a", "/b"}}
	set := reply(wire.XidSetWatches, 8)
	for _, x := range []struct {
		name, because string // empty: it is explained
		events        []Event
	}{
		{"a sync", "", slices.Concat([]Event{sync}, elsewhere, []Event{framed(b, reply(2, 5))})},
		{"a sync of a member that lags behind", "C4", slices.Concat(elsewhere, []Event{sync, framed(b, reply(2, 8))})},
		{"a read there", "", slices.Concat(elsewhere, answered(b, reply(2, 8)))},
		{"a sync that fails", "", slices.Concat(elsewhere, []Event{sync, framed(b, failed)})},
		{"the sync behind another", "C4", slices.Concat([]Event{sync}, elsewhere, []Event{called(wire.OpSync, 3, nil),
			framed(b, reply(2, 5), reply(3, 5))})},
		{"all watches fire", "", []Event{watches(both),
			framed(b, event(data, "/a"), event(child, "/a"), event(gone, "/b"), set)}},
		{"no event for the data", "missed a change of /a", []Event{watches(both),
			framed(b, event(child, "/a"), event(gone, "/b"), set)}},
		{"no event for the children", "missed a change of /a", []Event{watches(both),
			framed(b, event(data, "/a"), event(gone, "/b"), set)}},
		{"no event for the deletion", "missed a change of /b", []Event{watches(both),
			framed(b, event(data, "/a"), event(child, "/a"), set)}},
		{"an event behind the reply", "missed", []Event{watches(both), framed(b, set, event(data, "/a"))}},
		{"an event before the call", "missed", []Event{framed(b, event(data, "/a")), watches(both),
			framed(b, event(child, "/a"), event(gone, "/b"), set)}},
		{"changes that the client has seen", "", []Event{watches(wire.SetWatchesRequest{RelativeZxid: 8,
			Data: []string{"/a", "/b"}, Child: []string{"/a"}}), framed(b, set)}},
		{"changes that the member has not seen", "", []Event{watches(wire.SetWatchesRequest{RelativeZxid: 5,
			Child: []string{"/a"}}), framed(b, reply(wire.XidSetWatches, 7))}},
		{"a node that exists now", "missed a change of /a", []Event{watches(wire.SetWatchesRequest{RelativeZxid: 4,
			Exist: []string{"/a"}}), framed(b, set)}},
		{"a node that was made and deleted", "", []Event{watches(wire.SetWatchesRequest{RelativeZxid: 4,
			Exist: []string{"/b"}}), framed(b, set)}},
	} {
		err := check(slices.Concat(begun(), past, x.events))
		if (x.because == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.because) {
			t.Errorf("%s: %v, want %q", x.name, err, x.because)
		}
	}
}

// TestFiles: a leader takes over the members of its file if a majority of the voters has the same.
func TestFiles(t *testing.T) {
	for _, x := range []struct {
		have []raft.ServerID
		may  bool
	}{{[]raft.ServerID{a}, false}, {[]raft.ServerID{a, c}, true}} {
		events := append(begun(), executed(Command{Lines: 9})...)
		for i := range events {
			if events[i].Kind == Started && slices.Contains(x.have, events[i].On) {
				events[i].Lines = 9
			}
		}
		err := check(events)
		if x.may != (err == nil) || err != nil && !strings.Contains(err.Error(), "docs/decisions/019") {
			t.Errorf("%v have the file: %v", x.have, err)
		}
	}
}

// TestCutter: frames are cut wherever writes end, and bytes that are offered again are no second
// frame.
func TestCutter(t *testing.T) {
	stream := wire.AppendFrame(nil, &wire.ConnectResponse{SessionID: 7, Password: make([]byte, 16)})
	want := []Frame{{Xid: 1, Zxid: 5}, {Xid: wire.XidNotification, Zxid: 6, Change: Change{wire.EventNodeDeleted, "/p"}},
		{Xid: 2, Zxid: 6, Code: wire.CodeNoNode}}
	for _, f := range want {
		var body wire.Record = wire.SyncResponse{Path: "/p"}
		if f.Xid == wire.XidNotification {
			body = &wire.WatcherEvent{Type: f.Change.Type, State: wire.StateSyncConnected, Path: f.Change.Path}
		}
		stream = wire.AppendReply(stream, wire.ReplyHeader{Xid: f.Xid, Zxid: f.Zxid, Err: f.Code}, body)
	}
	for offered := range len(stream) {
		for written := range offered {
			var c cutter
			got := c.offer(stream[:offered])
			c.sent(written)
			got = append(got, c.offer(stream[written:offered])...)
			c.sent(0)
			if got = append(got, c.offer(stream[written:])...); !slices.Equal(got, want) {
				t.Fatalf("%d bytes offered, %d written: %v, want %v", offered, written, got, want)
			}
		}
	}
}
