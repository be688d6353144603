package trace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/wire"
)

// Checker explains the events of the members of one or more clusters. The zero value is not usable;
// a Checker is for one goroutine at a time.
type Checker struct {
	worlds map[uint64]*world // by the digest of the first entry
	disks  map[raft.ServerID]*disk
	files  map[memberFile]bool // that processes have started with
	now    time.Duration       // of the newest event
	err    error

	// Events counts the events by kind. Commits counts the steps of the commit index, Elections the
	// candidates with the votes of a majority.
	Events             map[Kind]int
	Commits, Elections int
	// Seen counts the actions, Pairs the pairs of them: what a recording has visited.
	Seen  map[Action]int
	Pairs map[Pair]int
}

// disk is a data directory, with its durable state and the requests that its process answers.
type disk struct {
	id       raft.ServerID
	world    *world // nil: it is blank
	term     uint64
	voteTerm uint64
	vote     raft.ServerID
	first    uint64 // of the log
	end      *node  // of the log; nil: the log is empty
	snapshot *node  // the newest snapshot ends here; nil: there is none
	// installed: entries up to here may be in a snapshot that is installed and not yet answered.
	installed uint64
	imported  Place     // imported data end here, in a disk of no cluster
	applied   uint64    // the newest entry that the process has applied, as far as is known
	executed  uint64    // as applied, if the events show where that began; 0: they do not
	zxid      wire.Zxid // of its state, as far as is known
	setBack   bool      // it was exchanged, and not started since
	damaged   bool      // bytes of it were changed
	asks      map[uint64]ask
	removals  int
	action    Action // the newest
}

// memberFile is the configuration file of a member: the members in it, as peer.Sum.
type memberFile struct {
	of    peer.MemberID
	lines uint32
}

// ask is a request without an answer.
type ask struct {
	Event
	term     uint64 // of the disk when it came
	removals int
}

// NewChecker returns a Checker that has seen nothing.
func NewChecker() *Checker {
	return &Checker{worlds: map[uint64]*world{}, disks: map[raft.ServerID]*disk{}, files: map[memberFile]bool{},
		Events: map[Kind]int{}, Seen: map[Action]int{}, Pairs: map[Pair]int{}}
}

// Add takes the next event. The error says which rule does not allow it. After an error the Checker
// takes nothing more, and returns it again.
func (c *Checker) Add(e Event) error {
	if c.err != nil {
		return c.err
	}
	c.Events[e.Kind]++
	c.now = e.At
	d := c.disk(e.On)
	c.note(d, e)
	if err := c.explain(d, e); err != nil {
		c.err = fmt.Errorf("%v: %w", e, err)
	}
	return c.err
}

func (c *Checker) explain(d *disk, e Event) (err error) {
	switch e.Kind {
	case Started:
		err = c.started(d, e)
	case SetBack:
		d.setBack = true
	case Damaged:
		d.damaged = true
	case Unreadable:
		if !d.damaged {
			err = errors.New("nobody has damaged the disk, and its entries are lost (C1: every start can read " +
				"durable entries)")
		}
	case SavedTerm:
		err = c.savedTerm(d, e.Term)
	case SavedVote:
		err = c.savedVote(d, e)
	case Stored:
		err = c.stored(d, e.Entries)
	case Removed:
		err = c.removed(d, e)
	case Asked:
		err = c.asked(d, e)
	case Answered:
		err = c.answered(d, e)
	case Applied:
		err = c.applied(d, e)
	case Restored:
		err = d.restored(e)
	case Called:
		if d.world != nil {
			d.world.sessions.called(e)
		}
	case Sent:
		if d.world != nil {
			err = d.world.sessions.told(e, d.world.execution.nodes)
		}
	default:
		err = fmt.Errorf("no event is of the kind %q", e.Kind)
	}
	return err
}

