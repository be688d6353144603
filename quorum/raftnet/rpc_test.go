package raftnet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

// rpcs has a request of each kind, with the answer to it.
func rpcs() []struct{ req, answer any } {
	return []struct{ req, answer any }{
		{&raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}},
		{&raft.RequestVoteRequest{}, &raft.RequestVoteResponse{}},
		{&raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{}},
		{&raft.InstallSnapshotRequest{}, &raft.InstallSnapshotResponse{}},
		{&raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{}},
	}
}

// fill gives every field below v another value that is not zero.
func fill(t *testing.T, v reflect.Value, n *int) {
	*n++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1e9, int64(*n))))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fill(t, v.Index(i), n)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n)&0xff | 1)
	case reflect.Uint64:
		v.SetUint(uint64(*n) << 40)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) << 16)
	default:
		t.Fatalf("the library has a field of a type that this test does not know: %v", v.Type())
	}
}

// leftOut are the fields that are not sent, for the header has what they say.
var leftOut = map[reflect.Type]string{
	reflect.TypeFor[raft.AppendEntriesRequest](): "Leader",
	reflect.TypeFor[raft.RequestVoteRequest]():   "Candidate",
}

// Every other field that the library's structs have gets to the other side, and there as it was. A
// field that is new in the library fails here.
func TestRPCsKeepEveryField(t *testing.T) {
	for _, tt := range rpcs() {
		for _, empty := range []bool{true, false} {
			n := 0
			if !empty {
				fill(t, reflect.ValueOf(tt.req).Elem(), &n)
				fill(t, reflect.ValueOf(tt.answer).Elem(), &n)
				if out := reflect.ValueOf(tt.req).Elem().FieldByName(leftOut[reflect.TypeOf(tt.req).Elem()]); out.IsValid() {
					out.SetZero()
				}
			}
			kind := kindOf(tt.req)
			frame := appendRequest([]byte("before"), kind, tt.req)[6:]
			got, body, err := readRPC(bufio.NewReader(iotestOneByte{bytes.NewReader(frame)}), maxRequestBytes)
			if err != nil || got != kind {
				t.Fatalf("%T: read kind %d, %v", tt.req, got, err)
			}
			if req, err := decodeRequest(kind, body); err != nil || !reflect.DeepEqual(req, tt.req) {
				t.Errorf("%T: decoded as %+v, %v, want %+v", tt.req, req, err, tt.req)
			}
			frame = appendAnswer([]byte("before"), kind, raft.RPCResponse{Response: tt.answer})[6:]
			got, body, err = readRPC(bufio.NewReader(bytes.NewReader(frame)), maxAnswerBytes)
			if err != nil {
				t.Fatalf("%T: %v", tt.answer, err)
			}
			answer := reflect.New(reflect.TypeOf(tt.answer).Elem())
			fill(t, answer.Elem(), &n) // of which nothing may remain
			if err := decodeAnswer(kind, got, body, answer.Interface()); err != nil || !reflect.DeepEqual(answer.Interface(), tt.answer) {
				t.Errorf("%T: decoded as %+v, %v, want %+v", tt.answer, answer, err, tt.answer)
			}
		}
	}
}

// iotestOneByte gives one byte at a time.
type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

func TestRefusalIsTold(t *testing.T) {
	long := strings.Repeat("x", 2*maxRefusal)
	for _, tt := range []struct{ say, want string }{{"unsupported", "unsupported"}, {long, long[:maxRefusal]}} {
		frame := appendAnswer(nil, rpcVote, raft.RPCResponse{Error: errors.New(tt.say)})
		kind, body, err := readRPC(bufio.NewReader(bytes.NewReader(frame)), maxAnswerBytes)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeAnswer(rpcVote, kind, body, &raft.RequestVoteResponse{}); !isRefusal(err) || err.Error() != tt.want {
			t.Errorf("refused with %v, want %q", err, tt.want)
		}
	}
}

