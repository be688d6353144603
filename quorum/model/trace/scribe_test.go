package trace

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/model"
	"lockkeeper/wire"
)

// scribe writes the steps of the model as events of members: for each step those that a Recorder
// makes when a member takes the step. Steps inside a process have none.
type scribe struct {
	m       *model.Model
	events  []Event
	numbers uint64 // of requests
	now     time.Duration
	applied [model.MaxMembers]int  // by each process, as the events say
	told    [model.MaxClusters]int // commands of these entries have been written

	installed [model.MaxMembers * model.Disks]int // the entries of the newest snapshot on each disk
}

// tick is a tick of the model.
const tick = time.Second

// written is the events of a script, and their number behind each of its steps.
func written(m *model.Model, script []model.Step) (events []Event, steps []int, err error) {
	w := &scribe{m: m}
	b := m.Bounds()
	first := m.Entries(m.First().Clusters[0].First)
	for x := range b.Members {
		on := nameOf(model.Server(x * model.Disks))
		w.add(Event{On: on, Kind: Started})
		if !b.Blank && x < b.Voters {
			w.add(Event{On: on, Kind: SavedTerm, Term: 1})
			w.add(Event{On: on, Kind: Stored, Entries: w.entries(first, 0, 1)})
		}
	}
	s := m.Begin(w.step)
	for i, step := range script {
		n, ok := m.Take(&s, step)
		if !ok {
			return nil, nil, fmt.Errorf("the protocol has no step %d, %+v", i+1, step)
		}
		w.step(&s, &n, step)
		s, steps = n, append(steps, len(w.events))
	}
	return w.events, steps, nil
}

// nameOf is the server's name: 1a for the first disk of the first member.
func nameOf(v model.Server) raft.ServerID {
	if int(v) >= model.MaxMembers*model.Disks {
		return ""
	}
	return raft.ServerID(v.String())
}

func (w *scribe) add(e Event) {
	e.At = w.now
	w.events = append(w.events, e)
}

// entries is the entries of a log from index first+1 to last.
func (w *scribe) entries(log []model.Entry, first, last int) (out []Entry) {
	for i := first; i < last; i++ {
		e := log[i]
		h := fnv.New64a()
		fmt.Fprint(h, e.Kind, e.Value, e.Voters, e.Nonvoters)
		x := Entry{Place: place(log, i+1), Digest: h.Sum64()}
		if e.Kind == model.Config {
			for _, v := range e.Voters.Servers() {
				x.Voters = append(x.Voters, nameOf(v))
			}
		}
		out = append(out, x)
	}
	return out
}

// place is the place of a log's entry; none for index 0.
func place(log []model.Entry, index int) Place {
	if index == 0 {
		return Place{}
	}
	return Place{uint64(index), uint64(log[index-1].Term)}
}

// last is the place of a log's last entry.
func last(log []model.Entry) Place { return place(log, len(log)) }

// durable is the entries of a disk that a crash leaves.
func (w *scribe) durable(d *model.Disk) []model.Entry {
	log := w.m.Entries(d.Log)
	return log[:len(log)-int(d.Unsynced)]
}

// step writes a step: the request that arrives, the writes of all disks, the answer.
func (w *scribe) step(s, n *model.State, step model.Step) {
	x := int(step.A)
	switch step.Action {
	case model.Bring:
		for y := range w.m.Bounds().Members {
			w.start(n, y)
		}
		return
	case model.Crash, model.Replace, model.Return:
		w.start(n, x)
		return
	case model.Damage:
		w.add(Event{On: nameOf(n.Server(x)), Kind: SetBack})
		w.start(n, x)
		return
	case model.Tick: // the common clock is the client's
		if model.Clock(step.B) != model.SlowClient {
			w.now += tick
		}
		return
	case model.Half: // nobody has asked: the crash comes before the rest
		w.start(n, x)
		return
	}
	answer := w.request(s, x, step)
	if v := n.Server(x); step.Action == model.Install {
		w.installed[v] = max(w.installed[v], int(step.C))
	}
	for y := range w.m.Bounds().Members {
		w.writes(s, n, y)
	}
	switch step.Action {
	case model.Cut, model.Birth:
		w.start(n, x)
		return
	}
	if s.Members[x].Applied != n.Members[x].Applied && step.Action == model.Install {
		w.add(Event{On: nameOf(n.Server(x)), Kind: Restored})
		w.applied[x] = len(w.m.Entries(n.Members[x].Applied))
	}
	if answer.Kind != "" {
		w.add(answer)
	}
	w.applies(s, n, step)
	if step.Action == model.Send {
		w.add(Event{On: nameOf(n.Server(x)), Kind: Sent, Session: 1, Generation: uint64(n.Session.Moves) + 1,
			Belief: time.Duration(n.Session.Belief) * tick})
	}
}