// Finish is called behind the last event. The error is the one of Add, or names an applied entry
// that no majority ever held.
func (c *Checker) Finish() error {
	for _, digest := range slices.Sorted(maps.Keys(c.worlds)) {
		w := c.worlds[digest]
		for _, x := range w.unexplained {
			if c.err == nil && !x.unseen(w) {
				c.err = fmt.Errorf("%s: no majority of the voters holds %v", x.event, x.entry.Place)
			}
		}
	}
	return c.err
}

func (c *Checker) disk(id raft.ServerID) *disk {
	d := c.disks[id]
	if d == nil {
		d = &disk{id: id, first: 1, asks: map[uint64]ask{}}
		c.disks[id] = d
	}
	return d
}

// last is the last entry of the log, or of the snapshot if that has more.
func (d *disk) last() *node { return newer(d.end, d.snapshot) }

// has reports whether the disk has the entry, in its log or its snapshot.
func (d *disk) has(e *node) bool {
	return d.world.has(d.end, e) || d.world.has(d.snapshot, e)
}

// started compares the disk with its durable state. A write that was under way may be durable or
// not.
func (c *Checker) started(d *disk, e Event) error {
	defer clear(d.asks) // who asked is not answered any more; the vote may have been saved
	d.applied, d.executed, d.installed, d.zxid = 0, 0, 0, 0
	c.files[memberFile{raftnet.IDOf(d.id), e.Lines}] = true
	if d.setBack {
		*d = disk{id: d.id, action: d.action, world: d.world, first: 1, asks: d.asks, term: e.Term,
			voteTerm: e.VoteTerm, vote: e.Of, damaged: d.damaged}
	}
	if e.Term < d.term {
		return fmt.Errorf("its term was %d", d.term)
	}
	if e.VoteTerm < d.voteTerm || e.VoteTerm == d.voteTerm && e.Of != d.vote {
		return fmt.Errorf("its vote of term %d was for %s", d.voteTerm, d.vote)
	}
	d.term = e.Term
	if e.VoteTerm > d.voteTerm {
		if err := c.savedVote(d, Event{Term: e.VoteTerm, Of: e.Of}); err != nil {
			return err
		}
	}
	durable := d.end
	if err := c.tail(d, e); err != nil {
		return err
	}
	if durable != nil && durable.Index > placeOf(d.snapshot).Index && !d.world.has(d.end, durable) {
		return fmt.Errorf("it has lost %v, which was durable", durable.Place)
	}
	return nil
}

// tail takes over the log and the snapshot that a disk has at a start.
func (c *Checker) tail(d *disk, e Event) error {
	d.first = max(e.First, 1)
	if len(e.Entries) > 0 {
		first := e.Entries[0]
		if d.world == nil && first.Index == 1 {
			d.world = c.world(first, Place{})
		}
		if d.world == nil {
			return errors.New("it has entries of an unknown cluster")
		}
		if d.end = d.world.nodes[first.Place]; d.end == nil {
			if first.Index > 1 {
				return fmt.Errorf("nobody has made the entry %v", first.Place)
			}
		} else {
			d.end = d.end.parent
		}
		if err := c.extend(d, e.Entries); err != nil {
			return err
		}
	} else {
		d.end = nil
	}
	switch {
	case e.Snapshot.Index > 0 && d.world == nil:
		d.imported = e.Snapshot
	case e.Snapshot.Index > 0:
		if d.snapshot = d.world.nodes[e.Snapshot]; d.snapshot == nil {
			return fmt.Errorf("nobody has made the entry %v, where its snapshot ends", e.Snapshot)
		}
	}
	return nil
}

// world is the cluster that begins with an entry, behind imported data perhaps.
func (c *Checker) world(first Entry, imported Place) *world {
	w := c.worlds[first.Digest]
	if w == nil {
		w = newWorld()
		c.worlds[first.Digest] = w
		if imported.Index > 0 {
			w.committed = w.add(nil, Entry{Place: imported})
		}
	}
	return w
}

