package quorum

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// logged keeps what is logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) lines(with string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			n++
		}
	}
	return n
}

// stranger opens a raft stream to member i in the name, and from the host, of another member.
func (c *cluster) stranger(i int) net.Conn {
	c.t.Helper()
	other := (i + 1) % 3
	return c.strangerFrom(hostName(other), streamRaft, MemberID(other+1), i)
}

// strangerFrom opens a stream to member i from a host in the name of a member.
func (c *cluster) strangerFrom(host string, kind streamKind, from MemberID, i int) net.Conn {
	c.t.Helper()
	conn, err := c.net.Host(host).Dial(c.t.Context(), "tcp", c.members[i].Addr)
	if err != nil {
		c.t.Fatal(err)
	}
	preface := append([]byte(prefaceMagic), prefaceVersion, byte(kind), byte(from), byte(i+1))
	if _, err := conn.Write(binary.BigEndian.AppendUint32(preface, c.reps[i].roster.cluster())); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// A stream that carries something else than requests of raft is closed, no other is, and the log says once where that came from.
func TestGarbageEndsItsStreamOnly(t *testing.T) {
	out := &logged{}
	logTo := func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) }
	inCluster(t, 3, logTo, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		f := (l + 1) % 3
		whole := appendRequest(nil, rpcVote, &raft.RequestVoteRequest{})
		term := c.reps[l].raft.CurrentTerm()
		for i, garbage := range [][]byte{
			[]byte("GET / HTTP/1.1\r\n\r\n"),
			{0, 0, 0, 0, 0},
			{0xff, 0xff, 0xff, 0xff, byte(rpcAppend)},
			{0, 0, 0, 1, 99},
			{0, 0, 0, 1, byte(rpcAppend)},
			append(binary.BigEndian.AppendUint32(nil, uint32(len(whole)-4-1)), whole[4:len(whole)-1]...),
			appendRequest(nil, rpcSnapshot, &raft.InstallSnapshotRequest{Size: -1}),
		} {
			before := c.reps[f].port.count()
			conn := c.stranger(f)
			if _, err := conn.Write(garbage); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("garbage %d: the stream goes on: %v", i, err)
			}
			synctest.Wait()
			if after := c.reps[f].port.count(); after != before {
				t.Errorf("garbage %d: %d connections before, %d after", i, before, after)
			}
		}
		remote := "remote=" + hostName((f+1)%3)
		if n := out.lines(errRaftFrame.Error()); n != 1 || out.lines(remote) != 1 {
			t.Errorf("logged %d times, %d times with the address:\n%s", n, out.lines(remote), out.b.String())
		}
		c.recs[f].result(t, c.propose(f, sequential(9, 1, "/n-")))
		if c.leader() != l || c.reps[l].raft.CurrentTerm() != term {
			t.Error("another leader has been elected")
		}
	})
}

// count is how many connections there are.
func (p *peerPort) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Followers learn of a commit at once, by a notice: as long after the leader as a message takes, and without a request more.
func TestFollowersAreNoticedOfCommits(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		time.Sleep(5 * time.Second)
		for seq := range uint64(20) {
			key := c.propose(l, sequential(9, seq+1, "/n-"))
			c.recs[l].result(t, key)
			start := time.Now()
			for i := range 3 {
				c.recs[i].result(t, key)
			}
			if took := time.Since(start); took > 2*time.Millisecond {
				t.Errorf("a follower applied command %d %v after the leader", seq+1, took)
			}
			time.Sleep(time.Duration(seq) * 20 * time.Millisecond)
		}
		tr := c.reps[l].transport
		for i := range 3 {
			for id := MemberID(i + 1); i != l && !tr.knowsAll(id); {
				time.Sleep(time.Millisecond)
			}
		}
	})
}

// A leader whose follower has been started again finds all its old connections dead with the first that fails, and replicates as
// before.
func TestPoolIsDroppedWithAMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		f := (l + 1) % 3
		n := c.reps[l].transport.net
		var held []*raftConn
		for range idleMax + 1 {
			conn, err := n.dial(serverID(MemberID(f + 1)))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, conn)
		}
		for _, conn := range held {
			n.keep(serverID(MemberID(f+1)), conn)
		}
		n.mu.Lock()
		idle := len(n.idle[serverID(MemberID(f+1))])
		n.mu.Unlock()
		if idle != idleMax {
			t.Errorf("%d connections are kept, want %d", idle, idleMax)
		}
		c.crash(f)
		c.start(f)
		c.leader()
		time.Sleep(2 * time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, conn := range n.idle[serverID(MemberID(f+1))] {
			for _, old := range held {
				if conn == old {
					t.Error("a connection to the member as it was is still kept")
				}
			}
		}
		if n := c.reps[l].port.count(); n > 20 {
			t.Errorf("%d connections", n)
		}
	})
}

// Of a raft stream that is closed nothing arrives later: it is reset, not ended.
func TestClosedStreamSendsNothingMore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := Config{ID: 1, Members: []Member{{ID: 1}, {ID: 2, Addr: l.Addr().String()}}}
	cfg.setDefaults()
	port := newPeerPort(&cfg, newRoster(&cfg, func() []raft.Server { return nil }), nil)
	near, err := newNetwork(port, nil).dial("2")
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near.end()
	if _, err := io.ReadAll(far); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v", err)
	}
}

