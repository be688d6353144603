package peer

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

	"lockkeeper/internal/mutant"
)

// network is how the raft library's requests get to other members, and theirs to this one: over
// raft streams of the peer port, in the frames of rpc.go. A request whose answer is waited for
// takes a connection out of a pool; a pipeline and a snapshot have one of their own. The receiver
// answers one request of a stream before it reads the next, in the goroutine of the connection.
type network struct {
	port *Port
	// hand takes requests of peers.
	hand  rpcHandler
	beats heartbeats
	// checker validates requests before they are handled; nil: they are not validated.
	checker *requestChecker

	votesPending atomic.Int32  // requests for a vote that have no answer yet
	voted        atomic.Uint64 // the newest term in which this member has voted for a peer

	mu   sync.Mutex
	idle map[raft.ServerID][]*Stream // the newest last
}

// rpcHandler takes the request of a peer and answers it, or has it answered. It gives up when stop
// is closed.
type rpcHandler func(rpc raft.RPC, stop <-chan struct{})

var (
	_ raft.Transport   = (*network)(nil)
	_ raft.WithPreVote = (*network)(nil)
)

const (
	// rpcTimeout bounds a request and its answer. For a snapshot it counts for each snapshotStep of
	// it.
	rpcTimeout   = 5 * time.Second
	snapshotStep = 256 << 10
	// idleMax is how many connections to one member are kept for later.
	idleMax = 4
	// keptBytes is the largest buffer that a connection keeps.
	keptBytes = 1 << 20
	// What one read from a connection takes at most, besides large bodies: requests, and answers.
	requestReadBytes, answerReadBytes = 32 << 10, 512
)

func newNetwork(port *Port, hand rpcHandler) *network {
	n := &network{port: port, hand: hand, checker: &requestChecker{local: port.local}, idle: map[raft.ServerID][]*Stream{}}
	n.beats.local = port.local
	port.raft = n.serve
	return n
}

// send sends a request with one write.
func (s *Stream) send(kind rpcKind, req any) error {
	s.buf = appendRequest(s.buf[:0], kind, req)
	_, err := s.Write(s.buf)
	if cap(s.buf) > keptBytes {
		s.buf = nil
	}
	return err
}

// receive reads the answer to a request of that kind. Errors: an rpcRefusal, after which the stream
// may be used again; others.
func (s *Stream) receive(asked rpcKind, answer any) error {
	kind, body, err := s.readRPC(maxAnswerBytes)
	if err != nil {
		return err
	}
	return decodeAnswer(asked, kind, body, answer)
}

// readRPC reads a frame of a raft stream. The body is the caller's.
func (s *Stream) readRPC(limit int) (rpcKind, []byte, error) {
	b, err := s.frames.readFrame(limit, nil)
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

// dial opens a raft stream.
//
// When it is closed, or its process killed, what the peer has not received yet is thrown away
// (SO_LINGER 0). The system would go on sending it, for minutes if the network does not let it
// through; and the requests of a leader that is long dead would arrive when the network heals.
func (n *network) dial(id raft.ServerID) (*Stream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	to, disk, ok := ParseServer(id)
	if !ok || n.port.roster.Cluster() == 0 {
		return nil, fmt.Errorf("peer: server %q cannot be reached from a member without a cluster", id)
	}
	s, err := n.port.dial(ctx, to, disk, StreamRaft)
	if err != nil {
		return nil, err
	}
	if tcp, ok := s.raw.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // it fails if the connection has ended
	}
	return s, nil
}

// connect takes a stream out of the pool, or opens one.
func (n *network) connect(id raft.ServerID) (*Stream, error) {
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
func (n *network) keep(id raft.ServerID, c *Stream) {
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
func (n *network) drop(id raft.ServerID, c *Stream) {
	_ = c.Close()
	n.mu.Lock()
	idle := n.idle[id]
	delete(n.idle, id)
	n.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}

// call sends a request and waits for the answer.
func (n *network) call(id raft.ServerID, req, answer any) error {
	c, err := n.connect(id)
	if err != nil {
		return err
	}
	kind := kindOf(req)
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

// AppendEntries implements raft.Transport.
func (n *network) AppendEntries(id raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return n.call(id, args, resp)
}

// RequestVote implements raft.Transport.
func (n *network) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return n.call(id, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (n *network) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return n.call(id, args, resp)
}

// TimeoutNow implements raft.Transport.
func (n *network) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return n.call(id, args, resp)
}

// InstallSnapshot implements raft.Transport.
func (n *network) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	c, err := n.dial(id)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(rpcTimeout * time.Duration(max(1, args.Size/snapshotStep))))
	if err := c.send(rpcSnapshot, args); err != nil {
		return err
	}
	sent, err := io.Copy(c.Conn, io.LimitReader(data, args.Size))
	switch {
	case err != nil:
		return err
	case sent < args.Size:
		return fmt.Errorf("peer: the snapshot has %d bytes, and should have %d", sent, args.Size)
	}
	return c.receive(rpcSnapshot, resp)
}

