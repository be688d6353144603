package trace

import (
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Recorder makes events of the acts of one process of a member.
type Recorder struct {
	emit    func(Event)
	lines   uint32                        // the members in the configuration file, as peer.Sum
	on      atomic.Pointer[raft.ServerID] // nil: the disk has no identity yet
	numbers atomic.Uint64                 // of requests
	stores  *store.Stores

	// The goroutine that applies entries has these: the executed commands that are of no event yet,
	// and the number of them that are of earlier entries.
	commands []Command
	earlier  int
}

// Record puts a Recorder on top of the stores of a process that is about to start, with these
// members in its configuration file. emit gets each event; several goroutines call it, each before
// anything follows from the event.
func Record(stores *store.Stores, file []peer.Member, emit func(Event)) (*Recorder, error) {
	r := &Recorder{emit: emit, lines: peer.Sum(file)}
	inner := *stores
	r.stores = &inner
	identity, err := stores.Identity()
	if err != nil {
		return nil, err
	}
	if identity.Disk != 0 {
		if err := r.named(identity); err != nil {
			return nil, err
		}
	}
	stores.Log = recordedLog{inner.Log, r}
	stores.Stable = recordedStable{inner.Stable, r}
	return r, nil
}

// tailEntries is the number of entries that a start reports: more than a write can have had that
// was under way when the process before ended.
const tailEntries = 256

// named reports the start of a process, when its disk has an identity.
func (r *Recorder) named(identity store.Identity) error {
	on := raftnet.ServerID(peer.MemberID(identity.Owner), peer.DiskID(identity.Disk))
	e := Event{On: on, Kind: Started, Lines: r.lines}
	var err error
	if e.Term, err = r.stores.Number(store.Term); err != nil {
		return err
	}
	if e.VoteTerm, err = r.stores.Number(store.VoteTerm); err != nil {
		return err
	}
	// The store has an error for a value that is not there.
	if whom, _ := r.stores.Stable.Get([]byte(store.VoteCandidate)); len(whom) > 0 {
		e.Of = serverAt(whom, on)
	}
	first, err := r.stores.Log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := r.stores.Log.LastIndex()
	if err != nil {
		return err
	}
	e.First = first
	for i := max(first, last-min(last, tailEntries)); i > 0 && i <= last; i++ {
		var l raft.Log
		if err := r.stores.Log.GetLog(i, &l); err != nil {
			return err
		}
		e.Entries = append(e.Entries, entryOf(&l))
	}
	if n := len(e.Entries); n > 0 {
		e.Last = e.Entries[n-1].Place
	}
	newest, err := r.stores.Newest()
	if err != nil {
		return err
	}
	if newest != nil {
		e.Snapshot = Place{newest.Index, newest.Term}
	}
	r.emit(e)
	r.on.Store(&on)
	return nil
}

// serverAt is the server that raft has saved as its candidate; a member alone saves its address.
func serverAt(candidate []byte, self raft.ServerID) raft.ServerID {
	if raft.ServerAddress(candidate) == raftnet.AloneAddr {
		return self
	}
	return raft.ServerID(candidate)
}

// event emits an event of the disk, if that has an identity.
func (r *Recorder) event(e Event) {
	if on := r.on.Load(); on != nil {
		e.On = *on
		r.emit(e)
	}
}

func entryOf(l *raft.Log) Entry {
	e := Entry{Place: Place{l.Index, l.Term}, Digest: digest(l)}
	if l.Type == raft.LogConfiguration {
		for _, s := range raft.DecodeConfiguration(l.Data).Servers {
			if s.Suffrage == raft.Voter {
				e.Voters = append(e.Voters, s.ID)
			}
		}
	}
	return e
}

func entriesOf(logs []*raft.Log) []Entry {
	entries := make([]Entry, len(logs))
	for i, l := range logs {
		entries[i] = entryOf(l)
	}
	return entries
}

// digest is one of the type and the content of an entry.
func digest(l *raft.Log) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(append([]byte{byte(l.Type)}, l.Data...)) // a hash takes everything
	return h.Sum64()
}

