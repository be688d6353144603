package raftnet

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
)

// A heartbeat only names the leader.
func TestHeartbeats(t *testing.T) {
	from := raft.RPCHeader{Addr: []byte("1")}
	for _, tt := range []struct {
		about string
		req   *raft.AppendEntriesRequest
		beat  bool
	}{
		{"a heartbeat", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3}, true},
		{"with a commit", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3, LeaderCommitIndex: 1}, false},
		{"behind an entry", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3, PrevLogEntry: 1}, false},
		{"with an entry", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3, Entries: rafttest.Entries(1, 1)}, false},
		{"of nobody", &raft.AppendEntriesRequest{Term: 3}, false},
	} {
		if got := isHeartbeat(tt.req); got != tt.beat {
			t.Errorf("%s: a heartbeat: %v, want %v", tt.about, got, tt.beat)
		}
	}
}

// A heartbeat of the current term, from the leader that this member follows, does not wait for the
// library's main loop, which may be waiting for the disk. The main loop hears of one when it goes
// on. The library's own handler for heartbeats, which runs beside the main loop, is never called.
func TestHeartbeatsDoNotWait(t *testing.T) {
	for _, tt := range []struct {
		about string
		term  uint64        // of the heartbeat; this member is at 3
		known raft.ServerID // the leader that this member knows; the heartbeat is of 2
		waits bool
	}{
		{"of the leader", 3, rafttest.ServerID(2), false},
		{"of a newer term", 4, rafttest.ServerID(2), true},
		{"of an older term", 2, rafttest.ServerID(2), true},
		{"of a leader that is not known yet", 3, "", true},
		{"of another leader in the term", 3, rafttest.ServerID(1), true},
	} {
		t.Run(tt.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				port := newFakePort()
				tr := newTransport(rafttest.ServerID(1), &fakeLocal{term: 3, leader: tt.known, last: 7})
				main := make(chan raft.RPC)
				n := newNetwork(port, tr.local, func(rpc raft.RPC, stop <-chan struct{}) {
					select {
					case main <- rpc:
					case <-stop:
					}
				}, nil)
				tr.net = n
				tr.SetHeartbeatHandler(func(raft.RPC) { t.Error("the library's handler is called") })
				near, far := net.Pipe()
				var wg sync.WaitGroup
				wg.Go(func() { _ = n.serve(rafttest.ServerID(2), streamOf(far)) })
				defer wg.Wait()
				defer n.wg.Wait()
				defer near.Close()
				defer close(port.done)
				answers := make(chan raft.AppendEntriesResponse, 3)
				c := streamOf(near)
				header := rafttest.Header(2)
				wg.Go(func() {
					for range cap(answers) {
						var resp raft.AppendEntriesResponse
						if c.send(rpcAppend, &raft.AppendEntriesRequest{RPCHeader: header, Term: tt.term}) != nil || c.receive(rpcAppend, &resp) != nil {
							return
						}
						answers <- resp
					}
				})
				synctest.Wait() // the main loop is held up
				if tt.waits && len(answers) > 0 || !tt.waits && len(answers) < cap(answers) {
					t.Fatalf("%d of %d heartbeats are answered", len(answers), cap(answers))
				}
				if rpc := <-main; rpc.Command.(*raft.AppendEntriesRequest).Term != tt.term {
					t.Errorf("the main loop hears of %+v", rpc.Command)
				}
				select {
				case <-main:
					t.Error("the main loop hears of more than one heartbeat that it was late for")
				default:
				}
				for range len(answers) {
					if resp := <-answers; resp.Term != 3 || resp.LastLog != 7 || !resp.Success {
						t.Errorf("answered: %+v", resp)
					}
				}
			})
		})
	}
}
