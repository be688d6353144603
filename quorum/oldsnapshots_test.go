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
