package raftnet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/quorum/peer"

	"lockkeeper/znode"
)

// A snapshot that is older than what this member has applied does not reach the library, whether it
// was old when it came or became so before the library got to it. Its connection goes on, and its
// leader hears that the member has what it holds, or that it leads no longer. Found by simulation:
// a snapshot whose leader had given up on it was held back by a partition, arrived half a minute
// later, and took the state back (jepsen sim, seed 707).
func TestOldSnapshotsAreKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := &fakeLocal{}
		tr := newTransport(rafttest.ServerID(1), local)
		send := func(index uint64) (answer chan raft.RPCResponse, data *strings.Reader) {
			answer, data = make(chan raft.RPCResponse, 1), strings.NewReader("snapshot")
			go tr.hand(raft.RPC{Command: &raft.InstallSnapshotRequest{Term: 3, LastLogIndex: index}, Reader: data, RespChan: answer}, nil)
			return answer, data
		}
		local.applied = 100
		for _, old := range []uint64{1, 99, 100} {
			answer, data := send(old)
			r := <-answer
			if resp, ok := r.Response.(*raft.InstallSnapshotResponse); !ok || !resp.Success || resp.Term != 3 || r.Error != nil {
				t.Errorf("snapshot %d, applied 100: answered with %+v", old, r)
			}
			if data.Len() != 0 {
				t.Errorf("snapshot %d: %d bytes are left in front of the next request", old, data.Len())
			}
		}
		local.term = 4
		answer, _ := send(100)
		if resp, ok := (<-answer).Response.(*raft.InstallSnapshotResponse); !ok || resp.Success || resp.Term != 4 {
			t.Errorf("an old snapshot of a leader of term 3, in term 4: answered with %+v", resp)
		}
		send(101)
		rpc := <-tr.Consumer()
		if b, err := io.ReadAll(rpc.Reader); string(b) != "snapshot" || err != nil {
			t.Errorf("a newer snapshot: read %q, %v", b, err)
		}
		_, data := send(102)
		rpc = <-tr.Consumer()
		local.applied = 102
		if b, err := io.ReadAll(rpc.Reader); !errors.Is(err, errOldSnapshot) {
			t.Errorf("a snapshot that became old on its way: read %q, %v", b, err)
		}
		if data.Len() != 0 {
			t.Errorf("a snapshot that became old on its way: %d bytes are left in front of the next request", data.Len())
		}
		go tr.hand(raft.RPC{Command: &raft.AppendEntriesRequest{Term: 4}}, nil)
		if rpc = <-tr.Consumer(); rpc.Command.(*raft.AppendEntriesRequest).Term != 4 {
			t.Errorf("passed on: %+v", rpc)
		}
		tr.Close()
	})
}

// What is not wanted of a snapshot is read all the same, so that the answer can be; and a sender
// that falls silent in the middle of one does not hold the member's main loop for longer than
// rpcTimeout.
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

// A snapshot is passed on as it is if it is one; of another the end is never passed on.
func TestSnapshotIsDecodedBeforeItsEnd(t *testing.T) {
	var good bytes.Buffer
	if _, err := znode.New().Snapshot().WriteTo(&good); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good.Bytes())
	flipped[len(flipped)/2] ^= 1
	for name, tt := range map[string]struct {
		data []byte
		ok   bool
	}{
		"a state": {good.Bytes(), true}, "a bit flipped": {flipped, false}, "cut off": {good.Bytes()[:good.Len()-1], false},
		"a byte more": {append(bytes.Clone(good.Bytes()), 0), false}, "nothing": {nil, false}, "garbage": {bytes.Repeat([]byte("x"), 1<<20), false},
	} {
		s := checkSnapshot(bytes.NewReader(tt.data))
		got, err := io.ReadAll(s)
		s.close()
		if (err == nil) != tt.ok || tt.ok && !bytes.Equal(got, tt.data) || !tt.ok && !errors.Is(s.refused(), peer.ErrRefused) {
			t.Errorf("%s: %d of %d bytes, %v, %v", name, len(got), len(tt.data), err, s.refused())
		}
	}
	s := checkSnapshot(bytes.NewReader(good.Bytes()))
	_, _ = s.Read(make([]byte, 3))
	s.close() // ends the goroutine
}

// A snapshot that comes a byte now and then does not hold the main loop for longer than a leader
// would wait.
func TestSlowSnapshotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var sender sync.WaitGroup
		defer sender.Wait()
		defer near.Close()
		sender.Go(func() {
			for {
				if _, err := near.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(rpcTimeout / 2)
			}
		})
		s := &snapshotSource{c: far}
		s.begin(1 << 30)
		start := time.Now()
		if _, err := io.Copy(io.Discard, s); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) > 2*rpcTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		far.Close()
	})
}