// AppendEntriesPipeline implements raft.Transport. Pipelines are the transport's, which looks at
// their answers.
func (n *network) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// Consumer implements raft.Transport. Requests of peers go to hand.
func (n *network) Consumer() <-chan raft.RPC { return nil }

// LocalAddr implements raft.Transport. A server's name is its address for raft: where the member is
// at present the Roster knows.
func (n *network) LocalAddr() raft.ServerAddress {
	return raft.ServerAddress(ServerID(n.port.cfg.ID, n.port.cfg.Disk))
}

// EncodePeer implements raft.Transport.
func (n *network) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer implements raft.Transport.
func (n *network) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport. The handler is never called (UPSTREAM.md, 15).
func (n *network) SetHeartbeatHandler(f func(raft.RPC)) {
	if mutant.On(mutant.HeartbeatPath) {
		n.beats.library.Store(&f)
	}
}

// serve answers the requests of a stream until that or the peer port ends. Errors: ErrRefused,
// those of the stream.
func (n *network) serve(from raft.ServerID, s *Stream) error {
	answers, source := make(chan raft.RPCResponse, 1), &snapshotSource{c: s, r: s.frames.Reader}
	for {
		kind, body, err := s.readRPC(maxRequestBytes)
		if err != nil {
			return err
		}
		req, err := n.decode(from, kind, body)
		if err != nil {
			return err
		}
		if q, ok := req.(*raft.AppendEntriesRequest); ok {
			n.port.local.Heard(q)
		}
		if kind == rpcNotice {
			n.hand(raft.RPC{Command: req, RespChan: make(chan raft.RPCResponse, 1)}, n.port.done)
			continue
		}
		answered := n.observe(req)
		answer, err := n.ask(from, raft.RPC{Command: req, RespChan: answers}, answers, source)
		if err != nil {
			return err
		}
		answered(answer.Response)
		s.buf = appendAnswer(s.buf[:0], kind, answer)
		if _, err := s.Write(s.buf); err != nil {
			return err
		}
	}
}

// observe is Config.Observe.
func (n *network) observe(req any) (answered func(answer any)) {
	if n.port.cfg.Observe == nil {
		return func(any) {}
	}
	return n.port.cfg.Observe(req)
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
	err = n.checker.check(from, req)
	if q, ok := req.(*raft.AppendEntriesRequest); ok && err == nil {
		q.PrevLogTerm = n.checker.local.PrevTerm(q.PrevLogEntry, q.PrevLogTerm)
	}
	return req, err
}

// ask has the library answer a request of a member, unless it is a heartbeat that needs no main
// loop. Errors end the stream: ErrRefused, net.ErrClosed, those of the stream.
func (n *network) ask(from raft.ServerID, rpc raft.RPC, answers <-chan raft.RPCResponse, source *snapshotSource,
) (raft.RPCResponse, error) {
	var snapshot *snapshotChecker
	hand := n.hand
	switch q := rpc.Command.(type) {
	case *raft.InstallSnapshotRequest:
		source.begin(q.Size)
		rpc.Reader = source
		if n.checker != nil {
			snapshot = checkSnapshot(source)
			defer snapshot.close()
			// The library reads in its main loop: the beginning must be here before, and a
			// snapshot without one must not get there.
			head, err := io.ReadAll(io.LimitReader(snapshot, snapshotStep))
			if err != nil {
				n.port.local.SnapshotTaken(err)
				return raft.RPCResponse{}, err
			}
			rpc.Reader = io.MultiReader(bytes.NewReader(head), snapshot)
		}
	case *raft.AppendEntriesRequest:
		if f := n.beats.library.Load(); f != nil && isHeartbeat(q) {
			hand = func(rpc raft.RPC, _ <-chan struct{}) { (*f)(rpc) }
		} else if resp := n.beats.answer(from, q); resp != nil {
			n.pass(q)
			return raft.RPCResponse{Response: resp}, nil
		}
	case *raft.RequestVoteRequest:
		n.votesPending.Add(1)
		defer n.votesPending.Add(-1)
	}
	hand(rpc, n.port.done)
	select {
	case answer := <-answers:
		if vote, ok := answer.Response.(*raft.RequestVoteResponse); ok && vote.Granted {
			n.voted.Store(vote.Term)
		}
		if snapshot != nil && snapshot.refused() != nil {
			n.port.local.SnapshotTaken(snapshot.refused())
			return answer, snapshot.refused()
		}
		if resp, ok := answer.Response.(*raft.InstallSnapshotResponse); ok && !errors.Is(answer.Error, errOldSnapshot) &&
			(resp.Success || answer.Error != nil) {
			n.port.local.SnapshotTaken(answer.Error)
		}
		// The rest of a snapshot that was not wanted is between this request and the next one.
		_, err := io.Copy(io.Discard, source)
		return answer, err
	case <-n.port.done:
		return raft.RPCResponse{}, net.ErrClosed
	}
}
