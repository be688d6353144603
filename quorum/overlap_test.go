package quorum

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/freeport"
	"lockkeeper/internal/rafttest"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
)

var overlaps = flag.Int("overlaps", 400, "how many votes a heartbeat overlaps with; a tenth as many times it overlaps with proposals")

// A heartbeat of an older term that overlaps with a vote takes nothing back: the member stays in
// the term of its vote, in memory and on its disk (UPSTREAM.md, 15). The files and the sockets are
// real, because the goroutines race.
//
// Defends: C1.
func TestOverlapsOfHeartbeatsWithVotes(t *testing.T) {
	ports, err := freeport.Take(3)
	if err != nil {
		t.Fatal(err)
	}
	var members []Member
	for i, port := range ports {
		members = append(members, Member{ID: MemberID(i + 1), Addr: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	dir := t.TempDir()
	s, err := store.Open(dir, dir, store.LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	rec.failed = func(err error) { t.Error(err) }
	cfg := Config{ID: 1, Members: members, Tick: 4 * time.Second, Stores: s, Listener: rec, Logger: testLogger()}
	rc := raft.DefaultConfig()
	rc.LocalID, rc.Logger = serverOf(0), newHclog(testLogger())
	_, alone := raft.NewInmemTransport("1")
	if err := raft.BootstrapCluster(rc, s.Log, s.Stable, s.Snapshots, alone, raft.Configuration{Servers: rafttest.Servers("123")}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SetNumber(store.Cluster, 7), s.SetIdentity(store.Identity{Owner: 1, Disk: 1})); err != nil {
		t.Fatal(err)
	}
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	transport := func(id MemberID) *raftnet.Transport {
		roster := peer.NewRoster(members, false, raftnet.ForPort(aboveOf(r)))
		roster.SetCluster(7)
		p, err := peer.Listen(peer.Config{ID: id, Disk: peer.DiskID(id), Members: members}, roster, raftnet.ForPort(aboveOf(r)))
		if err != nil {
			t.Fatal(err)
		}
		tr := raftnet.New(raftnet.Config{Self: raftnet.ServerID(id, peer.DiskID(id)), Local: aboveOf(r), Port: p})
		t.Cleanup(func() { p.Close(); tr.Close() })
		return tr
	}
	leader, candidate, to, votes := transport(2), transport(3), serverOf(0), 0
	for i := range *overlaps {
		term, last := r.raft.CurrentTerm(), r.raft.LastIndex()
		granted := make(chan bool, 1)
		go func() {
			var resp raft.RequestVoteResponse
			_ = candidate.RequestVote(to, "", &raft.RequestVoteRequest{RPCHeader: rafttest.Header(3), Term: term + 2,
				LastLogIndex: last + 100, LastLogTerm: term, LeadershipTransfer: true}, &resp)
			granted <- resp.Granted
		}()
		time.Sleep(time.Duration(i%20) * 40 * time.Microsecond) // the overlap varies
		_ = leader.AppendEntries(to, "", &raft.AppendEntriesRequest{RPCHeader: rafttest.Header(2), Term: term + 1}, &raft.AppendEntriesResponse{})
		if !<-granted {
			continue
		}
		votes++
		saved, err := s.Number(store.Term)
		if err != nil || saved < term+2 || r.raft.CurrentTerm() < term+2 {
			t.Fatalf("after a vote in term %d the member is in term %d, and its disk in term %d: %v", term+2, r.raft.CurrentTerm(), saved, err)
		}
	}
	if votes < *overlaps/2 {
		t.Errorf("%d votes in %d overlaps", votes, *overlaps)
	}
}

// A leader that is proposing when a heartbeat of a later term arrives writes no entry in that term.
//
// Defends: C1.
func TestOverlapsOfHeartbeatsWithProposals(t *testing.T) {
	// A new cluster for each 40, because all nodes stay.
	for rounds := few(*overlaps) / 10; rounds > 0; rounds -= 40 {
		overlapWithProposals(t, min(rounds, 40))
	}
}

func overlapWithProposals(t *testing.T, rounds int) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		const session = wire.SessionID(9)
		c.propose(c.leader(), createSession(session))
		var seq uint64
		for range rounds {
			l := c.leader()
			f, term := (l+1)%3, c.reps[l].raft.CurrentTerm()
			var stop atomic.Bool
			var proposing sync.WaitGroup
			proposing.Go(func() {
				for !stop.Load() {
					seq++
					_ = c.reps[l].Propose(t.Context(), sequential(session, seq, "/n-"))
					time.Sleep(50 * time.Microsecond) // virtual
				}
			})
			time.Sleep(20 * time.Millisecond) // virtual
			_ = c.reps[f].transport.AppendEntries(serverOf(l), "",
				&raft.AppendEntriesRequest{RPCHeader: rafttest.Header(f + 1), Term: term + 1}, &raft.AppendEntriesResponse{})
			time.Sleep(5 * time.Millisecond) // virtual
			stop.Store(true)
			proposing.Wait()
			first, last, err := store.Bounds(c.reps[l].disk.Log())
			if err != nil {
				t.Fatal(err)
			}
			for i := last; i >= max(first, 1) && i+400 > last; i-- {
				var e raft.Log
				if c.reps[l].disk.GetLog(i, &e) == nil && e.Term == term+1 && e.Type == raft.LogCommand {
					t.Fatalf("the leader of term %d has written entry %d in term %d", term, i, term+1)
				}
			}
			time.Sleep(5 * time.Second) // virtual: the cluster has a leader again
		}
	})
}

// handlerTransport keeps the library's handler of heartbeats.
type handlerTransport struct {
	*raft.InmemTransport
	handler func(raft.RPC)
}

func (t *handlerTransport) SetHeartbeatHandler(f func(raft.RPC)) { t.handler = f }

// racingStore holds a heartbeat of the library's fast path between its two writes of the term, the
// one to the store and the one in memory, while the main loop goes to the next term.
type racingStore struct {
	*raft.InmemStore
	beat           func()        // has a heartbeat of term 1 processed, and returns when it is
	ready          chan struct{} // closed when beat is set, after the member has been made
	saving, resume chan struct{}
	beaten         chan struct{}
}

func (s *racingStore) SetUint64(key []byte, v uint64) error {
	if v == 1 && s.isNew() {
		return s.InmemStore.SetUint64(key, v)
	}
	<-s.ready
	switch {
	case string(key) == string(store.Term) && v == 2: // the main loop, a candidate of term 1
		go func() {
			defer close(s.beaten)
			s.beat()
		}()
		select {
		case <-s.saving:
		case <-s.beaten:
		}
	case string(key) == string(store.Term) && v == 1: // the heartbeat
		close(s.saving)
		err := s.InmemStore.SetUint64(key, v)
		<-s.resume
		return err
	case string(key) == "LastVoteTerm": // the main loop votes for itself in term 2
		close(s.resume)
		<-s.beaten
	}
	return s.InmemStore.SetUint64(key, v)
}

func (s *racingStore) isNew() bool {
	select {
	case <-s.ready:
		return false
	default:
		return true
	}
}

// The library's own handler lets a heartbeat of exactly the current term take the term back, so
// that passing only such ones to it would not be enough. When this test fails, the library has
// changed: see UPSTREAM.md, 15.
func TestLibraryTakesItsTermBack(t *testing.T) {
	addr, inner := raft.NewInmemTransport("1")
	tr := &handlerTransport{InmemTransport: inner}
	s := &racingStore{InmemStore: raft.NewInmemStore(), ready: make(chan struct{}), saving: make(chan struct{}),
		resume: make(chan struct{}), beaten: make(chan struct{})}
	rc := raft.DefaultConfig()
	rc.LocalID, rc.LogLevel = "1", "off"
	snaps := raft.NewInmemSnapshotStore()
	servers := raft.Configuration{Servers: []raft.Server{{ID: "1", Address: addr}}}
	if err := raft.BootstrapCluster(rc, s, s, snaps, tr, servers); err != nil {
		t.Fatal(err)
	}
	rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	lib, err := raft.NewRaft(rc, &state{}, s, s, snaps, tr)
	if err != nil {
		t.Fatal(err)
	}
	terms := make(chan uint64, 1)
	s.beat = func() {
		tr.handler(raft.RPC{RespChan: make(chan raft.RPCResponse, 1),
			Command: &raft.AppendEntriesRequest{RPCHeader: rafttest.Header(2), Term: 1}})
		terms <- lib.CurrentTerm()
	}
	close(s.ready)
	if term := <-terms; term != 1 {
		t.Errorf("the heartbeat leaves term %d", term)
	}
	_ = lib.Shutdown().Error()
}