// join makes a disk one of a cluster: of the one that asks it, or of one that it begins.
func (c *Checker) join(d *disk, first Entry) error {
	if d.world != nil {
		return nil
	}
	for _, a := range d.asks {
		if a.Request != Vote {
			d.enter(c.disk(a.Of).world)
			return nil
		}
	}
	if first.Voters == nil || first.Index != d.imported.Index+1 {
		return errors.New("it belongs to no cluster")
	}
	for _, v := range first.Voters {
		if other := c.disks[v]; other != nil && !other.imported.upToDate(d.imported) {
			return fmt.Errorf("it begins a cluster with imported data up to %v, and %s has them up to %v "+
				"(docs/decisions/016)", d.imported, v, other.imported)
		}
	}
	d.enter(c.world(first, d.imported))
	return nil
}

// enter makes a disk one of a cluster. Its imported data are a snapshot of the cluster if that
// began with the same.
func (d *disk) enter(w *world) {
	if d.world == nil {
		d.world, d.snapshot = w, w.nodes[d.imported]
	}
}

func (c *Checker) savedTerm(d *disk, n uint64) error {
	if n < d.term {
		return fmt.Errorf("its term was %d (Raft, figure 2: the term increases monotonically)", d.term)
	}
	if n > d.term && d.world != nil {
		// It may stand for election in it, with this log: by the time at which its request arrives
		// it may have followed another leader of the term.
		d.world.term(n).stands[d.id] = d.last()
	}
	d.term = n
	return nil
}

// savedVote is a vote, for the disk itself if it stands for election.
func (c *Checker) savedVote(d *disk, e Event) error {
	switch {
	case e.Term < d.term:
		return fmt.Errorf("its term is %d", d.term)
	case e.Term < d.voteTerm || e.Term == d.voteTerm && e.Of != d.vote:
		return fmt.Errorf("it has voted for %s in term %d (Raft, section 5.2: one vote in a term)", d.vote, d.voteTerm)
	}
	d.voteTerm, d.vote = e.Term, e.Of
	of := c.disk(e.Of)
	w := d.world
	if w == nil {
		w = of.world
	}
	if w == nil {
		return errors.New("neither the voter nor the candidate is in a cluster")
	}
	t := w.term(e.Term)
	if e.Of == d.id {
		t.stands[d.id] = d.last()
	} else if err := mayVote(d, t, e); err != nil {
		return err
	}
	t.votes[d.id] = e.Of
	return c.elect(w, t, e.Term, e.Of)
}

// mayVote is the rule for a vote for another server.
func mayVote(d *disk, t *term, e Event) error {
	for _, a := range d.asks {
		if a.Request == Vote && a.Of == e.Of && a.Event.Term == e.Term {
			if own := placeOf(d.last()); !own.upToDate(a.Last) {
				return fmt.Errorf("the candidate's last entry is %v, the voter's %v (Raft, section 5.4.1)", a.Last, own)
			}
			return nil
		}
	}
	return errors.New("the candidate has not asked for it")
}

// elect notes that a candidate has the votes of a majority, if it has.
func (c *Checker) elect(w *world, t *term, n uint64, of raft.ServerID) error {
	begins, stands := t.stands[of]
	if !stands || t.leader == of || begins == nil || begins.config == nil ||
		!majority(begins.config.Voters, func(v raft.ServerID) bool { return t.votes[v] == of }) {
		return nil
	}
	if t.leader != "" {
		return fmt.Errorf("%s and %s have the votes of term %d (Raft, figure 3: election safety)", t.leader, of, n)
	}
	c.Elections++
	t.leader, t.begins = of, begins
	if w.committed != nil && w.committed.Term < n && !w.has(begins, w.committed) {
		return fmt.Errorf("%s is elected and lacks %v, which is committed (Raft, figure 3: leader completeness)", of,
			w.committed.Place)
	}
	return nil
}

