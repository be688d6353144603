package simtest

import (
	"encoding/binary"
	"sync"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/model/trace"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
)

// explained has the protocol explain all that the members of a cluster write, are asked and answer
// (C1). The first event that it does not explain is an error.
type explained struct {
	c *cluster

	mu      sync.Mutex
	checker *trace.Checker
	recent  []trace.Event
	broken  bool
}

// recentEvents is the number of events that are shown before one that is not explained.
const recentEvents = 40

func newExplained(c *cluster) *explained { return &explained{c: c, checker: trace.NewChecker()} }

// record has the events of a program that is about to start on the stores, with these members in
// its file, come to x, while m runs this program: the writes of one that was ended by force are on
// no disk.
func (x *explained) record(m *member, stores *store.Stores, file []peer.Member) (*directed, error) {
	start := m.starts.Add(1)
	stores.Stable = noticedStable{stores.Stable, m}
	stores.Log = directedLog{stores.Log, x.c.director, m}
	r, err := trace.Record(stores, file, func(e trace.Event) {
		if start == m.starts.Load() {
			x.event(e)
		}
	})
	if err != nil {
		return nil, err
	}
	return &directed{r, x.c.director, m, start}, nil
}

func (x *explained) event(e trace.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken {
		return
	}
	e.At = x.c.journal.age()
	if len(x.recent) >= 2*recentEvents {
		x.recent = append(x.recent[:0], x.recent[recentEvents:]...)
	}
	x.recent = append(x.recent, e)
	x.c.director.see(e)
	x.report(x.checker.Add(e))
}

// end looks at the events that only later ones could have explained.
func (x *explained) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.broken {
		x.report(x.checker.Finish())
	}
}

// report writes the newest events into the journal, with an error.
func (x *explained) report(err error) {
	if err == nil {
		return
	}
	x.broken = true
	for _, e := range x.recent[max(0, len(x.recent)-recentEvents):] {
		x.c.journal.line(false, "event %v", e)
	}
	x.c.t.Errorf("after %v: the protocol does not explain this: %v", x.c.journal.age(), err)
}

// disk adds an event of a disk that no process uses.
func (x *explained) disk(d *simdisk.Disk, what trace.Kind) {
	identity, _ := d.Get([]byte(keyIdentity))
	if len(identity) != 16 {
		return // it belongs to no cluster yet
	}
	owner, id := binary.BigEndian.Uint64(identity), binary.BigEndian.Uint64(identity[8:])
	x.event(trace.Event{Kind: what, On: raftnet.ServerID(peer.MemberID(owner), peer.DiskID(id))})
}

// keyIdentity is where a disk has its identity.
const keyIdentity = "lockkeeper/identity"

// noticedStable calls wrote.
type noticedStable struct {
	store.Stable
	m *member
}

// SetUint64 implements raft.StableStore.
func (s noticedStable) SetUint64(key []byte, n uint64) error {
	defer s.m.wrote(string(key))
	return s.Stable.SetUint64(key, n)
}

// Set implements raft.StableStore.
func (s noticedStable) Set(key, value []byte) error {
	defer s.m.wrote(string(key))
	return s.Stable.Set(key, value)
}

// SetVote implements store.Stable.
func (s noticedStable) SetVote(term uint64, candidate []byte) error {
	defer s.m.wrote(string(store.VoteTerm))
	return s.Stable.SetVote(term, candidate)
}
