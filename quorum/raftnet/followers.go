package raftnet

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/clock"
	"lockkeeper/quorum/peer"
)

// Followers is a leader's knowledge of its followers: the proof that they still follow it, the
// progress of each, and the commit index to send next. On other members it is empty.
type Followers struct {
	self  raft.ServerID
	local Local
	clock *clock.Clock

	// Lock: mu is a leaf.
	mu         sync.Mutex
	newest     uint64 // the newest term that a follower has answered with
	term       uint64 // of the leadership that the fields below belong to
	commit     uint64 // the commit index that followers are sent: this leader's applied index
	commitTerm uint64 // of the entry there
	durable    uint64 // the newest entry of this leadership that is on this member's disk
	followers  map[raft.ServerID]*follower
	acked      map[peer.DiskID]ack         // see Acked; it outlives terms
	pipelines  map[raft.ServerID]*pipeline // the newest of each follower, while it works
}

// follower is what a leader knows of one follower, within one term.
type follower struct {
	id     raft.ServerID
	disk   peer.DiskID // of id
	addr   raft.ServerAddress
	header raft.AppendEntriesRequest // Term and RPCHeader of a request of this term
	// contactAt is when the newest request that it has answered was sent, by Followers.clock.
	contactAt time.Time
	// syncedAt is when the newest request was sent that it has answered when it had everything that
	// was committed at that time; zero since its pipeline ended or it refused a request.
	syncedAt time.Time

	matched uint64 // it has the log up to here
	// took is the time from the newest answered request with entries to its answer: about a write
	// of its disk.
	took         time.Duration
	commitAcked  uint64 // the commit index that it has confirmed to know
	commitSent   uint64 // the commit index that it was sent, confirmed or not
	confirm      bool   // it is to confirm the commit index, so a notice is not enough
	entriesSent  uint64 // its pipeline has carried the entries up to here; 0: there is none
	commitsEarly bool   // it and this leader are a majority

	wake chan struct{} // capacity 1: a commit index may be due
}

// opened records the newest pipeline of its follower.
func (l *Followers) opened(p *pipeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pipelines[p.id] = p
}

// ended records that a pipeline has failed or was closed: the follower may not have received its
// requests.
func (l *Followers) ended(p *pipeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pipelines[p.id] != p {
		return
	}
	delete(l.pipelines, p.id)
	if f := l.followers[p.id]; f != nil {
		f.commitSent, f.entriesSent, f.syncedAt = f.commitAcked, 0, time.Time{}
	}
}

// carried records that a request was sent over a pipeline, with its entries and its commit index.
func (l *Followers) carried(p *pipeline, args *raft.AppendEntriesRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.followers[p.id]
	if f == nil || l.pipelines[p.id] != p || l.term != args.Term {
		return
	}
	f.commitSent = max(f.commitSent, min(args.LeaderCommitIndex, f.matched))
	if len(args.Entries) == 0 {
		return
	}
	f.entriesSent = args.Entries[len(args.Entries)-1].Index
	l.wakeLocked(f)
}

// noteAnswer records a follower's answer to a request that was sent at start, by l.clock. It
// returns the follower if it is a new one.
func (l *Followers) noteAnswer(id raft.ServerID, addr raft.ServerAddress, start time.Time,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (added *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = max(l.newest, resp.Term)
	if resp.Term != args.Term {
		return nil // it follows another leader
	}
	if args.Term < l.term {
		return nil
	}
	l.enterTermLocked(args.Term)
	f := l.followers[id]
	if f == nil {
		f = &follower{id: id, disk: DiskOf(id), wake: make(chan struct{}, 1)}
		f.header = raft.AppendEntriesRequest{RPCHeader: args.RPCHeader, Term: args.Term}
		l.followers[id] = f
		added = f
	}
	f.addr = addr
	if start.After(f.contactAt) {
		f.contactAt = start
	}
	// A request may overtake another one on its own stream, but not one that was answered before it
	// was sent.
	if known := l.acked[f.disk]; resp.LastLog < known.index && start.After(known.at) {
		known.setBack = true
		l.acked[f.disk] = known
	}
	if !resp.Success {
		f.matched = min(f.matched, resp.LastLog) // it has lost its log, if it had more
		f.syncedAt = time.Time{}
		return added
	}
	if args.PrevLogEntry == 0 && len(args.Entries) == 0 {
		// A heartbeat, which says nothing of the log.
		if !f.syncedAt.IsZero() && f.matched >= l.commit {
			f.synced(start)
		}
		return added
	}
	now := l.clock.Now()
	f.matched = max(f.matched, args.PrevLogEntry+uint64(len(args.Entries)))
	if len(args.Entries) > 0 {
		f.took = now.Sub(start)
	}
	if f.matched >= args.LeaderCommitIndex {
		f.synced(start)
	}
	l.ackedLocked(f.disk, min(l.commit, f.matched), now)
	f.commitAcked = max(f.commitAcked, min(args.LeaderCommitIndex, f.matched))
	f.commitSent = max(f.commitSent, f.commitAcked)
	l.wakeLocked(f)
	return added
}

// ack is how far a disk has acknowledged entries that are committed.
type ack struct {
	index   uint64
	at      time.Time // when this member learned of it, by Followers.clock
	setBack bool      // the disk has answered this leader with less
}

// Acked is the committed index up to which each disk is known to have acknowledged entries. A disk
// that has less was set back.
func (l *Followers) Acked() map[peer.DiskID]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	acked := map[peer.DiskID]uint64{}
	for disk, a := range l.acked {
		acked[disk] = a.index
	}
	return acked
}

