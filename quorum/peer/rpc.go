package peer

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// A raft stream carries what the raft library asks another member, as frames. Numbers are big-endian:
//
//	 0        4      5
//	+--------+------+------+
//	| length | kind | body |
//	+--------+------+------+
//
// Length is that of kind and body. The member that has opened the stream asks, the other answers, in the order in which it was asked;
// to all but a notice, which has no answer. The kind of an answer is that of its request and rpcAnswer, or rpcRefused with a text.
// Behind the frame of rpcSnapshot stands the snapshot itself, as many bytes as it says.
//
// Bodies are the fields of the library's structs, one after the other; (n) is the width in bytes, "bytes" stands for a
// length (4) and so many bytes, a bool has one byte. Leader and Candidate of rpcAppend and rpcVote are not there: they repeat the
// address in the header, and the library looks at them only if that is missing.
//
//	header          version (4) | id bytes | address bytes
//
//	rpcAppend       header | term (8) | previous entry (8) | its term (8) | commit index (8) | count (4) | entries
//	rpcNotice       as rpcAppend; what it says is the commit index
//	an entry        index (8) | term (8) | type (1) | time, ns (8) | data bytes | extensions bytes
//	   answer       header | term (8) | last entry (8) | success | no backoff
//	rpcVote         header | term (8) | last entry (8) | its term (8) | the leader has asked for it
//	   answer       header | term (8) | peers bytes | granted
//	rpcPreVote      header | term (8) | last entry (8) | its term (8)
//	   answer       header | term (8) | granted
//	rpcSnapshot     header | snapshot version (4) | term (8) | leader bytes | last entry (8) | its term (8) | peers bytes |
//	                configuration bytes | its index (8) | size (8)
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
	// MaxAppendEntries is how many entries a request has at the most.
	MaxAppendEntries = 64
	// MaxEntryBytes is the most that an entry takes up in a frame.
	MaxEntryBytes = 5 << 20
	// maxRequestBytes lets through as many entries, each with the largest request of a client and what stands around it.
	maxRequestBytes = MaxAppendEntries * MaxEntryBytes
	// maxAnswerBytes is far more than any answer has.
	maxAnswerBytes = 64 << 10
	maxRefusal     = 1 << 10
	entryMinLen    = 8 + 8 + 1 + 8 + 4 + 4
)

// errRaftFrame says that what came is not what a member of this version sends.
var errRaftFrame = fmt.Errorf("%w: what it sends is no request of raft", ErrRefused)

// rpcRefusal is why another member could not do what it was asked. The connection goes on.
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
	panic(fmt.Sprintf("peer: %T is no request of raft", req))
}

// appendRequest encodes a request as a frame.
func appendRequest(b []byte, kind rpcKind, req any) []byte {
	start := len(b)
	b = append(BeginFrame(b), byte(kind))
	switch q := req.(type) {
	case *raft.AppendEntriesRequest:
		b = appendRPCHeader(b, q.RPCHeader)
		b = binary.BigEndian.AppendUint64(b, q.Term)
		b = binary.BigEndian.AppendUint64(b, q.PrevLogEntry)
		b = binary.BigEndian.AppendUint64(b, q.PrevLogTerm)
		b = binary.BigEndian.AppendUint64(b, q.LeaderCommitIndex)
		b = binary.BigEndian.AppendUint32(b, uint32(len(q.Entries)))
		for _, e := range q.Entries {
			b = appendEntry(b, e)
		}
	case *raft.RequestVoteRequest:
		b = appendRPCHeader(b, q.RPCHeader)
		b = binary.BigEndian.AppendUint64(b, q.Term)
		b = binary.BigEndian.AppendUint64(b, q.LastLogIndex)
		b = binary.BigEndian.AppendUint64(b, q.LastLogTerm)
		b = appendBool(b, q.LeadershipTransfer)
	case *raft.RequestPreVoteRequest:
		b = appendRPCHeader(b, q.RPCHeader)
		b = binary.BigEndian.AppendUint64(b, q.Term)
		b = binary.BigEndian.AppendUint64(b, q.LastLogIndex)
		b = binary.BigEndian.AppendUint64(b, q.LastLogTerm)
	case *raft.InstallSnapshotRequest:
		b = appendRPCHeader(b, q.RPCHeader)
		b = binary.BigEndian.AppendUint32(b, uint32(q.SnapshotVersion))
		b = binary.BigEndian.AppendUint64(b, q.Term)
		b = appendBytes(b, q.Leader)
		b = binary.BigEndian.AppendUint64(b, q.LastLogIndex)
		b = binary.BigEndian.AppendUint64(b, q.LastLogTerm)
		b = appendBytes(b, q.Peers)
		b = appendBytes(b, q.Configuration)
		b = binary.BigEndian.AppendUint64(b, q.ConfigurationIndex)
		b = binary.BigEndian.AppendUint64(b, uint64(q.Size))
	case *raft.TimeoutNowRequest:
		b = appendRPCHeader(b, q.RPCHeader)
	}
	return EndFrame(b, start)
}

