package rafttest

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/raft"

	"lockkeeper/znode"
)

// ServerID is raft's name of a member of a test; its disk has its number.
func ServerID(id int) raft.ServerID { return raft.ServerID(fmt.Sprintf("%d-%016x", id, id)) }

// Header is the header of a member's request.
func Header(id int) raft.RPCHeader {
	b := []byte(ServerID(id))
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: b, Addr: b}
}

// Configuration encodes a configuration of these servers.
func Configuration(servers ...raft.Server) []byte {
	return raft.EncodeConfiguration(raft.Configuration{Servers: servers})
}

// Voter is a member that votes.
func Voter(id int) raft.Server {
	return raft.Server{Suffrage: raft.Voter, ID: ServerID(id), Address: raft.ServerAddress(ServerID(id))}
}

// Hostile are requests that no member sends, with the term and the log of a leader that does.
func Hostile(from int, term, last, lastTerm uint64) map[string]any {
	header := Header(from)
	entry := func(kind raft.LogType, data []byte) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{RPCHeader: header, Term: term, PrevLogEntry: last, PrevLogTerm: lastTerm,
			Entries: []*raft.Log{{Index: last + 1, Term: term, Type: kind, Data: data}}}
	}
	empty := znode.AppendEntry(nil, znode.Stamp{TimeMs: 1}, nil)
	snapshot := func(conf []byte, size int64) *raft.InstallSnapshotRequest {
		return &raft.InstallSnapshotRequest{RPCHeader: header, SnapshotVersion: raft.SnapshotVersionMax, Term: term,
			LastLogIndex: last + 1000,
			LastLogTerm:  term, Configuration: conf, ConfigurationIndex: 1, Size: size}
	}
	gap := entry(raft.LogCommand, empty)
	gap.Entries[0].Index++
	later := entry(raft.LogCommand, empty)
	later.Entries[0].Term++
	extended := entry(raft.LogCommand, empty)
	extended.Entries[0].Extensions = []byte("x")
	foreign := entry(raft.LogNoop, nil)
	foreign.RPCHeader = Header(from + 1)
	three := []raft.Server{Voter(1), Voter(2), Voter(3)}
	return map[string]any{
		"garbage configuration":     entry(raft.LogConfiguration, []byte("garbage")),
		"empty configuration entry": entry(raft.LogConfiguration, nil),
		"configuration of nobody":   entry(raft.LogConfiguration, Configuration()),
		"configuration without a voter": entry(raft.LogConfiguration,
			Configuration(raft.Server{Suffrage: raft.Nonvoter, ID: "1", Address: "a"})),
		"configuration of other members":    entry(raft.LogConfiguration, Configuration(Voter(77), Voter(78))),
		"configuration of two members less": entry(raft.LogConfiguration, Configuration(Voter(from))),
		"configuration with one twice": entry(raft.LogConfiguration,
			Configuration(append(three, three[0])...)),
		"configuration with a name": entry(raft.LogConfiguration,
			Configuration(append(three, raft.Server{ID: "mallory", Address: "a"})...)),
		"garbage command":               entry(raft.LogCommand, []byte("garbage")),
		"command with a wrong checksum": entry(raft.LogCommand, append(bytes.Clone(empty[:len(empty)-1]), 7)),
		"unknown type of entry":         entry(raft.LogType(99), nil),
		"deprecated type of entry":      entry(raft.LogAddPeerDeprecated, []byte("x")),
		"barrier with data":             entry(raft.LogBarrier, []byte("x")),
		"extensions":                    extended,
		"gap":                           gap,
		"entry of a later term":         later,
		"leader of another number":      foreign,
		"commit without a log": &raft.AppendEntriesRequest{RPCHeader: header, Term: term,
			LeaderCommitIndex: 1 << 40},
		"heartbeat of the last term": &raft.AppendEntriesRequest{RPCHeader: header, Term: 1<<64 - 1},
		"heartbeat of a far term":    &raft.AppendEntriesRequest{RPCHeader: header, Term: term + 2<<20},
		"vote in the last term": &raft.RequestVoteRequest{RPCHeader: header, Term: 1<<64 - 1,
			LastLogIndex: last, LastLogTerm: lastTerm, LeadershipTransfer: true},
		"pre-vote in the last term": &raft.RequestPreVoteRequest{RPCHeader: header, Term: 1<<64 - 1,
			LastLogIndex: last, LastLogTerm: lastTerm},
		"vote for a log of its own term": &raft.RequestVoteRequest{RPCHeader: header, Term: term + 1,
			LastLogIndex: last, LastLogTerm: term + 1},
		"old version of the protocol": &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 2,
			ID: header.ID, Addr: header.Addr}, Term: term + 1},
		"snapshot with an empty configuration":  snapshot(nil, 100),
		"snapshot with a garbage configuration": snapshot([]byte("garbage"), 100),
		"snapshot without a voter":              snapshot(Configuration(), 100),
		"snapshot of version 0": &raft.InstallSnapshotRequest{RPCHeader: header, Term: term,
			LastLogIndex: last + 1000, LastLogTerm: term, Size: 100},
		"snapshot of nothing":   snapshot(Configuration(three...), 0),
		"snapshot that is none": snapshot(Configuration(three...), 100),
	}
}