// AckedBy is Acked for one disk, and whether that has answered this leader with less.
func (l *Followers) AckedBy(disk peer.DiskID) (index uint64, setBack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.acked[disk]
	return a.index, a.setBack
}

// NoteAcked records what another member, the leader, knows of the disks.
func (l *Followers) NoteAcked(acked map[peer.DiskID]uint64) {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for disk, index := range acked {
		l.ackedLocked(disk, index, now)
	}
}

// maxAcked bounds the disks that a member knows: those of a configuration, and some that were
// replaced.
const maxAcked = 256

func (l *Followers) ackedLocked(disk peer.DiskID, index uint64, now time.Time) {
	a, ok := l.acked[disk]
	if ok && index <= a.index {
		return
	}
	if !ok && len(l.acked) >= maxAcked {
		clear(l.acked) // those of this cluster come again
	}
	a.index, a.at = index, now
	l.acked[disk] = a
}

// synced records that a follower has everything that was committed at the time at.
func (f *follower) synced(at time.Time) {
	if at.After(f.syncedAt) {
		f.syncedAt = at
	}
}

// enterTermLocked forgets what belongs to an earlier term.
func (l *Followers) enterTermLocked(term uint64) {
	if term <= l.term {
		return
	}
	l.term, l.commit, l.durable = term, 0, 0
	for id, f := range l.followers {
		close(f.wake)
		delete(l.followers, id)
	}
}

// Commit records the commit index, up to which this leader has applied its log, and the term of the
// entry there, and sends them to followers.
func (l *Followers) Commit(index, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commit, l.commitTerm = index, term
	for _, f := range l.followers {
		l.wakeLocked(f)
	}
}

// Settled is Commit for the first entry of this leader's term that is committed, which has no
// updates: followers that are behind learn from it up to where they have to catch up.
func (l *Followers) Settled(index, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != term || index <= l.commit {
		return
	}
	l.commit, l.commitTerm = index, term
	for _, f := range l.followers {
		l.wakeLocked(f)
	}
}

// Wrote is called when an entry of that term of this leader, and with it all entries before, are on
// its disk. It reports whether any follower can apply it before this leader knows that it is
// committed (early commit).
func (l *Followers) Wrote(index, term uint64) (early bool) {
	voters, others := l.quorum()
	pairs := voters[l.self] && others == 1
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != term {
		return false
	}
	l.durable = index
	for id, f := range l.followers {
		f.commitsEarly = pairs && voters[id]
		early = early || f.commitsEarly
		l.wakeLocked(f)
	}
	return early
}

// pendingCommitLocked returns the commit index to send to a follower now, and the term of the entry
// there; 0: none. It is the newest commit if the follower has that entry and was not sent the
// index, or an early commit: the newest entry that is on this leader's disk and was sent to a
// follower with which it is a majority. The follower applies no entry that is not on its own disk.
func (l *Followers) pendingCommitLocked(f *follower) (index, term uint64) {
	switch {
	case f.matched >= l.commit && (f.commitSent < l.commit || f.confirm && f.commitAcked < l.commit):
		return l.commit, l.commitTerm
	case f.commitsEarly && !f.confirm && f.entriesSent >= l.durable &&
		f.commitSent < l.durable && l.commit < l.durable:
		return l.durable, l.term
	}
	return 0, 0
}