// stored appends entries to the log of a disk.
func (c *Checker) stored(d *disk, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := c.join(d, entries[0]); err != nil {
		return err
	}
	for _, a := range d.asks {
		if a.Request == Append {
			if err := c.sent(d.world, a.Event); err != nil {
				return err
			}
		}
	}
	if at := placeOf(d.end).Index + 1; entries[0].Index != at {
		// A log goes on behind a snapshot, whose answer may be a later event.
		before := d.world.at(d.snapshot, entries[0].Index-1)
		for _, a := range d.asks {
			if a.Request == Install && a.Last.Index == entries[0].Index-1 {
				before = d.world.nodes[a.Last]
			}
		}
		if before == nil {
			return fmt.Errorf("its log ends before %d", at)
		}
		d.first, d.end = entries[0].Index, before
	}
	if err := c.extend(d, entries); err != nil {
		return err
	}
	for _, e := range entries {
		if !d.leads(e.Term) && !d.sent(e.Place) && d.world.nodes[e.Place] != d.world.root {
			return fmt.Errorf("the leader of term %d has not sent it %v (Raft, section 5.3)", e.Term, e.Place)
		}
		if e.Term == d.term {
			d.world.hold(e.Term, d.id, e.Index)
		}
	}
	return c.count(d.world, entries[len(entries)-1].Term)
}

// sent reports whether a request that is not answered has the entry.
func (d *disk) sent(p Place) bool {
	for _, a := range d.asks {
		if n := len(a.Entries); n > 0 && p.Index >= a.Entries[0].Index && p.Index <= a.Entries[n-1].Index &&
			a.Entries[p.Index-a.Entries[0].Index].Place == p {
			return true
		}
	}
	return false
}

// extend appends entries behind the end of a log.
func (c *Checker) extend(d *disk, entries []Entry) error {
	for _, e := range entries {
		n, err := c.entry(d.world, d.end, e, d.id)
		if err != nil {
			return err
		}
		d.end = n
	}
	return nil
}

// entry is an entry behind parent, which by has in its log. It is a new one only if by leads, or
// has led, its term: leaders alone make entries (Raft, section 5.3).
func (c *Checker) entry(w *world, parent *node, e Entry, by raft.ServerID) (*node, error) {
	if n := w.nodes[e.Place]; n != nil {
		if n.Digest != e.Digest || n.parent != parent {
			return nil, fmt.Errorf("there is another entry, or another one before it, at %v (Raft, figure 3: log "+
				"matching)", e.Place)
		}
		return n, nil
	}
	t := w.term(e.Term)
	switch {
	case w.root == nil:
		w.root = w.add(parent, e)
		t.tip = w.root
		return t.tip, nil
	case parent == nil || parent.Index+1 != e.Index || parent.Term > e.Term:
		return nil, fmt.Errorf("the entry %v is not behind %v", e.Place, placeOf(parent))
	case t.leader != by:
		return nil, fmt.Errorf("%s has not been elected in term %d, and has its entry %v", by, e.Term, e.Place)
	case t.tip != nil && t.tip != parent || t.tip == nil && !w.has(parent, t.begins):
		return nil, fmt.Errorf("the leader of term %d puts %v behind %v (Raft, figure 3: leader append-only)", e.Term,
			e.Place,
			parent.Place)
	}
	if e.Voters != nil && parent.config != nil {
		if !oneApart(parent.config.Voters, e.Voters) {
			return nil, fmt.Errorf("the voters %v follow %v (thesis, section 4.1: one at a time)", e.Voters,
				parent.config.Voters)
		}
		if w.committed.of(e.Term) == nil {
			return nil, fmt.Errorf("the change of members %v begins before an entry of its term is committed (thesis, "+
				"section 4.1, as of 2015)", e.Place)
		}
		if !w.has(w.committed, parent.config) {
			return nil, fmt.Errorf("the change of members %v begins before %v is committed (thesis, section 4.1)",
				e.Place,
				parent.config.Place)
		}
	}
	t.tip = w.add(parent, e)
	if e.Voters != nil {
		w.newest = t.tip
		w.unexplained = slices.DeleteFunc(w.unexplained, func(c claim) bool { return c.explained(w) })
	}
	return t.tip, nil
}

