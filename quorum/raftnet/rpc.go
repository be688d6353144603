package raftnet

import (
	"fmt"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
)

// A raft stream carries the requests of the raft library to another member, as frames. Numbers are
// big-endian:
//
//	 0        4      5
//	+--------+------+------+
//	| length | kind | body |
//	+--------+------+------+
//
// Length counts kind and body. The member that has opened the stream sends requests, the other
// answers them in their order, but for a notice, which has no answer. The kind of an answer is that
// of its request and rpcAnswer, or rpcRefused with a text. The frame of rpcSnapshot is followed by
// the snapshot itself, as many bytes as it says.
//
// Bodies are the fields of the library's structs, one after the other, as package codec encodes
// them; (n) is the width in bytes, "bytes" is a length (4) and the bytes, a bool has one byte.
// Leader and Candidate of rpcAppend and rpcVote are left out: they repeat the address in the
// header, and the library reads them only if that is missing.
//
//	header          version (4) | id bytes | address bytes
//
//	rpcAppend       header | term (8) | previous entry (8) | its term (8) | commit index (8) |
//	                count (4) | entries
//	rpcNotice       as rpcAppend; it is sent for its commit index
//	an entry        index (8) | term (8) | type (1) | time, ns (8) | data bytes | extensions bytes
//	   answer       header | term (8) | last entry (8) | success | no backoff
//	rpcVote         header | term (8) | last entry (8) | its term (8) | by transfer
//	   answer       header | term (8) | peers bytes | granted
//	rpcPreVote      header | term (8) | last entry (8) | its term (8)
//	   answer       header | term (8) | granted
//	rpcSnapshot     header | snapshot version (4) | term (8) | leader bytes | last entry (8) |
//	                its term (8) | peers bytes | configuration bytes | its index (8) | size (8)
//	   answer       header | term (8) | success
//	rpcTimeoutNow   header
//	   answer       header
type rpcKind byte

const (
	rpcAppend rpcKind = iota + 1
	rpcNotice
	rpcVote
	rpcPreVote
	rpcSnapshot
	rpcTimeoutNow

	rpcAnswer  rpcKind = 0x80
	rpcRefused rpcKind = 0xff
)

const (
	// MaxAppendEntries bounds the entries of a request. A full entry has 256 KiB, so a member that
	// is behind gets some 4 MiB at a time: while a leader reads and sends larger requests, clients
	// wait for a core. A follower syncs each request, so smaller ones would take it longer.
	MaxAppendEntries = 16
	// MaxEntryBytes is the most that an entry takes up in a frame.
	MaxEntryBytes = 5 << 20
	// maxRequestBytes is enough for as many entries.
	maxRequestBytes = MaxAppendEntries * MaxEntryBytes
	// maxAnswerBytes is far more than any answer has.
	maxAnswerBytes = 64 << 10
	maxRefusal     = 1 << 10
	entryMinLen    = 8 + 8 + 1 + 8 + 4 + 4

	// Such a request fits into the memory for large frames, beside a frame of the forward stream.
	_ = uint64(peer.DefaultFrameBytes - maxRequestBytes - peer.MaxFrame)
)

// errRaftFrame says that no member of this version sends such a frame.
var errRaftFrame = fmt.Errorf("%w: no request of raft", peer.ErrRefused)

// rpcRefusal is the reason for which another member refuses a request. The connection goes on.
type rpcRefusal string

// Error implements error.
func (r rpcRefusal) Error() string { return string(r) }

// kindOf is the kind of a request.
func kindOf(req any) rpcKind {
	switch req.(type) {
	case *raft.AppendEntriesRequest:
		return rpcAppend
	case *raft.RequestVoteRequest:
		return rpcVote
	case *raft.RequestPreVoteRequest:
		return rpcPreVote
	case *raft.InstallSnapshotRequest:
		return rpcSnapshot
	case *raft.TimeoutNowRequest:
		return rpcTimeoutNow
	}
	panic(fmt.Sprintf("raftnet: %T is no request of raft", req))
}