// wakeLocked wakes a follower's commitLoop if there is a commit index to send.
func (l *Followers) wakeLocked(f *follower) {
	if index, _ := l.pendingCommitLocked(f); index == 0 {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// takeDue returns the commit index that is due for a follower, as a request, and the pipeline to
// send it over; false: none is due. confirm says that the follower is to answer.
func (l *Followers) takeDue(f *follower) (args raft.AppendEntriesRequest, addr raft.ServerAddress, p *pipeline, confirm,
	due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	index, term := l.pendingCommitLocked(f)
	args = f.header
	// The entry is the previous one of this request, so that a follower with another log there
	// refuses. With 0 it would not compare.
	args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = index, term, index
	addr, p, confirm = f.addr, l.pipelines[f.id], f.confirm
	if due = index > 0 && l.term == args.Term; due {
		f.commitSent, f.confirm = index, false
	}
	return args, addr, p, confirm, due
}

// quorum returns the voters of the newest configuration in the log, and how many of them make a
// majority together with this member.
func (l *Followers) quorum() (voters map[raft.ServerID]bool, others int) {
	voters = map[raft.ServerID]bool{}
	for _, s := range l.local.Servers() {
		if s.Suffrage == raft.Voter {
			voters[s.ID] = true
		}
	}
	if others = len(voters)/2 + 1; voters[l.self] {
		others--
	}
	return voters, others
}

// ProvenAt returns a moment, by the clock that counts suspends (Config.Clock), at which a quorum of
// voters still took this member for the leader of term: no other leader had been elected by then.
// For a single voter that is now. The zero time means that there is no such moment yet, or none
// since this machine woke from a suspend.
//
// The voters are those of the newest configuration in the log, committed or not. Any other leader
// elected before that moment had this configuration, the one before it, or one that this leader has
// seen replaced by a committed one. A majority of the newest has a member in common with every
// majority of the first two, which differ by one voter at most; and by the last no member can
// be elected that lacks the committed one, whose majority knew it (Raft, section 5.4).
func (l *Followers) ProvenAt(term uint64, now time.Time) time.Time {
	voters, need := l.quorum()
	if need == 0 {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != term {
		return time.Time{}
	}
	// The newest moment with which enough followers agree: the need-th newest of their contacts.
	var newest []time.Time
	for id, f := range l.followers {
		if voters[id] && id != l.self {
			newest = append(newest, f.contactAt)
		}
	}
	if len(newest) < need {
		return time.Time{}
	}
	slices.SortFunc(newest, func(a, b time.Time) int { return b.Compare(a) })
	at := newest[need-1]
	if at.Before(l.clock.Woke()) {
		return time.Time{}
	}
	return at
}

// Synced counts the followers, and observers, that have answered a request that was sent after
// since, by Config.Clock, and had all that was committed then.
func (l *Followers) Synced(since time.Time) (followers, observers int) {
	servers := l.local.Servers()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range servers {
		f := l.followers[s.ID]
		switch {
		case f == nil || !f.syncedAt.After(since):
		case s.Suffrage == raft.Voter:
			followers++
		default:
			observers++
		}
	}
	return followers, observers
}

// SyncedSince is Synced for one of them.
func (l *Followers) SyncedSince(id raft.ServerID, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.followers[id]
	return f != nil && f.syncedAt.After(since)
}

// KnowsAll reports whether a follower has confirmed to know the newest commit index. If not, it is
// sent a request that makes it confirm.
func (l *Followers) KnowsAll(id raft.ServerID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.followers[id]
	if f == nil || f.commitAcked >= l.commit {
		return f != nil
	}
	f.confirm = true
	l.wakeLocked(f)
	return false
}

// Progress returns up to where a follower has the log, and when the newest request that it has
// answered was sent, by Config.Clock.
func (l *Followers) Progress(id raft.ServerID) (matched uint64, heard time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.followers[id]; f != nil {
		return f.matched, f.contactAt
	}
	return 0, time.Time{}
}

// newestTerm returns the newest term that a follower has answered with.
func (l *Followers) newestTerm() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// Took returns the time that a follower took for the newest request with entries that it has
// answered; 0 if there was none.
func (l *Followers) Took(id raft.ServerID) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.followers[id]; f != nil {
		return f.took
	}
	return 0
}

// Forget drops what is known of a follower, which may come back with another log.
func (l *Followers) Forget(id raft.ServerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.followers[id]; f != nil {
		close(f.wake)
		delete(l.followers, id)
	}
}
