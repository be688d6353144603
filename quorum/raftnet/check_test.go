package raftnet

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/znode"
)

// A member that has missed many elections follows all the same, and the term of a cluster cannot be
// driven up at once.
func TestTermsRiseAsFastAsElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b termBudget
		if got := b.limit(5, time.Now()); got != 5+termBurst {
			t.Errorf("at first up to %d", got)
		}
		if got := b.limit(5+termBurst, time.Now()); got != 5+termBurst {
			t.Errorf("after the burst up to %d", got)
		}
		time.Sleep(time.Minute)
		if got := b.limit(5+termBurst, time.Now()); got != 5+termBurst+60*termsPerSecond {
			t.Errorf("a minute later up to %d", got)
		}
		if got := b.limit(maxTerm-1, time.Now()); got > maxTerm {
			t.Errorf("in the end up to %d", got)
		}
	})
}

// A configuration follows the one before; what replaces entries that were never committed follows
// the one before those.
func TestConfigurationsFollowEachOther(t *testing.T) {
	conf := func(servers ...raft.Server) raft.Configuration { return raft.Configuration{Servers: servers} }
	observer := rafttest.Voter(4)
	observer.Suffrage = raft.Nonvoter
	three := []raft.Server{rafttest.Voter(1), rafttest.Voter(2), rafttest.Voter(3)}
	elsewhere := func(servers []raft.Server, more ...raft.Server) []raft.Server {
		moved := slices.Clone(servers)
		for i := range moved {
			moved[i].Address += "0"
		}
		return append(moved, more...)
	}
	terms := []uint64{0, 1, 1, 1} // of the entries
	h := requestChecker{local: &fakeLocal{servers: append(three, observer), last: 3, terms: terms}}
	for _, tt := range []struct {
		about      string
		prev, term uint64 // of the entry before
		of         uint64 // term of the entry
		next       raft.Configuration
		ok         bool
	}{
		{"a vote for the observer", 3, 1, 1, conf(append(three, rafttest.Voter(4))...), true},
		{"the observer removed", 3, 1, 1, conf(three...), true},
		{"two changes", 3, 1, 1, conf(rafttest.Voter(1), rafttest.Voter(2)), false},
		{"it is here already, as it was then", 2, 1, 1, conf(rafttest.Voter(9)), true},
		{"in its place, from three", 2, 1, 2, conf(rafttest.Voter(1), rafttest.Voter(2)), true},
		{"in its place, from nowhere", 2, 1, 2, conf(rafttest.Voter(1)), false},
		{"a vote, and other addresses of the same members", 3, 1, 1, conf(elsewhere(three, rafttest.Voter(4))...), true},
		{"behind an entry that is not here: raft says so", 3, 2, 2, conf(rafttest.Voter(9)), true},
		{"behind the end: raft says so", 9, 1, 2, conf(rafttest.Voter(9)), true},
	} {
		q := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: tt.prev, PrevLogTerm: tt.term,
			Entries: []*raft.Log{{Index: tt.prev + 1, Term: tt.of, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(tt.next)}}}
		if err := h.checkConfigurations(q); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.about, err)
		}
	}
}

// A member that has a configuration which was never committed takes another one, also if it does
// not be in the place of that one, but behind it in the same request.
func TestUncommittedConfigurationIsReplaced(t *testing.T) {
	three := []raft.Server{rafttest.Voter(1), rafttest.Voter(2), rafttest.Voter(3)}
	terms := []uint64{0, 1, 1, 1} // of the entries; the third one is a configuration with member 4
	h := requestChecker{local: &fakeLocal{servers: append(slices.Clone(three), rafttest.Voter(4)), last: 3, terms: terms}}
	next := raft.EncodeConfiguration(raft.Configuration{Servers: append(slices.Clone(three), rafttest.Voter(5))})
	for first, ok := range map[uint64]bool{3: true, 4: false} {
		q := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: first - 1, PrevLogTerm: 1, Entries: []*raft.Log{
			{Index: first, Term: 2, Type: raft.LogNoop}, {Index: first + 1, Term: 2, Type: raft.LogConfiguration, Data: next}}}
		if err := h.checkConfigurations(q); (err == nil) != ok {
			t.Errorf("from entry %d on: %v", first, err)
		}
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add(rafttest.Configuration(rafttest.Voter(1), rafttest.Voter(2), rafttest.Voter(3)))
	f.Add([]byte("garbage"))
	f.Add([]byte{0x81, 0xa7, 'S', 'e', 'r', 'v', 'e', 'r', 's', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		conf, err := decodeConfiguration(b)
		if err != nil {
			return
		}
		if again, err := decodeConfiguration(raft.EncodeConfiguration(conf)); err != nil || configurationSteps(conf.Servers, again.Servers) != 0 {
			t.Errorf("%x decoded, and not when encoded again: %v", b, err)
		}
	})
}

// FuzzRequests decodes and checks what a peer may send on a raft stream.
func FuzzRequests(f *testing.F) {
	for _, req := range rafttest.Hostile(2, 7, 3, 6) {
		f.Add(byte(kindOf(req)), appendRequest(nil, kindOf(req), req)[rpcHeadLen:])
	}
	n := &network{checker: &requestChecker{local: &fakeLocal{term: 7, leader: rafttest.ServerID(2), last: 3}}}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		req, err := n.decode(rafttest.ServerID(2), rpcKind(kind), body)
		if err != nil && strings.Contains(err.Error(), "decoding it") {
			t.Errorf("panic: %v", err)
		}
		if q, ok := req.(*raft.AppendEntriesRequest); err == nil && ok {
			for _, e := range q.Entries {
				if e.Type == raft.LogCommand {
					if _, err := znode.DecodeEntry(e.Data); err != nil {
						t.Errorf("an entry that cannot be applied: %v", err)
					}
				}
			}
		}
	})
}
