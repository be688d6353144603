package simtest

import (
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/store"
)

// ledger has every entry that any member ever applied or stored, with its term and a digest,
// whatever has become of its disk since. Two members that apply different entries at one index have
// different histories, and two that store different ones in one term have two leaders (C1).
type ledger struct {
	c    *cluster
	acks atomic.Int64 // on the wire

	mu      sync.Mutex
	entries map[uint64]applied
	stored  map[place]uint64 // digests
	lives   map[string]*life // by identity of the disk
}

// place is where a leader puts one entry.
type place struct{ index, term uint64 }

// applied is an entry.
type applied struct {
	term, digest uint64
	by           uint8 // the first member that applied it
}

func newLedger(c *cluster) *ledger {
	return &ledger{c: c, entries: make(map[uint64]applied), stored: make(map[place]uint64), lives: make(map[string]*life)}
}

// applied compares an entry that a member has applied with the one that others have.
func (l *ledger) applied(by uint8, e *raft.Log) {
	a := applied{e.Term, digest(e), by}
	l.mu.Lock()
	defer l.mu.Unlock()
	first, known := l.entries[e.Index]
	if !known {
		l.entries[e.Index] = a
		return
	}
	if first.term != a.term || first.digest != a.digest {
		l.c.t.Errorf("after %v: m%d has applied an entry of term %d at %d, and m%d another one, of term %d",
			l.c.journal.age(), first.by, first.term, e.Index, by, e.Term)
	}
}

// store compares entries that a member stores with those that others have stored.
func (l *ledger) store(by uint8, entries []*raft.Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		at, d := place{e.Index, e.Term}, digest(e)
		if first, known := l.stored[at]; known && first != d {
			l.c.t.Errorf("after %v: m%d stores another entry of term %d at %d than somebody before",
				l.c.journal.age(), by, e.Term, e.Index)
		}
		l.stored[at] = d
	}
}

// digest is one of the content of an entry.
func digest(e *raft.Log) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(append([]byte{byte(e.Type)}, e.Data...)) // a hash takes everything
	return h.Sum64()
}

// observedLog is a member's log. The ledger gets the entries that the member applies.
type observedLog struct {
	store.Log
	m     *member
	start int32 // see observedStable
}