// Observe is quorum.Config.ObserveRaft.
func (r *Recorder) Observe(request any) (answered func(answer any)) {
	e := Event{Kind: Asked, Number: r.numbers.Add(1)}
	switch q := request.(type) {
	case *raft.AppendEntriesRequest:
		e.Request, e.Term, e.Of = Append, q.Term, raft.ServerID(q.ID)
		e.Last = Place{q.PrevLogEntry, q.PrevLogTerm}
		e.Entries = entriesOf(q.Entries)
	case *raft.RequestVoteRequest:
		e.Request, e.Term, e.Of = Vote, q.Term, raft.ServerID(q.ID)
		e.Last = Place{q.LastLogIndex, q.LastLogTerm}
	case *raft.InstallSnapshotRequest:
		e.Request, e.Term, e.Of = Install, q.Term, raft.ServerID(q.ID)
		e.Last = Place{q.LastLogIndex, q.LastLogTerm}
	default:
		return func(any) {}
	}
	r.event(e)
	return func(answer any) {
		a := Event{Kind: Answered, Number: e.Number}
		switch x := answer.(type) {
		case *raft.AppendEntriesResponse:
			a.Term, a.OK = x.Term, x.Success
		case *raft.RequestVoteResponse:
			a.Term, a.OK = x.Term, x.Granted
		case *raft.InstallSnapshotResponse:
			a.Term, a.OK = x.Term, x.Success
		}
		r.event(a)
	}
}

// recordedLog records the writes to a log.
type recordedLog struct {
	store.Log
	r *Recorder
}

// StoreLog implements raft.LogStore.
func (l recordedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore.
func (l recordedLog) StoreLogs(entries []*raft.Log) error {
	err := l.Log.StoreLogs(entries)
	if err == nil {
		l.r.event(Event{Kind: Stored, Entries: entriesOf(entries)})
	}
	return err
}

// DeleteRange implements raft.LogStore. It is recorded before it begins, since it may be durable in
// part.
func (l recordedLog) DeleteRange(first, last uint64) error {
	l.r.event(Event{Kind: Removed, First: first, Last: Place{Index: last}})
	return l.Log.DeleteRange(first, last)
}

// SetCommitIndex implements store.Log: it is called with each entry that was applied.
func (l recordedLog) SetCommitIndex(index uint64) {
	r := l.r
	for i := r.earlier; i < len(r.commands); i++ {
		r.commands[i].Index = index
	}
	var e raft.Log
	if err := l.GetLog(index, &e); err == nil { // it may be compacted, or its disk may have failed
		if entry, err := znode.DecodeEntry(e.Data); err == nil {
			for i := r.earlier; i < len(r.commands); i++ {
				r.commands[i].EntryMs = entry.TimeMs
			}
		}
		r.event(Event{Kind: Applied, Last: Place{e.Index, e.Term}, Commands: r.commands})
		r.commands = nil
	}
	r.earlier = len(r.commands)
	l.Log.SetCommitIndex(index)
}

// Executed is called with each command that the state has executed, by the goroutine that applies
// entries.
func (r *Recorder) Executed(c *znode.Command, res *znode.Result) {
	deed := deedOf(c, res)
	lines := linesOf(c, res)
	if deed == "" && lines == 0 && len(res.Events) == 0 {
		return
	}
	x := Command{Deed: deed, Session: c.Session, Generation: c.Generation, Zxid: res.Zxid,
		Changed: len(res.Events) > 0, Result: resultOf(res), Lines: lines}
	for i := range res.Events {
		if e := &res.Events[i]; e.ReadableBy(nil) && !e.Guarded() {
			x.Changes = append(x.Changes, Change{e.Type, e.Path})
		}
	}
	if res.Stat.Mzxid == res.Zxid {
		x.MtimeMs = res.Stat.Mtime
	}
	switch deed {
	case Attached:
		x.Generation = res.Generation
	case Wrote, Closed:
		x.Seq = c.Seq
	}
	r.commands = append(r.commands, x)
}

// deedOf is the effect of a command on its session; empty: none.
func deedOf(c *znode.Command, res *znode.Result) Deed {
	switch kind := c.Kind(); {
	case res.Restored:
		return Reset
	case res.Status != znode.Done:
	case kind == znode.KindCreateSession, kind == znode.KindAttach:
		return Attached
	case kind == znode.KindExpire:
		return Expired
	case c.Closes():
		return Closed
	case kind == znode.KindRequest, kind == znode.KindRestore:
		return Wrote
	}
	return ""
}

// linesOf is Command.Lines.
func linesOf(c *znode.Command, res *znode.Result) uint32 {
	change, is := c.Body.(*znode.ChangeMembers)
	if !is || !res.Deferred {
		return 0
	}
	members, _, err := znode.ParseConfigText(change.Text)
	if err != nil {
		return 0
	}
	file := make([]peer.Member, len(members))
	for i, m := range members {
		file[i] = peer.Member{ID: peer.MemberID(m.ID), Observer: m.Observer}
	}
	return peer.Sum(file)
}

// resultOf is a digest of the effects of a command and its answer.
func resultOf(res *znode.Result) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, res.Code, res.Zxid, res.Generation, res.Path, len(res.Multi))
	for i := range res.Events {
		fmt.Fprint(h, res.Events[i].Type, res.Events[i].Path)
	}
	return h.Sum64()
}