// decodeRequest decodes the body of a request, whose memory the request keeps.
func decodeRequest(kind rpcKind, body []byte) (any, error) {
	d := rpcDecoder{b: body}
	var req any
	switch kind {
	case rpcAppend, rpcNotice:
		q := &raft.AppendEntriesRequest{RPCHeader: d.header(), Term: d.u64(),
			PrevLogEntry: d.u64(), PrevLogTerm: d.u64(), LeaderCommitIndex: d.u64()}
		q.Entries = d.entries()
		req = q
	case rpcVote:
		req = &raft.RequestVoteRequest{RPCHeader: d.header(), Term: d.u64(),
			LastLogIndex: d.u64(), LastLogTerm: d.u64(), LeadershipTransfer: d.bool()}
	case rpcPreVote:
		req = &raft.RequestPreVoteRequest{RPCHeader: d.header(), Term: d.u64(), LastLogIndex: d.u64(), LastLogTerm: d.u64()}
	case rpcSnapshot:
		q := &raft.InstallSnapshotRequest{RPCHeader: d.header(), SnapshotVersion: raft.SnapshotVersion(int32(d.u32())), Term: d.u64(),
			Leader: d.bytes(), LastLogIndex: d.u64(), LastLogTerm: d.u64(), Peers: d.bytes(), Configuration: d.bytes(),
			ConfigurationIndex: d.u64(), Size: int64(d.u64())}
		d.bad = d.bad || q.Size < 0
		req = q
	case rpcTimeoutNow:
		req = &raft.TimeoutNowRequest{RPCHeader: d.header()}
	default:
		return nil, errRaftFrame
	}
	return req, d.err()
}

// appendAnswer encodes the answer to a request of that kind as a frame.
func appendAnswer(b []byte, kind rpcKind, answer raft.RPCResponse) []byte {
	start := len(b)
	b = append(BeginFrame(b), byte(kind|rpcAnswer))
	if answer.Error != nil {
		b[start+4] = byte(rpcRefused)
		why := answer.Error.Error()
		return EndFrame(append(b, why[:min(len(why), maxRefusal)]...), start)
	}
	switch a := answer.Response.(type) {
	case *raft.AppendEntriesResponse:
		b = appendRPCHeader(b, a.RPCHeader)
		b = binary.BigEndian.AppendUint64(b, a.Term)
		b = binary.BigEndian.AppendUint64(b, a.LastLog)
		b = appendBool(b, a.Success)
		b = appendBool(b, a.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		b = appendRPCHeader(b, a.RPCHeader)
		b = binary.BigEndian.AppendUint64(b, a.Term)
		b = appendBytes(b, a.Peers)
		b = appendBool(b, a.Granted)
	case *raft.RequestPreVoteResponse:
		b = appendRPCHeader(b, a.RPCHeader)
		b = binary.BigEndian.AppendUint64(b, a.Term)
		b = appendBool(b, a.Granted)
	case *raft.InstallSnapshotResponse:
		b = appendRPCHeader(b, a.RPCHeader)
		b = binary.BigEndian.AppendUint64(b, a.Term)
		b = appendBool(b, a.Success)
	case *raft.TimeoutNowResponse:
		b = appendRPCHeader(b, a.RPCHeader)
	default:
		panic(fmt.Sprintf("peer: %T is no answer of raft", answer.Response))
	}
	return EndFrame(b, start)
}

// decodeAnswer decodes the answer to a request of that kind into answer. Errors: an rpcRefusal; errRaftFrame.
func decodeAnswer(asked, kind rpcKind, body []byte, answer any) error {
	switch {
	case kind == rpcRefused:
		return rpcRefusal(body)
	case kind != asked|rpcAnswer:
		return errRaftFrame
	}
	d := rpcDecoder{b: body}
	switch a := answer.(type) {
	case *raft.AppendEntriesResponse:
		*a = raft.AppendEntriesResponse{RPCHeader: d.header(), Term: d.u64(), LastLog: d.u64(), Success: d.bool(), NoRetryBackoff: d.bool()}
	case *raft.RequestVoteResponse:
		*a = raft.RequestVoteResponse{RPCHeader: d.header(), Term: d.u64(), Peers: d.bytes(), Granted: d.bool()}
	case *raft.RequestPreVoteResponse:
		*a = raft.RequestPreVoteResponse{RPCHeader: d.header(), Term: d.u64(), Granted: d.bool()}
	case *raft.InstallSnapshotResponse:
		*a = raft.InstallSnapshotResponse{RPCHeader: d.header(), Term: d.u64(), Success: d.bool()}
	case *raft.TimeoutNowResponse:
		*a = raft.TimeoutNowResponse{RPCHeader: d.header()}
	default:
		panic(fmt.Sprintf("peer: %T is no answer of raft", answer))
	}
	return d.err()
}

func appendRPCHeader(b []byte, h raft.RPCHeader) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.ProtocolVersion))
	return appendBytes(appendBytes(b, h.ID), h.Addr)
}