// StoreLog implements raft.LogStore.
func (o observedLog) StoreLog(e *raft.Log) error { return o.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore.
func (o observedLog) StoreLogs(entries []*raft.Log) error {
	o.m.c.ledger.store(o.m.id, entries)
	return o.Log.StoreLogs(entries)
}

// SetCommitIndex implements store.Log: it is called with each command that was applied. On a disk
// that fails it may be unreadable. A program that has been ended by force, and is no longer heard
// of, does not count: its later writes are on no disk.
func (o observedLog) SetCommitIndex(index uint64) {
	var e raft.Log
	if err := o.GetLog(index, &e); err == nil && o.start == o.m.starts.Load() {
		o.m.c.ledger.applied(o.m.id, &e)
	}
	o.Log.SetCommitIndex(index)
}

// life has the promises of a disk, whoever used it.
type life struct {
	mu    sync.Mutex
	term  uint64        // the highest that was saved
	vote  vote          // the newest that was saved
	votes map[vote]bool // votes with a begun write
}

type vote struct {
	term uint64
	whom string
}

// life is the one of the disk with that identity, which is empty for a disk without one.
func (l *ledger) life(identity []byte) *life {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lives[string(identity)]
	if of == nil || len(identity) == 0 {
		of = &life{votes: make(map[vote]bool)}
		l.lives[string(identity)] = of
	}
	return of
}

// setBack has the life of a disk go back to an image's.
func (l *ledger) setBack(image *simdisk.Disk) {
	identity, _ := image.Get([]byte(keyIdentity))
	v := savedVote(image)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lives[string(identity)] = &life{votes: map[vote]bool{v: true}}
}

// savedVote is the vote that a disk has.
func savedVote(s raft.StableStore) vote {
	term, _ := s.GetUint64([]byte(keyVoteTerm)) // 0 if there is none
	whom, _ := s.Get([]byte(keyCandidate))
	return vote{term, string(whom)}
}

// observedStable has the stable values of a disk. It checks that the term never falls, that the
// disk votes once in a term and in none below, and that it finds its votes as it has given them.
type observedStable struct {
	store.Stable
	m     *member
	life  *life
	start int32 // the number of starts of the member, this one included
}

// The keys of the values that it looks at.
const (
	keyTerm      = "CurrentTerm"
	keyVoteTerm  = "LastVoteTerm"
	keyCandidate = "LastVoteCand"
	keyIdentity  = "lockkeeper/identity"
)

// observeStable is called at each start.
func observeStable(s store.Stable, m *member) *observedStable {
	identity, _ := s.Get([]byte(keyIdentity)) // a new disk has none
	o := &observedStable{Stable: s, m: m, life: m.c.ledger.life(identity), start: m.starts.Add(1)}
	o.life.mu.Lock()
	defer o.life.mu.Unlock()
	term, _ := s.GetUint64([]byte(keyTerm))
	found := savedVote(s)
	if term < o.life.term {
		o.wrong("has the term %d, and had %d", term, o.life.term)
	}
	if found.term < o.life.vote.term || found.term > 0 && !o.life.votes[found] {
		o.wrong("has the vote %v, and its newest was %v", found, o.life.vote)
	}
	o.life.vote = found
	return o
}

// saved has f note something that was saved, unless the program is one that is no longer heard of.
func (o *observedStable) saved(err error, f func(*life)) {
	o.life.mu.Lock()
	defer o.life.mu.Unlock()
	if err == nil && o.start == o.m.starts.Load() {
		f(o.life)
	}
}

func (o *observedStable) wrong(format string, args ...any) {
	o.m.c.t.Errorf("after %v: the disk of m%d %s", o.m.c.journal.age(), o.m.id, fmt.Sprintf(format, args...))
}

// SetUint64 implements raft.StableStore.
func (o *observedStable) SetUint64(key []byte, n uint64) error {
	if string(key) == keyTerm {
		o.saved(nil, func(l *life) {
			if n < l.term {
				o.wrong("saves the term %d after %d", n, l.term)
			}
		})
	}
	err := o.Stable.SetUint64(key, n)
	if string(key) == keyTerm {
		o.saved(err, func(l *life) { l.term = max(l.term, n) })
	}
	o.m.wrote()
	return err
}

// Set implements raft.StableStore.
func (o *observedStable) Set(key, value []byte) error {
	if string(key) == keyIdentity {
		o.life = o.m.c.ledger.life(value)
	}
	var v vote
	if string(key) == keyCandidate { // behind its term, not with it
		v.term, _ = o.GetUint64([]byte(keyVoteTerm))
		v.whom = string(value)
		o.saved(nil, func(l *life) { l.votes[v] = true })
	}
	err := o.Stable.Set(key, value)
	if v.term > 0 {
		o.saved(err, func(l *life) { l.vote = v })
	}
	o.m.wrote()
	return err
}

// SetVote implements store.Stable.
func (o *observedStable) SetVote(term uint64, candidate []byte) error {
	v := vote{term, string(candidate)}
	o.saved(nil, func(l *life) {
		if v.term < l.vote.term || v.term == l.vote.term && v.whom != l.vote.whom || term < l.term {
			o.wrong("gives the vote %v after %v, in term %d", v, l.vote, l.term)
		}
		l.votes[v] = true
	})
	err := o.Stable.SetVote(term, candidate)
	o.saved(err, func(l *life) { l.vote = v })
	o.m.wrote()
	return err
}

// observe has a request of raft that arrives at the member, and its answer. No acknowledgement is
// of a term below the term of a vote that the disk had given before the request came (C1). A later
// vote may overtake an answer on its way to the network.
func (o *observedStable) observe(any) (answered func(answer any)) {
	o.life.mu.Lock()
	before := o.life.vote
	o.life.mu.Unlock()
	return func(answer any) {
		term, success := uint64(0), false
		switch a := answer.(type) {
		case *raft.AppendEntriesResponse:
			term, success = a.Term, a.Success
		case *raft.InstallSnapshotResponse:
			term, success = a.Term, a.Success
		case *raft.RequestVoteResponse:
			term, success = a.Term, a.Granted
		}
		o.saved(nil, func(*life) {
			if !success {
				return
			}
			o.m.c.ledger.acks.Add(1)
			if term < before.term {
				o.wrong("acknowledges with a %T of term %d after the vote %v", answer, term, before)
			}
		})
	}
}

// wrote is called behind each write of a stable value. It has the power fail there if the nemesis
// waits for that.
func (m *member) wrote() {
	if failing := m.cutAtValue.Swap(nil); failing != nil {
		close(*failing)
		time.Sleep(10 * time.Millisecond) // it is powerless by then
	}
}

// cutAtValues has the power of members fail right behind the write of a stable value, while there
// are elections.
func (n *nemesis) cutAtValues() func() {
	undo := func() {}
	for range 2 + n.rng.IntN(6) {
		m := n.any()
		undo()
		undo = n.isolate(n.leader())
		for range 1 + n.rng.IntN(3) {
			failing := make(chan struct{})
			m.cutAtValue.Store(&failing)
			select {
			case <-failing:
				n.note("the power of m%d fails behind the write of a value", m.id)
				m.powerCut()
				m.start()
			case <-time.After(3 * time.Second):
				m.cutAtValue.Store(nil)
			}
		}
	}
	return undo
}