// Restored is called when a snapshot of the leader has replaced the state, by the goroutine that
// applies entries, with the zxid of the new state.
func (r *Recorder) Restored(zxid wire.Zxid) { r.event(Event{Kind: Restored, Zxid: zxid}) }

// Connected returns the functions for the bytes to the client of a session with this timeout, in a
// cluster with these ticks: offer is to be called immediately before bytes are sent, and sent
// behind it with the number of them that were. The next bytes are those behind them.
func (r *Recorder) Connected(id wire.SessionID, generation uint64, timeout, tick time.Duration) (offer func(b []byte),
	sent func(n int)) {
	var frames cutter
	e := Event{Kind: Sent, Session: id, Generation: generation, Belief: 2*timeout/3 + tick/2}
	return func(b []byte) {
		e := e
		e.Frames = frames.offer(b)
		r.event(e)
	}, frames.sent
}

// Requested is to be called with each frame from a client, or the head of one that is too large,
// before it takes effect.
func (r *Recorder) Requested(id wire.SessionID, generation uint64, frame []byte) {
	q, err := wire.DecodeRequest(frame)
	if err != nil {
		return // it ends the connection
	}
	if q.Op == wire.OpPing || q.Xid == wire.XidPing || q.Xid == wire.XidNotification {
		return
	}
	call := Call{Xid: q.Xid, Op: q.Op}
	if q.Op == wire.OpSetWatches || q.Op == wire.OpSetWatches2 {
		w := &wire.SetWatchesRequest{V2: q.Op == wire.OpSetWatches2}
		if wire.Decode(q.Body, w) == nil {
			call.Watches = w
		}
	}
	r.event(Event{Kind: Called, Session: id, Generation: generation, Call: &call})
}

// recordedStable records the writes of the term and the vote.
type recordedStable struct {
	store.Stable
	r *Recorder
}

// SetUint64 implements raft.StableStore.
func (s recordedStable) SetUint64(key []byte, n uint64) error {
	err := s.Stable.SetUint64(key, n)
	if err == nil && string(key) == string(store.Term) {
		s.r.event(Event{Kind: SavedTerm, Term: n})
	}
	return err
}

// SetVote implements store.Stable.
func (s recordedStable) SetVote(term uint64, candidate []byte) error {
	err := s.Stable.SetVote(term, candidate)
	if err == nil {
		s.voted(term, candidate)
	}
	return err
}

func (s recordedStable) voted(term uint64, candidate []byte) {
	if on := s.r.on.Load(); on != nil {
		s.r.event(Event{Kind: SavedVote, Term: term, Of: serverAt(candidate, *on)})
	}
}

// Set implements raft.StableStore.
func (s recordedStable) Set(key, value []byte) error {
	err := s.Stable.Set(key, value)
	switch {
	case err != nil:
	case string(key) == store.VoteCandidate: // behind its term, not with it
		term, err := s.r.stores.Number(store.VoteTerm)
		if err != nil {
			return err
		}
		s.voted(term, value)
	case s.r.on.Load() == nil: // perhaps the identity
		identity, err := s.r.stores.Identity()
		if err == nil && identity.Disk != 0 {
			err = s.r.named(identity)
		}
		return err
	}
	return err
}