// start is the start of member x with the disk that it has.
func (w *scribe) start(n *model.State, x int) {
	d, v := &n.Disks[n.Server(x)], n.Server(x)
	base := w.base(n, x)
	log := w.durable(d)
	w.applied[x] = 0
	e := Event{On: nameOf(v), Kind: Started, Term: uint64(d.Term), VoteTerm: uint64(d.VoteTerm), Of: nameOf(d.VoteFor),
		Last: last(log)}
	switch {
	case d.Cluster == 0 && len(log) > 0: // imported
		e.Last, e.Snapshot = Place{}, last(log)
	case base > 0 && len(log) >= base:
		e.Snapshot = place(log, base)
		e.Entries = w.entries(log, base, len(log))
	case base > 0: // its import is not the cluster's
		e.Last = Place{}
	default:
		e.Entries = w.entries(log, 0, len(log))
	}
	if len(e.Entries) > 0 {
		e.First = e.Entries[0].Index
	}
	w.add(e)
}

// base is the number of entries before the first configuration of a member's cluster: they are in
// an imported snapshot.
func (w *scribe) base(s *model.State, x int) int {
	c := s.Cluster(x)
	if c == 0 {
		return 0
	}
	return len(w.m.Entries(s.Clusters[c-1].First)) - 1
}

// request is the request that arrives with a step, and its answer.
func (w *scribe) request(s *model.State, x int, step model.Step) (answer Event) {
	t := step.B
	e := Event{On: nameOf(s.Server(x)), Kind: Asked, Term: uint64(t)}
	switch step.Action {
	case model.Vote:
		log := s.Clusters[s.Cluster(x)-1].Terms[t].Stands[step.C]
		e.Request, e.Of, e.Last = Vote, nameOf(model.Server(step.C)), last(w.m.Entries(log))
	case model.Store, model.Ack, model.Cut:
		sent, same := w.m.Delivery(s, x, t)
		log := w.m.Entries(sent)
		if kept := len(w.m.Entries(s.Disks[s.Server(x)].Log)); step.Action == model.Store && w.overlooks(log, kept) {
			same = kept
		}
		e.Request, e.Of, e.Last = Append, nameOf(s.Clusters[s.Cluster(x)-1].Terms[t].Leader), place(log, same)
		if step.Action != model.Ack {
			e.Entries = w.entries(log, same, same+1)
		}
		if base := w.base(s, x); same < base { // that part of the log is a snapshot
			if step.Action != model.Store || same+1 < base {
				return Event{}
			}
			e.Request, e.Last, e.Entries = Install, place(log, base), nil
		}
	case model.Heed:
		term := &s.Clusters[s.Cluster(x)-1].Terms[t]
		e.Request, e.Of = Append, nameOf(term.Leader)
		e.Last = place(w.m.Entries(term.Log), int(term.Early[s.Server(x)]))
	case model.Install:
		term := &s.Clusters[s.Cluster(x)-1].Terms[t]
		e.Request, e.Of, e.Last = Install, nameOf(term.Leader), place(w.m.Entries(term.Log), int(step.C))
	default:
		return Event{}
	}
	w.numbers++
	e.Number = w.numbers
	w.add(e)
	if step.Action == model.Heed || step.Action == model.Cut {
		return Event{} // it is not answered, or not positively
	}
	return Event{On: e.On, Kind: Answered, Number: e.Number, Term: e.Term, OK: true}
}

