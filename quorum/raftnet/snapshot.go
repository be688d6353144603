package raftnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// A snapshot on its way from the leader passes these, in this order: snapshotSource bounds its
// time, snapshotChecker decodes it on the side, and snapshotReader ends it when this member has
// applied more than it holds.

// declineOld keeps a snapshot from the library that is older than this member's state, and reports
// whether it has answered it. The library (UPSTREAM.md, 4) installs every snapshot that a leader of
// its term sends, and a snapshot may come late: its leader has given up on the connection and sent
// a newer one over the next, and the network then delivers the first after all. Installed, it would
// take this member's state, which clients have seen, back to where it was.
func (t *Transport) declineOld(rpc *raft.RPC, req *raft.InstallSnapshotRequest) bool {
	if req.LastLogIndex <= t.local.AppliedIndex() {
		t.decline(*rpc, req)
		return true
	}
	rpc.Reader = &snapshotReader{r: rpc.Reader, index: req.LastLogIndex, applied: t.local.AppliedIndex}
	return false
}

// decline answers that the member has the content of the snapshot. Its leader, should it still
// lead, goes on from there. A leader of an older term, which this member follows no longer, learns
// of the present one: the library takes every other answer for a proof that it leads.
func (t *Transport) decline(rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	_, _ = io.Copy(io.Discard, rpc.Reader) // the next request of the connection follows it
	term := t.local.Term()
	rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: req.RPCHeader, Term: max(term, req.Term),
		Success: term <= req.Term}, nil)
}

// errSnapshotting says that the library must not install a snapshot now (UPSTREAM.md, 20).
var errSnapshotting = errors.New("raftnet: the member is writing a snapshot of its own, or installing another one")

// errOldSnapshot says that the member has applied more than the snapshot holds.
var errOldSnapshot = errors.New("raftnet: the snapshot is older than this member")

// snapshotReader is the snapshot on its way to the library. The library's main loop reads it, which
// also has entries applied; so a snapshot that is not older when it is read to its end is not older
// when it is installed.
type snapshotReader struct {
	r       io.Reader
	index   uint64
	applied func() uint64
}

// Read implements io.Reader. Errors: errOldSnapshot, with which the library drops the bytes read.
func (s *snapshotReader) Read(b []byte) (int, error) {
	if s.index <= s.applied() {
		_, _ = io.Copy(io.Discard, s.r) // as in decline
		return 0, errOldSnapshot
	}
	return s.r.Read(b)
}

// snapshotSource is the snapshot that follows a request. The library reads it in its main loop
// (UPSTREAM.md, 8), so it must end when its sender falls silent, or is slower than a leader would
// wait for.
type snapshotSource struct {
	c    net.Conn
	left int64
	read int64
	from time.Time
	err  error
}

// begin begins a snapshot of size bytes.
func (s *snapshotSource) begin(size int64) { s.left, s.read, s.from = size, 0, time.Now() }

// Read implements io.Reader. Errors: os.ErrDeadlineExceeded, when nothing has come for rpcTimeout,
// or less than a snapshotStep for each rpcTimeout; those of the connection. They stay.
func (s *snapshotSource) Read(b []byte) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.left == 0:
		return 0, io.EOF
	}
	silent, slow := time.Now().Add(rpcTimeout), s.from.Add(rpcTimeout*time.Duration(1+s.read/snapshotStep))
	_ = s.c.SetReadDeadline(slices.MinFunc([]time.Time{silent, slow}, time.Time.Compare))
	n, err := s.c.Read(b[:min(int64(len(b)), s.left)])
	s.read += int64(n)
	if s.left -= int64(n); s.left == 0 {
		_ = s.c.SetReadDeadline(time.Time{})
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	s.err = err
	return n, err
}

// snapshotChecker passes a snapshot on while it is decoded on the side. The last byte is followed
// by io.EOF only if all of it was a state; if not, the library drops its file.
type snapshotChecker struct {
	r    io.Reader
	pipe *io.PipeWriter
	done chan error // capacity 1: the result of decoding
	err  error      // that Read returns from now on; nil while there is more
}

func checkSnapshot(r io.Reader) *snapshotChecker {
	out, in := io.Pipe()
	s := &snapshotChecker{r: r, pipe: in, done: make(chan error, 1)}
	go func() { // until close
		_, err := restoreSafely(out)
		if err == nil {
			_, err = io.Copy(io.Discard, out)
		}
		_ = out.CloseWithError(err)
		s.done <- err
	}()
	return s
}

// restoreSafely is znode.Restore, of which a panic is an error.
func restoreSafely(r io.Reader) (store *znode.Store, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("raftnet: decode snapshot: %v", p)
		}
	}()
	return znode.Restore(r)
}

// Read implements io.Reader. Errors: peer.ErrRefused, if it is no snapshot; those of the stream.
func (s *snapshotChecker) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(b)
	if n > 0 {
		if _, werr := s.pipe.Write(b[:n]); werr != nil {
			s.err = requestErrorf("a snapshot that is none: %v", werr)
			return 0, s.err
		}
	}
	if err == io.EOF {
		_ = s.pipe.Close()
		if derr := <-s.done; derr != nil {
			err = requestErrorf("a snapshot that is none: %v", derr)
		}
		s.done <- nil // for close
	}
	s.err = err
	return n, err
}

// close waits for the decoding to end.
func (s *snapshotChecker) close() {
	_ = s.pipe.CloseWithError(io.ErrUnexpectedEOF)
	<-s.done
}

// refused is why the snapshot was none; nil if it was one, or has not been read to its end.
func (s *snapshotChecker) refused() error {
	if errors.Is(s.err, peer.ErrRefused) {
		return s.err
	}
	return nil
}