// removed removes entries at the end of a log, or at its beginning.
func (c *Checker) removed(d *disk, e Event) error {
	if d.end == nil {
		return nil
	}
	w := d.world
	if e.First > d.first || d.conflicts(e.First) {
		if e.Last.Index < d.end.Index {
			return fmt.Errorf("its log goes on to %d", d.end.Index)
		}
		var end *node // nil: nothing is left of the log behind the snapshot
		if e.First > d.first {
			end = w.at(d.end, e.First-1)
		}
		for x := w.at(w.committed, min(placeOf(w.committed).Index, d.end.Index)); x != nil &&
			x.Index >= e.First; x = x.parent {
			if w.has(d.end, x) {
				return fmt.Errorf("it removes %v, which is committed", x.Place)
			}
		}
		d.end = end
		d.removals++
		return nil
	}
	covered := false
	for _, a := range d.asks {
		covered = covered || a.Request == Install && a.Last.Index >= e.Last.Index
	}
	upTo := w.at(d.end, min(e.Last.Index, d.end.Index))
	if !covered && !w.has(w.committed, upTo) {
		return fmt.Errorf("it compacts %v, which is not committed", upTo.Place)
	}
	d.first = e.Last.Index + 1
	if !covered {
		d.snapshot = newer(d.snapshot, upTo)
	}
	if d.end.Index < d.first {
		d.end = nil
	}
	return nil
}

// conflicts reports whether a request that is not answered has another entry at an index of the log
// (Raft, section 5.3: then it and all behind it are removed).
func (d *disk) conflicts(index uint64) bool {
	own := d.world.at(d.end, index)
	for _, a := range d.asks {
		if n := len(a.Entries); own != nil && n > 0 && index >= a.Entries[0].Index && index <= a.Entries[n-1].Index &&
			a.Entries[index-a.Entries[0].Index].Place != own.Place {
			return true
		}
	}
	return false
}

// asked is a request of a leader or a candidate.
func (c *Checker) asked(d *disk, e Event) error {
	d.asks[e.Number] = ask{Event: e, term: d.term, removals: d.removals}
	of := c.disk(e.Of)
	w := of.world
	if w == nil {
		return errors.New("who asks belongs to no cluster")
	}
	t := w.term(e.Term)
	if e.Request == Vote {
		// The library asks for votes before it has saved its own, which it counts when it has.
		if of.term < e.Term {
			return fmt.Errorf("the candidate has saved term %d (Raft, figure 2: persistent state)", of.term)
		}
		if _, stands := t.stands[e.Of]; !stands {
			t.stands[e.Of] = of.last()
		}
		if own := placeOf(t.stands[e.Of]); !own.upToDate(e.Last) {
			return fmt.Errorf("the candidate's log ended with %v", own)
		}
		// A deposed leader stands with the entries that it has made and not yet written, too. There
		// may be more of them than the events have shown.
		if old := w.terms[e.Last.Term]; old != nil && old.leader == e.Of && old.tip != nil {
			t.stands[e.Of] = w.at(old.tip, min(old.tip.Index, e.Last.Index))
		}
		return nil
	}
	if t.leader != e.Of {
		return fmt.Errorf("it leads term %d, and no majority has voted for it (Raft, section 5.2)", e.Term)
	}
	if e.Request == Install {
		if n := w.nodes[e.Last]; n == nil || !w.has(w.committed, n) {
			return fmt.Errorf("the snapshot ends with %v, which is not committed", e.Last)
		}
		return nil
	}
	return c.sent(w, e)
}

// sent takes over the entries of a leader's request. They may be behind entries that the leader has
// made, in this term or in an earlier one, and neither written nor sent to anybody yet; then they
// are taken over when those are known.
func (c *Checker) sent(w *world, e Event) error {
	t := w.term(e.Term)
	end := w.nodes[e.Last]
	if end == nil && e.Last.Index > 0 {
		of := w.term(e.Last.Term)
		if of.leader == e.Of && e.Last.Index > max(placeOf(of.tip).Index, placeOf(of.begins).Index) {
			return nil
		}
		return fmt.Errorf("nobody has made the entry %v", e.Last)
	}
	for _, x := range e.Entries {
		n, err := c.entry(w, end, x, e.Of)
		if err != nil {
			return err
		}
		end = n
	}
	if end != nil && !w.has(end, w.at(t.begins, min(end.Index, t.begins.Index))) {
		return fmt.Errorf("the leader of term %d does not have %v", e.Term, end.Place)
	}
	return nil
}