// overlooks reports whether the model lacks the check of the previous entry, and a member with a
// log of that length stores the next one.
func (w *scribe) overlooks(log []model.Entry, kept int) bool {
	return w.m.Without(model.PreviousEntry) && kept < len(log)
}

// writes is the writes of member x to the disk that it has.
func (w *scribe) writes(s, n *model.State, x int) {
	v := n.Server(x)
	if s.Server(x) != v {
		return
	}
	old, now := &s.Disks[v], &n.Disks[v]
	on := nameOf(v)
	if old.Term != now.Term {
		w.add(Event{On: on, Kind: SavedTerm, Term: uint64(now.Term)})
	}
	if old.VoteTerm != now.VoteTerm || old.VoteFor != now.VoteFor {
		w.add(Event{On: on, Kind: SavedVote, Term: uint64(now.VoteTerm), Of: nameOf(now.VoteFor)})
	}
	had, has := w.durable(old), w.durable(now)
	same := 0
	for same < min(len(had), len(has)) && had[same] == has[same] {
		same++
	}
	same = max(same, min(max(w.base(n, x), w.installed[v]), len(has))) // these are in a snapshot
	if same < len(had) {
		w.add(Event{On: on, Kind: Removed, First: uint64(same + 1), Last: Place{Index: uint64(len(had))}})
	}
	if same < len(has) {
		w.add(Event{On: on, Kind: Stored, Entries: w.entries(has, same, len(has))})
	}
}

// applies is the entries that a member applies in a step, by which a client may be answered.
func (w *scribe) applies(s, n *model.State, step model.Step) {
	x := int(step.A)
	log := w.m.Entries(n.Disks[n.Server(x)].Log)
	upTo := 0
	switch step.Action {
	case model.Commit:
		upTo = int(step.B)
	case model.Heed:
		upTo = int(n.Clusters[n.Cluster(x)-1].Terms[step.B].Early[n.Server(x)])
	case model.Restore:
		upTo = len(log)
	}
	if w.m.Bounds().Snapshots && step.Action != model.Restore {
		if upTo = 0; step.Action == model.Apply {
			upTo = len(w.m.Entries(n.Members[x].Applied))
		}
	}
	if upTo > int(w.applied[x]) {
		w.add(Event{On: nameOf(n.Server(x)), Kind: Applied, Last: place(log, upTo), Commands: w.commands(n, x, upTo)})
		w.applied[x] = upTo
	}
}

// commands is the commands that take effect in the entries up to an index of a member's log, those
// aside that another member has executed.
func (w *scribe) commands(n *model.State, x, upTo int) (list []Command) {
	c := n.Cluster(x) - 1
	id := n.Disks[n.Server(x)].Log
	log := w.m.Entries(id)
	if b := w.m.Bounds(); w.told[c] == 0 && (b.Commands > 0 || b.Lease > 0) {
		list = append(list, Command{Index: 1, Deed: Attached, Session: 1, Generation: 1})
	}
	for i := max(w.told[c], w.base(n, x)) + 1; i <= upTo; i++ {
		e, deed := log[i-1], Deed("")
		connection := uint64(e.Value >> 4)
		y := Command{Index: uint64(i), Session: 1}
		switch {
		case e.Kind == model.Write && connection == 0: // each of a session of its own
			deed, y.Session, y.Generation, y.Seq = Wrote, wire.SessionID(100+int64(e.Value)), 1, 1
		case e.Kind == model.Write:
			deed, y.Generation, y.Seq = Wrote, connection, uint64(e.Value&15)
		case e.Kind == model.Attach:
			deed, y.Generation = Attached, 2
		case e.Kind == model.Ending:
			deed, y.Generation = Expired, uint64(e.Value)
		}
		if deed != "" && w.m.TakesEffect(id, i) {
			y.Deed = deed
			list = append(list, y)
		}
	}
	w.told[c] = max(w.told[c], upTo)
	return list
}
