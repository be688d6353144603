package raftnet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
)

// A leader whose follower has been started again finds all its old connections dead with the first
// that fails.
func TestPoolIsDroppedWithAMember(t *testing.T) {
	tr := newTransport(rafttest.ServerID(1), &fakeLocal{})
	n := newNetwork(newFakePort(), tr.local, nil, nil)
	tr.net = n
	var held []*conn
	for range idleMax + 2 {
		near, far := net.Pipe()
		far.Close()
		s := streamOf(near)
		held = append(held, s)
		n.keep(rafttest.ServerID(2), s)
	}
	if got := len(n.idle[rafttest.ServerID(2)]); got != idleMax {
		t.Errorf("%d connections are kept, want %d", got, idleMax)
	}
	if err := tr.RequestVote(rafttest.ServerID(2), "", &raft.RequestVoteRequest{Term: 1}, &raft.RequestVoteResponse{}); err == nil {
		t.Error("a request over a dead connection succeeds")
	}
	if got := len(n.idle[rafttest.ServerID(2)]); got != 0 {
		t.Errorf("%d connections are kept when one has failed", got)
	}
	for i, s := range held {
		if _, err := s.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
}

// Of a raft stream that is closed nothing arrives later: it is reset, not ended.
func TestClosedStreamSendsNothingMore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := newFakePort()
	port.dial = func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	near, err := newNetwork(port, &fakeLocal{}, nil, nil).dial(rafttest.ServerID(2))
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near.Close()
	if _, err := io.ReadAll(far); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v", err)
	}
}

// served serves a stream with what the library would say, in a bubble.
func served(t *testing.T, hand func(rpc raft.RPC)) (c *conn, done func()) {
	port := newFakePort()
	n := newNetwork(port, &fakeLocal{}, func(rpc raft.RPC, _ <-chan struct{}) { hand(rpc) }, nil)
	n.checker = nil
	near, far := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = n.serve(rafttest.ServerID(2), streamOf(far))
		far.Close()
	})
	return streamOf(near), func() {
		close(port.done)
		near.Close()
		wg.Wait()
	}
}

// One request of a stream is answered before the next is looked at, but for notices, of which the
// library may hear when it likes.
func TestStreamIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan raft.RPC, 10)
		c, done := served(t, func(rpc raft.RPC) { asked <- rpc })
		var b []byte
		for _, commit := range []uint64{1, 2} {
			b = appendRequest(b, rpcNotice, &raft.AppendEntriesRequest{Term: 5, LeaderCommitIndex: commit})
		}
		for _, term := range []uint64{6, 7} {
			b = appendRequest(b, rpcVote, &raft.RequestVoteRequest{Term: term})
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(asked); n != 3 {
			t.Fatalf("the library hears of %d requests, want 3", n)
		}
		for range 2 {
			rpc := <-asked
			// Nobody needs the response, but raft must not wait for it.
			rpc.Respond(&raft.AppendEntriesResponse{Term: 99, Success: true}, nil)
		}
		for _, term := range []uint64{6, 7} {
			rpc := <-asked
			rpc.Respond(&raft.RequestVoteResponse{Term: term}, nil)
			var resp raft.RequestVoteResponse
			if err := c.receive(rpcVote, &resp); err != nil || resp.Term != term {
				t.Errorf("answered: %+v, %v, want %d", resp, err, term)
			}
			synctest.Wait()
		}
		done()
	})
}

// BenchmarkAppendFrame is what a request with one entry costs, on both sides but for the network.
func BenchmarkAppendFrame(b *testing.B) {
	req := carrying(1)
	req.RPCHeader = rafttest.Header(1)
	req.Entries[0].Data = make([]byte, 200)
	var frame []byte
	src := bytes.NewReader(nil)
	s := streamOf(readerConn{r: src})
	b.ReportAllocs()
	for b.Loop() {
		frame = appendRequest(frame[:0], rpcAppend, req)
		src.Reset(frame)
		kind, body, err := s.readRPC(maxRequestBytes)
		if err == nil {
			_, err = decodeRequest(kind, body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
