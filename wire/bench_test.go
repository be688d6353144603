package wire

import (
	"bufio"
	"bytes"
	"testing"
)

var (
	benchCreate = CreateRequest{Path: "/app/locks/resource-17/lock-", Data: make([]byte, 100), ACL: OpenACL,
		Mode: ModeEphemeralSequential}
	benchGet = PathWatchRequest{Path: "/app/config/feature-flags", Watch: true}
)

func benchDecode(b *testing.B, op Op, rec Record) {
	body := rec.Append(nil)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := DecodeBody(op, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeCreate(b *testing.B)  { benchDecode(b, OpCreate, benchCreate) }
func BenchmarkDecodeGetData(b *testing.B) { benchDecode(b, OpGetData, benchGet) }

func BenchmarkDecodeMulti(b *testing.B) {
	check := &CheckVersionRequest{Path: "/app/epoch", Version: 7}
	benchDecode(b, OpMulti, MultiRequest{[]MultiOp{{OpCheck, check}, {OpCreate, &benchCreate}}})
}

func benchReply(b *testing.B, body Record) {
	h := ReplyHeader{Xid: 1, Zxid: 1 << 32}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = AppendReply(out[:0], h, body)
	}
	b.SetBytes(int64(len(out)))
}

func BenchmarkReplyCreate(b *testing.B) { benchReply(b, &CreateResponse{Path: benchCreate.Path}) }
func BenchmarkReplyGetData(b *testing.B) {
	benchReply(b, &GetDataResponse{Data: make([]byte, 100), Stat: aStat})
}

// As a server makes it: a new body for every reply.
func BenchmarkReplyGetDataNewBody(b *testing.B) {
	data := make([]byte, 100)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = AppendReply(out[:0], ReplyHeader{Xid: 1}, &GetDataResponse{Data: data, Stat: aStat})
	}
}

func BenchmarkReadFrame(b *testing.B) {
	frame := AppendRequest(nil, 1, OpCreate, benchCreate)
	src := bytes.NewReader(nil)
	r := bufio.NewReader(src)
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		src.Reset(frame)
		r.Reset(src)
		payload, err := ReadFrame(r, nil, DefaultMaxBuffer)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := DecodeRequest(payload); err != nil {
			b.Fatal(err)
		}
	}
}
