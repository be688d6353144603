package quorum

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// A snapshot that is older than what this member has applied does not reach the library, whether it was old when it came or
// became so before the library got to it. Its connection goes on, and its leader hears that the member has what it holds.
// Found by simulation: a snapshot whose leader had given up on it was held back by a partition, arrived half a minute later, and took the
// state back (jepsen sim, seed 707).
func TestOldSnapshotsAreKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(nil, 1, nil)
		var applied atomic.Uint64
		tr.keepOut(applied.Load)
		send := func(index uint64) (answer chan raft.RPCResponse, data *strings.Reader) {
			answer, data = make(chan raft.RPCResponse, 1), strings.NewReader("snapshot")
			go tr.hand(raft.RPC{Command: &raft.InstallSnapshotRequest{Term: 3, LastLogIndex: index}, Reader: data, RespChan: answer}, nil)
			return answer, data
		}
		applied.Store(100)
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
		send(101)
		rpc := <-tr.Consumer()
		if b, err := io.ReadAll(rpc.Reader); string(b) != "snapshot" || err != nil {
			t.Errorf("a newer snapshot: read %q, %v", b, err)
		}
		_, data := send(102)
		rpc = <-tr.Consumer()
		applied.Store(102)
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
		tr.close()
	})
}

// The same with a whole member, over its port: a snapshot that its leader has sent long ago arrives. The simulations hardly ever meet this
// since a leader whose requests fail gives up all its connections to the member.
func TestLateSnapshotTakesNothingBack(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(l, createSession(9)))
		if err := c.reps[f].raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		list, err := c.disks[f].List()
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		meta, r, err := c.disks[f].Open(list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(20) {
			c.recs[f].result(t, c.propose(l, sequential(9, seq+1, "/n-")))
		}
		id := []byte(serverID(MemberID(l + 1)))
		req := &raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: id},
			SnapshotVersion: meta.Version, Term: c.reps[l].raft.CurrentTerm(), LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex, Size: int64(len(data))}
		conn := newRaftConn(c.strangerFrom(hostName(l), streamRaft, MemberID(l+1), f), nil)
		if err := conn.send(rpcSnapshot, req); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
		var resp raft.InstallSnapshotResponse
		if err := conn.receive(rpcSnapshot, &resp); err != nil || !resp.Success {
			t.Errorf("answered: %+v, %v", resp, err)
		}
		conn.Close()
		if c.recs[f].restored != 0 || c.digest(f) != c.digest(l) {
			t.Errorf("the state was replaced %d times, and is the leader's: %v", c.recs[f].restored, c.digest(f) == c.digest(l))
		}
		c.recs[f].result(t, c.propose(f, sequential(9, 21, "/n-")))
	})
}
