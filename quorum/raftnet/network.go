package raftnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

// network carries the raft library's requests to other members, and theirs to this one, over raft
// streams of the peer port, in the frames of rpc.go. A single request takes a connection out of a
// pool and waits for the answer; a pipeline and a snapshot have one of their own. The receiver
// answers one request of a stream before it reads the next, in the goroutine of the connection.
type network struct {
	port  port
	local Local
	// observe is Config.Observe; nil: nothing is called.
	observe func(request any) (answered func(answer any))
	// hand takes requests of peers.
	hand  rpcHandler
	beats heartbeats
	// checker validates requests before they are handled; nil: they are not validated.
	checker *requestChecker

	votesPending atomic.Int32  // requests for a vote that have no answer yet
	voted        atomic.Uint64 // the newest term in which this member has voted for a peer

	wg sync.WaitGroup // goroutines that end with the port

	mu   sync.Mutex
	idle map[raft.ServerID][]*conn // the newest last
}

// rpcHandler takes the request of a peer and answers it, or has it answered. It gives up when stop
// is closed.
type rpcHandler func(rpc raft.RPC, stop <-chan struct{})

// port is the part of the peer port that the transport needs.
type port interface {
	// DialDisk opens a stream to a member with that disk.
	DialDisk(ctx context.Context, to peer.MemberID, disk peer.DiskID, kind peer.StreamKind) (*peer.Stream, error)
	// Cluster is the cluster that this member belongs to; 0 for none.
	Cluster() peer.ClusterID
	// Done is closed when the port ends its streams.
	Done() <-chan struct{}
}

// conn is a raft stream that this member has dialled or accepted.
type conn struct {
	*peer.Stream
	buf []byte // in which requests are encoded
}

const (
	// rpcTimeout bounds a request and its answer. For a snapshot it counts for each snapshotStep of
	// it.
	rpcTimeout   = 5 * time.Second
	snapshotStep = 256 << 10
	// idleMax bounds the idle connections to one member.
	idleMax = 4
	// keptBytes is the largest buffer that a connection keeps.
	keptBytes = 1 << 20
)

func newNetwork(p port, local Local, hand rpcHandler, observe func(any) func(any)) *network {
	return &network{port: p, local: local, hand: hand, observe: observe, beats: heartbeats{local: local},
		checker: &requestChecker{local: local},
		idle:    map[raft.ServerID][]*conn{}}
}

// send sends a request with one write.
func (s *conn) send(kind rpcKind, req any) error {
	s.buf = appendRequest(s.buf[:0], kind, req)
	_, err := s.Write(s.buf)
	if cap(s.buf) > keptBytes {
		s.buf = nil
	}
	return err
}

// receive reads the answer to a request of that kind. Errors: an rpcRefusal, after which the stream
// may be used again; others.
func (s *conn) receive(asked rpcKind, answer any) error {
	kind, body, err := s.readRPC(maxAnswerBytes)
	if err != nil {
		return err
	}
	return decodeAnswer(asked, kind, body, answer)
}

// readRPC reads a frame of a raft stream. The body is the caller's.
func (s *conn) readRPC(limit int) (rpcKind, []byte, error) {
	b, err := s.ReadFrame(limit, nil)
	if err != nil {
		return 0, nil, err
	}
	if len(b) == 0 {
		return 0, nil, errRaftFrame
	}
	return rpcKind(b[0]), b[1:], nil
}

// isRefusal reports whether err is an answer.
func isRefusal(err error) bool {
	var r rpcRefusal
	return errors.As(err, &r)
}

// dial opens a raft stream. It is reset when it is closed: otherwise the requests of a leader that
// is long dead would arrive when the network heals.
func (n *network) dial(id raft.ServerID) (*conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	to, disk, ok := ParseServer(id)
	if !ok || n.port.Cluster() == 0 {
		return nil, fmt.Errorf("raftnet: server %q cannot be reached from a member without a cluster", id)
	}
	s, err := n.port.DialDisk(ctx, to, disk, peer.StreamRaft)
	if err != nil {
		return nil, err
	}
	s.ResetOnClose()
	return &conn{Stream: s}, nil
}

// connect takes a stream out of the pool, or opens one.
func (n *network) connect(id raft.ServerID) (*conn, error) {
	n.mu.Lock()
	if idle := n.idle[id]; len(idle) > 0 {
		last := len(idle) - 1
		c := idle[last]
		n.idle[id] = idle[:last]
		n.mu.Unlock()
		return c, nil
	}
	n.mu.Unlock()
	return n.dial(id)
}

// keep puts a stream into the pool.
func (n *network) keep(id raft.ServerID, c *conn) {
	n.mu.Lock()
	idle := n.idle[id]
	full := len(idle) >= idleMax
	if !full {
		n.idle[id] = append(idle, c)
	}
	n.mu.Unlock()
	if full {
		_ = c.Close()
	}
}

// drop closes a stream that has failed, and those in the pool: they are older, and have most likely
// ended with the same process.
func (n *network) drop(id raft.ServerID, c *conn) {
	_ = c.Close()
	n.mu.Lock()
	idle := n.idle[id]
	delete(n.idle, id)
	n.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}

// staleAfter is how long it may take to connect before an AppendEntries request is too old to be
// sent. The member may have started meanwhile, and would take itself for caught up with the commit
// index of the time before.
const staleAfter = 200 * time.Millisecond

// errStale says that a request was not sent because it was made too long ago. The next one finds a
// connection.
var errStale = errors.New("raftnet: it took long to connect, the request is made anew")

// errAlone says that a member alone has nobody to send a request to.
var errAlone = errors.New("raftnet: a member alone sends no requests")