// served serves a stream with what the library would say, in a bubble.
func served(t *testing.T, hand func(rpc raft.RPC)) (c *raftConn, done func()) {
	cfg := Config{Logger: testLogger()}
	cfg.setDefaults()
	port := newPeerPort(&cfg, nil, nil)
	n := newNetwork(port, func(rpc raft.RPC, _ <-chan struct{}) { hand(rpc) })
	near, far := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		n.serve(2, far)
		far.Close()
	})
	return newRaftConn(near, func() { near.Close() }), func() {
		close(port.done)
		near.Close()
		wg.Wait()
	}
}

// What is not wanted of a snapshot is read all the same, so that the answer can be; and a sender that falls silent in the middle of one
// does not hold the member's main loop for longer than rpcTimeout.
func TestSnapshotsAreReadToTheirEnd(t *testing.T) {
	data := bytes.Repeat([]byte("snapshot"), 20_000)
	for _, tt := range []struct {
		about string
		sent  int
		take  func(r io.Reader) error // what the library does
		fails bool
	}{
		{"all of it", len(data), func(r io.Reader) error {
			b, err := io.ReadAll(r)
			if err == nil && !bytes.Equal(b, data) {
				err = fmt.Errorf("%d bytes came, want %d", len(b), len(data))
			}
			return err
		}, false},
		{"not wanted", len(data), func(io.Reader) error { return nil }, false},
		{"given up", len(data), func(r io.Reader) error { _, err := io.ReadFull(r, make([]byte, 10)); return err }, false},
		{"silent", 1000, func(r io.Reader) error {
			if _, err := io.ReadAll(r); !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("read with %v", err)
			}
			return nil
		}, true},
	} {
		t.Run(tt.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var err error
				c, done := served(t, func(rpc raft.RPC) {
					if err = tt.take(rpc.Reader); err == nil {
						rpc.Respond(&raft.InstallSnapshotResponse{Success: true}, nil)
					}
				})
				start := time.Now()
				if err := c.send(rpcSnapshot, &raft.InstallSnapshotRequest{Size: int64(len(data))}); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write(data[:tt.sent]); err != nil {
					t.Fatal(err)
				}
				var resp raft.InstallSnapshotResponse
				if got := c.receive(rpcSnapshot, &resp); (got != nil) != tt.fails || resp.Success == tt.fails {
					t.Errorf("answered: %+v, %v", resp, got)
				}
				if took := time.Since(start); tt.fails && took != rpcTimeout {
					t.Errorf("it took %v", took)
				}
				if err != nil {
					t.Error(err)
				}
				done()
			})
		})
	}
}

// One request of a stream is answered before the next is looked at, but for notices, of which the library may hear when it likes.
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
			rpc.Respond(&raft.AppendEntriesResponse{Term: 99, Success: true}, nil) // nobody needs it, and raft must not wait
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

// Heartbeats go past the library's main loop, which may be waiting for the disk.
func TestHeartbeatsDoNotWait(t *testing.T) {
	from := raft.RPCHeader{Addr: []byte("1")}
	for _, tt := range []struct {
		about string
		req   *raft.AppendEntriesRequest
		beat  bool
	}{
		{"a heartbeat", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3}, true},
		{"with a commit", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3, LeaderCommitIndex: 1}, false},
		{"behind an entry", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3, PrevLogEntry: 1}, false},
		{"with an entry", &raft.AppendEntriesRequest{RPCHeader: from, Term: 3, Entries: entries(1, 1)}, false},
		{"of nobody", &raft.AppendEntriesRequest{Term: 3}, false},
	} {
		if got := isHeartbeat(tt.req); got != tt.beat {
			t.Errorf("%s: a heartbeat: %v, want %v", tt.about, got, tt.beat)
		}
	}
	n := &network{port: &peerPort{done: make(chan struct{})}, hand: func(raft.RPC, <-chan struct{}) { t.Error("it goes to the main loop") }}
	n.SetHeartbeatHandler(func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Term: 3}, nil) })
	near, far := net.Pipe()
	go n.serve(2, far)
	c := newRaftConn(near, func() {})
	if err := c.send(rpcAppend, &raft.AppendEntriesRequest{RPCHeader: from, Term: 3}); err != nil {
		t.Fatal(err)
	}
	var resp raft.AppendEntriesResponse
	if err := c.receive(rpcAppend, &resp); err != nil || resp.Term != 3 {
		t.Errorf("answered: %+v, %v", resp, err)
	}
	near.Close()
}

// BenchmarkAppendFrame is what a request with one entry costs, on both sides but for the network.
func BenchmarkAppendFrame(b *testing.B) {
	req := carrying(1)
	req.RPCHeader = raft.RPCHeader{ProtocolVersion: 3, ID: []byte("1"), Addr: []byte("1")}
	req.Entries[0].Data = make([]byte, 200)
	var frame []byte
	src := bytes.NewReader(nil)
	r := bufio.NewReaderSize(src, requestReadBytes)
	b.ReportAllocs()
	for b.Loop() {
		frame = appendRequest(frame[:0], rpcAppend, req)
		src.Reset(frame)
		r.Reset(src)
		kind, body, err := readRaftFrame(r, maxRequestBytes)
		if err == nil {
			_, err = decodeRequest(kind, body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
