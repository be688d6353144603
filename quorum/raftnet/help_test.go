package raftnet

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

// fakeLocal is what a test says of this member. Fields that are not set are zero.
type fakeLocal struct {
	term, last, applied uint64
	// The last entry that is in a snapshot only.
	included, includedTerm uint64
	leader                 raft.ServerID
	servers                []raft.Server
	terms                  []uint64 // of the entries, by index; 0: there is none
	durable                func(index uint64, stop <-chan struct{}) error
}

func (l *fakeLocal) Term() uint64           { return l.term }
func (l *fakeLocal) Leader() raft.ServerID  { return l.leader }
func (l *fakeLocal) Servers() []raft.Server { return l.servers }
func (l *fakeLocal) LastIndex() uint64      { return l.last }
func (l *fakeLocal) AppliedIndex() uint64   { return l.applied }

func (l *fakeLocal) Heard(*raft.AppendEntriesRequest)  {}
func (l *fakeLocal) ReplicationBegan(bool)             {}
func (l *fakeLocal) SnapshotTaken(error)               {}
func (l *fakeLocal) SnapshotSent(peer.MemberID, error) {}

func (l *fakeLocal) BeginInstall(time.Duration, <-chan struct{}) (end func(), ok bool) {
	return func() {}, true
}

func (l *fakeLocal) LastIncluded() (index, term uint64) { return l.included, l.includedTerm }

func (l *fakeLocal) PrevTerm(_, term uint64) uint64 { return term }

func (l *fakeLocal) EntryTerm(index uint64) (term uint64, ok bool) {
	if index < uint64(len(l.terms)) {
		term = l.terms[index]
	}
	return term, term != 0
}

func (l *fakeLocal) AwaitDurable(index uint64, stop <-chan struct{}) error {
	if l.durable == nil {
		return nil
	}
	return l.durable(index, stop)
}

// streamOf is a stream over a connection that no port owns.
func streamOf(c net.Conn) *conn { return &conn{Stream: peer.NewStream(c)} }

// readerConn is a connection of which only reads count.
type readerConn struct {
	net.Conn
	r io.Reader
}

func (c readerConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// readRPC reads the first frame of a raft stream.
func readRPC(r io.Reader, limit int) (rpcKind, []byte, error) {
	return streamOf(readerConn{r: r}).readRPC(limit)
}

// rpcHeadLen is the length and the kind of a frame of a raft stream.
const rpcHeadLen = 5

// fakePort dials far ends.
type fakePort struct {
	done chan struct{}
	dial func() net.Conn // nil: nobody can be dialled
}

func newFakePort() *fakePort { return &fakePort{done: make(chan struct{})} }

func (p *fakePort) Done() <-chan struct{}   { return p.done }
func (p *fakePort) Cluster() peer.ClusterID { return 7 }

func (p *fakePort) DialDisk(context.Context, peer.MemberID, peer.DiskID, peer.StreamKind) (*peer.Stream, error) {
	if p.dial == nil {
		return nil, net.ErrClosed
	}
	return peer.NewStream(p.dial()), nil
}