// call sends a request and waits for the answer.
func (n *network) call(id raft.ServerID, req, answer any) error {
	if n == nil {
		return errAlone
	}
	began := time.Now()
	c, err := n.connect(id)
	if err != nil {
		return err
	}
	kind := kindOf(req)
	if q, ok := req.(*raft.AppendEntriesRequest); ok && !isHeartbeat(q) && time.Since(began) > staleAfter {
		n.keep(id, c)
		return errStale
	}
	_ = c.SetDeadline(time.Now().Add(rpcTimeout))
	if err = c.send(kind, req); err == nil {
		err = c.receive(kind, answer)
	}
	if err == nil || isRefusal(err) {
		n.keep(id, c)
	} else {
		n.drop(id, c)
	}
	return err
}

// sendSnapshot sends a snapshot over a stream of its own and waits for the answer.
func (n *network) sendSnapshot(id raft.ServerID, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse,
	data io.Reader) error {
	if n == nil {
		return errAlone
	}
	c, err := n.dial(id)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(rpcTimeout * time.Duration(max(1, args.Size/snapshotStep))))
	if err := c.send(rpcSnapshot, args); err != nil {
		return err
	}
	sent, err := io.Copy(c, io.LimitReader(data, args.Size))
	switch {
	case err != nil:
		return err
	case sent < args.Size:
		return fmt.Errorf("raftnet: the snapshot has %d bytes, and should have %d", sent, args.Size)
	}
	return c.receive(rpcSnapshot, resp)
}

// serve answers the requests of a stream until that or the peer port ends. Errors: peer.ErrRefused,
// those of the stream.
func (n *network) serve(from raft.ServerID, s *conn) error {
	answers, source := make(chan raft.RPCResponse, 1), &snapshotSource{c: s}
	for {
		kind, body, err := s.readRPC(maxRequestBytes)
		if err != nil {
			return err
		}
		req, err := n.decode(from, kind, body)
		if err != nil {
			return err
		}
		var answered func(answer any)
		if n.observe != nil && kind != rpcNotice {
			answered = n.observe(req)
		}
		if q, ok := req.(*raft.AppendEntriesRequest); ok {
			n.local.Heard(q)
			n.fit(q)
		}
		if kind == rpcNotice {
			n.hand(raft.RPC{Command: req, RespChan: make(chan raft.RPCResponse, 1)}, n.port.Done())
			continue
		}
		answer, err := n.ask(from, raft.RPC{Command: req, RespChan: answers}, answers, source)
		if err != nil {
			return err
		}
		if answered != nil {
			answered(answer.Response)
		}
		s.buf = appendAnswer(s.buf[:0], kind, answer)
		if _, err := s.Write(s.buf); err != nil {
			return err
		}
	}
}

// decode decodes a request and validates it. A panic of either is an error. Errors: ErrRefused.
func (n *network) decode(from raft.ServerID, kind rpcKind, body []byte) (req any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = requestErrorf("decoding it: %v", p)
		}
	}()
	if req, err = decodeRequest(kind, body); err != nil || n.checker == nil {
		return req, err
	}
	return req, n.checker.check(from, req)
}

// ask has the library answer a request of a member, unless it is a heartbeat that needs no main
// loop. Errors end the stream: peer.ErrRefused, net.ErrClosed, those of the stream.
func (n *network) ask(from raft.ServerID, rpc raft.RPC, answers <-chan raft.RPCResponse, source *snapshotSource,
) (raft.RPCResponse, error) {
	var snapshot *snapshotChecker
	switch q := rpc.Command.(type) {
	case *raft.InstallSnapshotRequest:
		end, ok := n.local.BeginInstall(rpcTimeout, n.port.Done())
		if !ok {
			n.local.SnapshotTaken(errSnapshotting)
			return raft.RPCResponse{}, errSnapshotting
		}
		defer end()
		source.begin(q.Size)
		rpc.Reader = source
		if n.checker != nil {
			snapshot = checkSnapshot(source)
			defer snapshot.close()
			// The library reads in its main loop: the beginning must be here before, and a
			// snapshot without one must not get there.
			head, err := io.ReadAll(io.LimitReader(snapshot, snapshotStep))
			if err != nil {
				n.local.SnapshotTaken(err)
				return raft.RPCResponse{}, err
			}
			rpc.Reader = io.MultiReader(bytes.NewReader(head), snapshot)
		}
	case *raft.AppendEntriesRequest:
		if resp := n.beats.answer(from, q); resp != nil {
			n.pass(q)
			return raft.RPCResponse{Response: resp}, nil
		}
	case *raft.RequestVoteRequest:
		n.votesPending.Add(1)
		defer n.votesPending.Add(-1)
	}
	n.hand(rpc, n.port.Done())
	select {
	case answer := <-answers:
		if vote, ok := answer.Response.(*raft.RequestVoteResponse); ok && vote.Granted {
			n.voted.Store(vote.Term)
		}
		if snapshot != nil && snapshot.refused() != nil {
			n.local.SnapshotTaken(snapshot.refused())
			return answer, snapshot.refused()
		}
		if resp, ok := answer.Response.(*raft.InstallSnapshotResponse); ok &&
			!errors.Is(answer.Error, errOldSnapshot) &&
			(resp.Success || answer.Error != nil) {
			n.local.SnapshotTaken(answer.Error)
		}
		// The rest of a snapshot that was not wanted is between this request and the next one.
		_, err := io.Copy(io.Discard, source)
		return answer, err
	case <-n.port.Done():
		return raft.RPCResponse{}, net.ErrClosed
	}
}