func appendEntry(b []byte, e *raft.Log) []byte {
	b = binary.BigEndian.AppendUint64(b, e.Index)
	b = binary.BigEndian.AppendUint64(b, e.Term)
	b = append(b, byte(e.Type))
	b = binary.BigEndian.AppendUint64(b, appendedNs(e))
	return appendBytes(appendBytes(b, e.Data), e.Extensions)
}

func appendBytes(b, s []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// rpcDecoder takes fields off a body. Once something is missing it is bad, and all that follows is zero.
type rpcDecoder struct {
	b   []byte
	bad bool
}

func (d *rpcDecoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	return s
}

func (d *rpcDecoder) u32() uint32 {
	if s := d.take(4); s != nil {
		return binary.BigEndian.Uint32(s)
	}
	return 0
}

func (d *rpcDecoder) u64() uint64 {
	if s := d.take(8); s != nil {
		return binary.BigEndian.Uint64(s)
	}
	return 0
}

func (d *rpcDecoder) byte() byte {
	if s := d.take(1); s != nil {
		return s[0]
	}
	return 0
}

func (d *rpcDecoder) bool() bool {
	v := d.byte()
	d.bad = d.bad || v > 1
	return v == 1
}

// bytes returns nil for none.
func (d *rpcDecoder) bytes() []byte {
	n := int64(d.u32())
	if n == 0 {
		return nil
	}
	if n > int64(len(d.b)) {
		d.bad = true
		return nil
	}
	return d.take(int(n))
}

func (d *rpcDecoder) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(int32(d.u32())), ID: d.bytes(), Addr: d.bytes()}
}

func (d *rpcDecoder) entries() []*raft.Log {
	n := int64(d.u32())
	if n*entryMinLen > int64(len(d.b)) {
		d.bad = true
	}
	if n == 0 || d.bad {
		return nil
	}
	logs, list := make([]raft.Log, n), make([]*raft.Log, n)
	for i := range logs {
		e := &logs[i]
		e.Index, e.Term, e.Type = d.u64(), d.u64(), raft.LogType(d.byte())
		setAppendedNs(e, d.u64())
		e.Data, e.Extensions = d.bytes(), d.bytes()
		list[i] = e
	}
	return list
}

// err says whether the body was what its kind has, and no more.
func (d *rpcDecoder) err() error {
	if d.bad || len(d.b) > 0 {
		return errRaftFrame
	}
	return nil
}

// appendedNs is when the leader appended an entry: nanoseconds since 1970, 0 for never.
func appendedNs(l *raft.Log) uint64 {
	if l.AppendedAt.IsZero() {
		return 0
	}
	return uint64(l.AppendedAt.UnixNano())
}

func setAppendedNs(l *raft.Log, ns uint64) {
	if ns != 0 {
		l.AppendedAt = time.Unix(0, int64(ns))
	}
}
