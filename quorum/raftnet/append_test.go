package raftnet

import (
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
)

// A request reaches the library without the entries that only the snapshot of this member has, and
// with a commit of no entry behind its own (Raft, figure 2).
//
// Defends: C1.
func TestFit(t *testing.T) {
	entries := func(term uint64, indexes ...uint64) (list []*raft.Log) {
		for _, i := range indexes {
			list = append(list, &raft.Log{Index: i, Term: term})
		}
		return list
	}
	n := &network{local: &fakeLocal{included: 10, includedTerm: 3}}
	for name, c := range map[string]struct{ request, want raft.AppendEntriesRequest }{
		"behind the snapshot": {
			raft.AppendEntriesRequest{PrevLogEntry: 11, PrevLogTerm: 4, Entries: entries(4, 12, 13), LeaderCommitIndex: 12},
			raft.AppendEntriesRequest{PrevLogEntry: 11, PrevLogTerm: 4, Entries: entries(4, 12, 13), LeaderCommitIndex: 12}},
		"at its end": {
			raft.AppendEntriesRequest{PrevLogEntry: 10, PrevLogTerm: 3, Entries: entries(4, 11), LeaderCommitIndex: 11},
			raft.AppendEntriesRequest{PrevLogEntry: 10, PrevLogTerm: 3, Entries: entries(4, 11), LeaderCommitIndex: 11}},
		"across its end": {
			raft.AppendEntriesRequest{PrevLogEntry: 8, PrevLogTerm: 2, Entries: entries(3, 9, 10, 11), LeaderCommitIndex: 20},
			raft.AppendEntriesRequest{PrevLogEntry: 10, PrevLogTerm: 3, Entries: entries(3, 11), LeaderCommitIndex: 11}},
		"before its end": {
			raft.AppendEntriesRequest{PrevLogEntry: 6, PrevLogTerm: 2, Entries: entries(3, 7, 8), LeaderCommitIndex: 20},
			raft.AppendEntriesRequest{PrevLogEntry: 10, PrevLogTerm: 3, Entries: entries(3), LeaderCommitIndex: 10}},
		"from the first entry": {
			raft.AppendEntriesRequest{Entries: entries(3, 1, 2), LeaderCommitIndex: 1},
			raft.AppendEntriesRequest{PrevLogEntry: 10, PrevLogTerm: 3, Entries: entries(3), LeaderCommitIndex: 1}},
		"a commit beyond its entries": {
			raft.AppendEntriesRequest{PrevLogEntry: 11, PrevLogTerm: 4, Entries: entries(4, 12), LeaderCommitIndex: 15},
			raft.AppendEntriesRequest{PrevLogEntry: 11, PrevLogTerm: 4, Entries: entries(4, 12), LeaderCommitIndex: 12}},
		"a commit alone": {
			raft.AppendEntriesRequest{PrevLogEntry: 12, PrevLogTerm: 4, LeaderCommitIndex: 14},
			raft.AppendEntriesRequest{PrevLogEntry: 12, PrevLogTerm: 4, LeaderCommitIndex: 12}},
		"a heartbeat": {
			raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("a")}, Term: 4},
			raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("a")}, Term: 4}},
	} {
		got := c.request
		n.fit(&got)
		if len(got.Entries) == 0 {
			got.Entries = nil
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}