// A body that lacks a byte, or has one too many, is none; nor is an answer to something else.
func TestRPCsOfAnotherLengthAreRefused(t *testing.T) {
	for _, tt := range rpcs() {
		n := 0
		fill(t, reflect.ValueOf(tt.req).Elem(), &n)
		fill(t, reflect.ValueOf(tt.answer).Elem(), &n)
		kind := kindOf(tt.req)
		body := appendRequest(nil, kind, tt.req)[rpcHeadLen:]
		for i := range body {
			if _, err := decodeRequest(kind, body[:i:i]); !errors.Is(err, errRaftFrame) {
				t.Errorf("%T: the first %d of %d bytes: %v", tt.req, i, len(body), err)
			}
		}
		if _, err := decodeRequest(kind, append(body, 0)); !errors.Is(err, errRaftFrame) {
			t.Errorf("%T: with one byte too many: %v", tt.req, err)
		}
		body = appendAnswer(nil, kind, raft.RPCResponse{Response: tt.answer})[rpcHeadLen:]
		for i := range body {
			if err := decodeAnswer(kind, kind|rpcAnswer, body[:i:i], tt.answer); !errors.Is(err, errRaftFrame) {
				t.Errorf("%T: the first %d of %d bytes: %v", tt.answer, i, len(body), err)
			}
		}
		if err := decodeAnswer(kind, kind, body, tt.answer); !errors.Is(err, errRaftFrame) {
			t.Errorf("%T: a request for an answer: %v", tt.answer, err)
		}
	}
}

// A length is not believed: what is made room for is what has arrived, twice at the most, and a
// little.
func TestLengthsThatLieTakeNoMemory(t *testing.T) {
	const frameStep = 64 << 10 // of the port
	frame := func(n uint32, sent int) *bufio.Reader {
		return bufio.NewReader(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, n), make([]byte, sent)...)))
	}
	for _, n := range []uint32{0, maxRequestBytes + 1, 1 << 31, 1<<32 - 1} {
		if _, _, err := readRPC(frame(n, 100), maxRequestBytes); !errors.Is(err, peer.ErrRefused) {
			t.Errorf("a frame of %d bytes: %v", n, err)
		}
	}
	for _, sent := range []int{1, 100, frameStep, 1 << 20} {
		r := frame(maxRequestBytes, sent)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, b, err := readRPC(r, maxRequestBytes)
		runtime.ReadMemStats(&after)
		if err != io.ErrUnexpectedEOF || len(b) > 2*sent+frameStep {
			t.Errorf("%d bytes of a frame that says %d: %v, room for %d", sent, maxRequestBytes, err, len(b))
		}
		// All the rooms together, of which each has twice what the one before had.
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(4*sent+2*frameStep+1<<16) {
			t.Errorf("%d bytes of a frame that says %d: %d bytes were made room for", sent, maxRequestBytes, took)
		}
	}
}

// The largest request that there can be goes through: as many entries as one has, each with the
// largest request of a client.
func TestTheLargestRequestFits(t *testing.T) {
	const largest = 4 << 20 // server.MaxMaxBuffer
	entry := appendRequest(nil, rpcAppend, &raft.AppendEntriesRequest{Entries: []*raft.Log{{Data: make([]byte, largest+64<<10)}}})
	if n := MaxAppendEntries*len(entry) + 1000; n > maxRequestBytes {
		t.Errorf("the largest requests, in all entries of one, have %d bytes, and %d are let through", n, maxRequestBytes)
	}
}

func FuzzRPCs(f *testing.F) {
	for _, tt := range rpcs() {
		kind := kindOf(tt.req)
		f.Add(byte(kind), appendRequest(nil, kind, tt.req)[rpcHeadLen:])
		f.Add(byte(kind), appendAnswer(nil, kind, raft.RPCResponse{Response: tt.answer})[rpcHeadLen:])
	}
	full := &raft.AppendEntriesRequest{Term: 7, Entries: []*raft.Log{{Index: 1, Data: []byte("x")}, {Index: 2, AppendedAt: time.Unix(0, 1)}}}
	f.Add(byte(rpcAppend), appendRequest(nil, rpcAppend, full)[rpcHeadLen:])
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		if req, err := decodeRequest(rpcKind(kind), body); err == nil {
			if again := appendRequest(nil, rpcKind(kind), req)[rpcHeadLen:]; !bytes.Equal(again, body) {
				t.Errorf("%x decoded and encoded again: %x", body, again)
			}
			if q, ok := req.(*raft.AppendEntriesRequest); ok && len(q.Entries)*entryMinLen > len(body) {
				t.Errorf("%d entries in %d bytes", len(q.Entries), len(body))
			}
		}
		for _, tt := range rpcs() {
			asked := kindOf(tt.req)
			if err := decodeAnswer(asked, rpcKind(kind)|rpcAnswer, body, tt.answer); err == nil {
				again := appendAnswer(nil, asked, raft.RPCResponse{Response: tt.answer})[rpcHeadLen:]
				if !bytes.Equal(again, body) {
					t.Errorf("%x decoded and encoded again: %x", body, again)
				}
			}
		}
	})
}
