package peer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/znode"
)

func headerOf(id MemberID) raft.RPCHeader {
	b := []byte(ServerID(id))
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: b, Addr: b}
}

func confOf(servers ...raft.Server) []byte {
	return raft.EncodeConfiguration(raft.Configuration{Servers: servers})
}

func voter(id MemberID) raft.Server {
	return raft.Server{Suffrage: raft.Voter, ID: ServerID(id), Address: raft.ServerAddress(fmt.Sprintf("10.0.0.%d:2888", id))}
}

// hostile are requests that no member sends, with the term and the log of a leader that does.
func hostile(from MemberID, term, last, lastTerm uint64) map[string]any {
	header := headerOf(from)
	entry := func(kind raft.LogType, data []byte) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{RPCHeader: header, Term: term, PrevLogEntry: last, PrevLogTerm: lastTerm,
			Entries: []*raft.Log{{Index: last + 1, Term: term, Type: kind, Data: data}}}
	}
	empty := znode.AppendEntry(nil, 1, 0, nil)
	snapshot := func(conf []byte, size int64) *raft.InstallSnapshotRequest {
		return &raft.InstallSnapshotRequest{RPCHeader: header, SnapshotVersion: raft.SnapshotVersionMax, Term: term, LastLogIndex: last + 1000,
			LastLogTerm: term, Configuration: conf, ConfigurationIndex: 1, Size: size}
	}
	gap := entry(raft.LogCommand, empty)
	gap.Entries[0].Index++
	later := entry(raft.LogCommand, empty)
	later.Entries[0].Term++
	extended := entry(raft.LogCommand, empty)
	extended.Entries[0].Extensions = []byte("x")
	foreign := entry(raft.LogNoop, nil)
	foreign.RPCHeader = headerOf(from + 1)
	three := []raft.Server{voter(1), voter(2), voter(3)}
	return map[string]any{
		"garbage configuration":                 entry(raft.LogConfiguration, []byte("garbage")),
		"empty configuration entry":             entry(raft.LogConfiguration, nil),
		"configuration of nobody":               entry(raft.LogConfiguration, confOf()),
		"configuration without a voter":         entry(raft.LogConfiguration, confOf(raft.Server{Suffrage: raft.Nonvoter, ID: "1", Address: "a"})),
		"configuration of strangers":            entry(raft.LogConfiguration, confOf(voter(77), voter(78))),
		"configuration of two members less":     entry(raft.LogConfiguration, confOf(voter(from))),
		"configuration with one twice":          entry(raft.LogConfiguration, confOf(append(three, three[0])...)),
		"configuration with a name":             entry(raft.LogConfiguration, confOf(append(three, raft.Server{ID: "mallory", Address: "a"})...)),
		"garbage command":                       entry(raft.LogCommand, []byte("garbage")),
		"command with a wrong checksum":         entry(raft.LogCommand, append(bytes.Clone(empty[:len(empty)-1]), 7)),
		"unknown type of entry":                 entry(raft.LogType(99), nil),
		"deprecated type of entry":              entry(raft.LogAddPeerDeprecated, []byte("x")),
		"barrier with data":                     entry(raft.LogBarrier, []byte("x")),
		"extensions":                            extended,
		"gap":                                   gap,
		"entry of a later term":                 later,
		"leader of another number":              foreign,
		"commit without a log":                  &raft.AppendEntriesRequest{RPCHeader: header, Term: term, LeaderCommitIndex: 1 << 40},
		"heartbeat of the last term":            &raft.AppendEntriesRequest{RPCHeader: header, Term: 1<<64 - 1},
		"heartbeat of a far term":               &raft.AppendEntriesRequest{RPCHeader: header, Term: term + 2*termBurst},
		"vote in the last term":                 &raft.RequestVoteRequest{RPCHeader: header, Term: 1<<64 - 1, LastLogIndex: last, LastLogTerm: lastTerm, LeadershipTransfer: true},
		"pre-vote in the last term":             &raft.RequestPreVoteRequest{RPCHeader: header, Term: 1<<64 - 1, LastLogIndex: last, LastLogTerm: lastTerm},
		"vote for a log of its own term":        &raft.RequestVoteRequest{RPCHeader: header, Term: term + 1, LastLogIndex: last, LastLogTerm: term + 1},
		"old version of the protocol":           &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 2, ID: header.ID, Addr: header.Addr}, Term: term + 1},
		"snapshot with an empty configuration":  snapshot(nil, 100),
		"snapshot with a garbage configuration": snapshot([]byte("garbage"), 100),
		"snapshot without a voter":              snapshot(confOf(), 100),
		"snapshot of version 0":                 &raft.InstallSnapshotRequest{RPCHeader: header, Term: term, LastLogIndex: last + 1000, LastLogTerm: term, Size: 100},
		"snapshot of nothing":                   snapshot(confOf(three...), 0),
		"snapshot that is none":                 snapshot(confOf(three...), 100),
	}
}

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
	observer := voter(4)
	observer.Suffrage = raft.Nonvoter
	three := []raft.Server{voter(1), voter(2), voter(3)}
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
		{"a vote for the observer", 3, 1, 1, conf(append(three, voter(4))...), true},
		{"the observer removed", 3, 1, 1, conf(three...), true},
		{"two changes", 3, 1, 1, conf(voter(1), voter(2)), false},
		{"it is here already, as it was then", 2, 1, 1, conf(voter(9)), true},
		{"in its place, from three", 2, 1, 2, conf(voter(1), voter(2)), true},
		{"in its place, from nowhere", 2, 1, 2, conf(voter(1)), false},
		{"a vote, and other addresses of the same members", 3, 1, 1, conf(elsewhere(three, voter(4))...), true},
		{"behind an entry that is not here: raft says so", 3, 2, 2, conf(voter(9)), true},
		{"behind the end: raft says so", 9, 1, 2, conf(voter(9)), true},
	} {
		q := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: tt.prev, PrevLogTerm: tt.term,
			Entries: []*raft.Log{{Index: tt.prev + 1, Term: tt.of, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(tt.next)}}}
		if err := h.checkConfigurations(q); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.about, err)
		}
	}
}

// A member that has a configuration which was never committed takes another one, also if it does
// not stand in the place of that one, but behind it in the same request.
func TestUncommittedConfigurationIsReplaced(t *testing.T) {
	three := []raft.Server{voter(1), voter(2), voter(3)}
	terms := []uint64{0, 1, 1, 1} // of the entries; the third one is a configuration with member 4
	h := requestChecker{local: &fakeLocal{servers: append(slices.Clone(three), voter(4)), last: 3, terms: terms}}
	next := raft.EncodeConfiguration(raft.Configuration{Servers: append(slices.Clone(three), voter(5))})
	for first, ok := range map[uint64]bool{3: true, 4: false} {
		q := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: first - 1, PrevLogTerm: 1, Entries: []*raft.Log{
			{Index: first, Term: 2, Type: raft.LogNoop}, {Index: first + 1, Term: 2, Type: raft.LogConfiguration, Data: next}}}
		if err := h.checkConfigurations(q); (err == nil) != ok {
			t.Errorf("from entry %d on: %v", first, err)
		}
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add(confOf(voter(1), voter(2), voter(3)))
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
	for _, req := range hostile(2, 7, 3, 6) {
		f.Add(byte(kindOf(req)), appendRequest(nil, kindOf(req), req)[rpcHeadLen:])
	}
	n := &network{checker: &requestChecker{local: &fakeLocal{term: 7, leader: 2, last: 3}}}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		req, err := n.decode(2, rpcKind(kind), body)
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