// answered is the answer to a request. Only a positive one promises anything.
func (c *Checker) answered(d *disk, e Event) error {
	a, known := d.asks[e.Number]
	if !known {
		return nil // of a process before this one
	}
	delete(d.asks, e.Number)
	if !e.OK {
		return nil
	}
	if a.Event.Term < a.term {
		return fmt.Errorf("the request is of term %d, and the term was %d (Raft, section 5.1)", a.Event.Term, a.term)
	}
	if d.term < a.Event.Term {
		return fmt.Errorf("it answers in term %d, and has saved %d (Raft, figure 2: persistent state)", a.Event.Term,
			d.term)
	}
	w := c.disk(a.Of).world
	t := w.term(a.Event.Term)
	switch a.Request {
	case Vote:
		if t.votes[d.id] != a.Of {
			return errors.New("the vote is not saved (Raft, figure 2: persistent state)")
		}
	case Install:
		d.enter(w)
		if d.installed <= a.Last.Index {
			d.installed = 0
		}
		// A member declines one that comes late, behind a newer one, and says that it has it.
		d.snapshot = newer(d.snapshot, w.nodes[a.Last])
		if d.end != nil && d.end.Index <= d.snapshot.Index && !w.has(d.snapshot, d.end) {
			d.end = nil
		}
		w.hold(a.Event.Term, d.id, a.Last.Index)
	case Append:
		upTo := a.Last
		if n := len(a.Entries); n > 0 {
			upTo = a.Entries[n-1].Place
		}
		if upTo.Index == 0 {
			return nil // a heartbeat says nothing of the log
		}
		d.enter(w)
		known := w.nodes[upTo]
		if known == nil || !d.has(known) && upTo.Index > d.installed && a.removals == d.removals {
			return fmt.Errorf("%v is not on its disk, whose log ends with %v (Raft, figure 2: persistent state)", upTo,
				placeOf(d.last()))
		}
		w.hold(a.Event.Term, d.id, upTo.Index)
		return c.count(w, a.Event.Term)
	}
	return nil
}

// hold notes that a disk has the log of the leader of a term, up to an index.
func (w *world) hold(n uint64, id raft.ServerID, index uint64) {
	t := w.term(n)
	t.holds[id] = max(t.holds[id], index)
}

// count moves the commit index as far as the leader of a term may (Raft, section 5.4.2).
func (c *Checker) count(w *world, n uint64) error {
	t := w.term(n)
	if t.tip == nil {
		return nil
	}
	for _, index := range slices.Backward(slices.Sorted(maps.Values(t.holds))) {
		if w.counted(t, index, t.holds) {
			return c.commit(w, n, w.at(t.tip, index))
		}
	}
	return nil
}

// commit notes that the leader of a term may have committed an entry.
func (c *Checker) commit(w *world, n uint64, e *node) error {
	if w.has(w.committed, e) {
		return nil
	}
	if !w.has(e, w.committed) {
		return fmt.Errorf("%v and %v are both committed (Raft, figure 3: state machine safety)", w.committed.Place,
			e.Place)
	}
	w.committed = e
	w.commits = append(w.commits, commit{e.Index, c.now})
	c.Commits++
	for _, x := range w.unexplained {
		if at := w.at(e, x.entry.Index); at != nil && at != x.entry {
			return fmt.Errorf("%v is committed at the index of what was applied before: %s", at.Place, x.event)
		}
	}
	for later, t := range w.terms {
		if later > n && t.leader != "" && !w.has(t.begins, e) {
			return fmt.Errorf("%v is committed, and %s leads term %d without it (Raft, figure 3: leader completeness)",
				e.Place,
				t.leader, later)
		}
	}
	return nil
}