// codeRequest encodes or decodes a request.
func codeRequest(c *codec.Codec, req any) {
	switch q := req.(type) {
	case *raft.AppendEntriesRequest:
		codeHeader(c, &q.RPCHeader)
		c.U64(&q.Term, &q.PrevLogEntry, &q.PrevLogTerm, &q.LeaderCommitIndex)
		n := c.Count(len(q.Entries), entryMinLen)
		if c.Decoding() && n > 0 {
			logs := make([]raft.Log, n)
			q.Entries = make([]*raft.Log, n)
			for i := range logs {
				q.Entries[i] = &logs[i]
			}
		}
		for _, e := range q.Entries {
			codeEntry(c, e)
		}
	case *raft.RequestVoteRequest:
		codeHeader(c, &q.RPCHeader)
		c.U64(&q.Term, &q.LastLogIndex, &q.LastLogTerm)
		c.Bool(&q.LeadershipTransfer)
	case *raft.RequestPreVoteRequest:
		codeHeader(c, &q.RPCHeader)
		c.U64(&q.Term, &q.LastLogIndex, &q.LastLogTerm)
	case *raft.InstallSnapshotRequest:
		codeHeader(c, &q.RPCHeader)
		codec.U32(c, &q.SnapshotVersion)
		c.U64(&q.Term)
		c.Bytes(&q.Leader)
		c.U64(&q.LastLogIndex, &q.LastLogTerm)
		c.Bytes(&q.Peers)
		c.Bytes(&q.Configuration)
		c.U64(&q.ConfigurationIndex)
		codec.I64(c, &q.Size)
		c.Refuse(c.Decoding() && q.Size < 0)
	case *raft.TimeoutNowRequest:
		codeHeader(c, &q.RPCHeader)
	}
}

// codeAnswer encodes or decodes the answer to a request.
func codeAnswer(c *codec.Codec, answer any) {
	switch a := answer.(type) {
	case *raft.AppendEntriesResponse:
		codeHeader(c, &a.RPCHeader)
		c.U64(&a.Term, &a.LastLog)
		c.Bool(&a.Success, &a.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		codeHeader(c, &a.RPCHeader)
		c.U64(&a.Term)
		c.Bytes(&a.Peers)
		c.Bool(&a.Granted)
	case *raft.RequestPreVoteResponse:
		codeHeader(c, &a.RPCHeader)
		c.U64(&a.Term)
		c.Bool(&a.Granted)
	case *raft.InstallSnapshotResponse:
		codeHeader(c, &a.RPCHeader)
		c.U64(&a.Term)
		c.Bool(&a.Success)
	case *raft.TimeoutNowResponse:
		codeHeader(c, &a.RPCHeader)
	default:
		panic(fmt.Sprintf("raftnet: %T is no answer of raft", answer))
	}
}

func codeHeader(c *codec.Codec, h *raft.RPCHeader) {
	codec.U32(c, &h.ProtocolVersion)
	c.Bytes(&h.ID)
	c.Bytes(&h.Addr)
}

func codeEntry(c *codec.Codec, e *raft.Log) {
	c.U64(&e.Index, &e.Term)
	codec.U8(c, &e.Type)
	c.Time(&e.AppendedAt)
	c.Bytes(&e.Data)
	c.Bytes(&e.Extensions)
}

// newRequest returns an empty request of that kind; nil if there is no such kind.
func newRequest(kind rpcKind) any {
	switch kind {
	case rpcAppend, rpcNotice:
		return new(raft.AppendEntriesRequest)
	case rpcVote:
		return new(raft.RequestVoteRequest)
	case rpcPreVote:
		return new(raft.RequestPreVoteRequest)
	case rpcSnapshot:
		return new(raft.InstallSnapshotRequest)
	case rpcTimeoutNow:
		return new(raft.TimeoutNowRequest)
	}
	return nil
}

// appendRequest encodes a request as a frame.
func appendRequest(b []byte, kind rpcKind, req any) []byte {
	c := codec.Encode(append(peer.BeginFrame(b), byte(kind)))
	codeRequest(&c, req)
	return peer.EndFrame(c.Encoded(), len(b))
}

// decodeRequest decodes the body of a request. The request keeps the memory of the body.
func decodeRequest(kind rpcKind, body []byte) (any, error) {
	req := newRequest(kind)
	if req == nil {
		return nil, errRaftFrame
	}
	c := codec.Decode(body)
	if codeRequest(&c, req); c.Err() != nil {
		return nil, errRaftFrame
	}
	return req, nil
}

// appendAnswer encodes the answer to a request of that kind as a frame.
func appendAnswer(b []byte, kind rpcKind, answer raft.RPCResponse) []byte {
	start := len(b)
	if answer.Error != nil {
		why := answer.Error.Error()
		b = append(peer.BeginFrame(b), byte(rpcRefused))
		return peer.EndFrame(append(b, why[:min(len(why), maxRefusal)]...), start)
	}
	c := codec.Encode(append(peer.BeginFrame(b), byte(kind|rpcAnswer)))
	codeAnswer(&c, answer.Response)
	return peer.EndFrame(c.Encoded(), start)
}

// decodeAnswer decodes the answer to a request of that kind into answer. Errors: an rpcRefusal;
// errRaftFrame.
func decodeAnswer(asked, kind rpcKind, body []byte, answer any) error {
	switch {
	case kind == rpcRefused:
		return rpcRefusal(body)
	case kind != asked|rpcAnswer:
		return errRaftFrame
	}
	c := codec.Decode(body)
	if codeAnswer(&c, answer); c.Err() != nil {
		return errRaftFrame
	}
	return nil
}
