package quorum

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
)

// oldSnapshots keeps snapshots from the library that are older than what this member has applied. The library (UPSTREAM.md, 4) installs
// whatever a leader of its term sends, and a snapshot may come late: its leader has given up on the connection and sent a newer one
// over the next, and what the network had held back of the first arrives after all. Installed, it would take this
// member's state, which clients have seen, back to where it was.
//
// It stands between those who ask and the library.
type oldSnapshots struct {
	next    rpcHandler
	applied func() uint64 // the newest entry that is in the state
}

// keepOut begins to keep old snapshots from the library. Applied says which is the newest entry that is in the state.
func (t *transport) keepOut(applied func() uint64) {
	t.hand = oldSnapshots{next: t.hand, applied: applied}.pass
}

// pass is called by several peers at once, and keeps nothing of what they ask.
func (o oldSnapshots) pass(rpc raft.RPC, stop <-chan struct{}) {
	if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && !mutant.On(mutant.OldSnapshotInstalled) {
		if req.LastLogIndex <= o.applied() {
			decline(rpc, req)
			return
		}
		rpc.Reader = &snapshotReader{r: rpc.Reader, index: req.LastLogIndex, applied: o.applied}
	}
	o.next(rpc, stop)
}

// decline answers that the member has what the snapshot holds. Its leader, should it still be there, goes on from there.
func decline(rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	_, _ = io.Copy(io.Discard, rpc.Reader) // the next request of the connection stands behind it
	rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: req.RPCHeader, Term: req.Term, Success: true}, nil)
}

// errOldSnapshot says that the member has applied more than what the snapshot holds.
var errOldSnapshot = errors.New("quorum: the snapshot is older than this member")

// snapshotReader is the snapshot on its way to the library. The library's main loop reads it, which is what has entries
// applied; so what is not older when it is read to its end is not older when it is installed.
type snapshotReader struct {
	r       io.Reader
	index   uint64
	applied func() uint64
}

// Read implements io.Reader. Errors: errOldSnapshot, with which the library drops what it has read.
func (s *snapshotReader) Read(b []byte) (int, error) {
	if s.index <= s.applied() {
		_, _ = io.Copy(io.Discard, s.r) // as in decline
		return 0, errOldSnapshot
	}
	return s.r.Read(b)
}