// applied is an entry that the state has: it is committed, and on the disk.
func (c *Checker) applied(d *disk, e Event) error {
	if d.world == nil || d.world.nodes[e.Last] == nil {
		return errors.New("nobody has made the entry")
	}
	w, n := d.world, d.world.nodes[e.Last]
	if !d.has(n) {
		return fmt.Errorf("it is not on its disk, whose log ends with %v", placeOf(d.last()))
	}
	if e.Last.Index <= d.applied {
		return fmt.Errorf("the state goes back: it had entry %d", d.applied)
	}
	before := d.executed
	d.applied, d.executed = e.Last.Index, e.Last.Index
	for _, x := range e.Commands {
		d.zxid = max(d.zxid, x.Zxid)
	}
	if err := c.claimed(d, e, n); err != nil {
		return err
	}
	if err := c.execute(w, n, e.Commands); err != nil {
		return err
	}
	return w.execution.add(before, e.Last.Index, e.Commands)
}

// restored is a state that a snapshot of a leader has replaced: by the same, or a newer one. It is
// one of those that the leader of the member's term has sent; some of them may never have arrived
// whole.
func (d *disk) restored(e Event) error {
	newest, from := uint64(0), uint64(0)
	for _, a := range d.asks {
		if a.Request != Install || a.Event.Term != d.term {
			continue
		}
		newest = max(newest, a.Last.Index)
		if a.Last.Index >= d.applied && (from == 0 || a.Last.Index < from) {
			from = a.Last.Index
		}
	}
	if from == 0 {
		return fmt.Errorf("the state goes back: it had entry %d, and the snapshot ends with %d (UPSTREAM.md, 4)",
			d.applied, newest)
	}
	d.applied, d.executed, d.installed = from, 0, newest
	if d.world != nil {
		d.world.sessions.replaced(d.id, d.zxid, e.Zxid)
	}
	d.zxid = e.Zxid
	return nil
}

// execute takes over the commands of the entries up to n that no other member has executed before.
func (c *Checker) execute(w *world, n *node, commands []Command) error {
	before := w.sessions.index
	for _, x := range commands {
		if x.Index <= before {
			continue
		}
		w.sessions.index = max(w.sessions.index, x.Index)
		if err := c.refiled(w.at(n, x.Index), x.Lines); err != nil {
			return err
		}
		w.serves = w.serves || x.Deed != ""
		for _, other := range c.worlds {
			if other != w && other.serves && w.serves {
				return errors.New("clients have had answers of another cluster (C1)")
			}
		}
		if err := w.sessions.execute(x, w.commits.at(x.Index, c.now)); err != nil {
			return err
		}
		if err := w.execution.change(x); err != nil {
			return err
		}
	}
	w.commits = w.commits.behind(w.sessions.index)
	return nil
}

// refiled compares an entry by which a leader takes over the members of its configuration file with
// the files of the voters: a majority has the same, or has had it. lines is 0 in other entries.
func (c *Checker) refiled(n *node, lines uint32) error {
	if lines == 0 || n == nil || n.config == nil {
		return nil
	}
	has := func(id raft.ServerID) bool { return c.files[memberFile{raftnet.IDOf(id), lines}] }
	if !majority(n.config.Voters, has) {
		return errors.New("the leader takes over the members of a file that no majority of the voters has had " +
			"(docs/decisions/019, members of the files)")
	}
	return nil
}

// claimed is an entry that a member has applied: a majority has it.
func (c *Checker) claimed(d *disk, e Event, n *node) error {
	w := d.world
	if w.has(w.committed, n) {
		return nil
	}
	if at := w.at(w.committed, n.Index); at != nil {
		return fmt.Errorf("%v is committed there (Raft, figure 3: state machine safety)", at.Place)
	}
	open := claim{event: e.String(), entry: n, holds: map[uint64]map[raft.ServerID]uint64{}}
	for number, t := range w.terms {
		if number >= n.Term && len(t.holds) > 0 && t.tip != nil {
			open.holds[number] = maps.Clone(t.holds)
		}
	}
	w.unexplained = append(w.unexplained, open)
	return nil
}
