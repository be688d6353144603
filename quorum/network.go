package quorum

import (
	"bufio"
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
)

// network is how the raft library's requests get to other members, and theirs to this one: over raft streams of the peer port, in
// the frames of rpcwire.go. What wants an answer and waits for it takes a connection out of a pool; a pipeline and a snapshot have
// one of their own. Whoever accepts a stream answers one request before it reads the next, in the goroutine of the connection.
type network struct {
	port *peerPort
	// hand takes what peers ask.
	hand rpcHandler
	// beat takes heartbeats, which must not wait for the disk.
	beat atomic.Pointer[func(raft.RPC)]
	// checker looks at what peers ask before hand or beat see it; nil: nobody does.
	checker *requestChecker

	asked atomic.Int32  // votes that this member has been asked for and has not answered
	voted atomic.Uint64 // the newest term in which it has given one to a peer

	mu   sync.Mutex
	idle map[raft.ServerID][]*raftConn // the newest last
}

// rpcHandler takes what a peer asks, and answers, or has it answered. It gives up when stop is closed.
type rpcHandler func(rpc raft.RPC, stop <-chan struct{})

var (
	_ raft.Transport   = (*network)(nil)
	_ raft.WithPreVote = (*network)(nil)
)

const (
	// rpcTimeout bounds a request and its answer. For a snapshot it counts for each snapshotStep of it.
	rpcTimeout   = 5 * time.Second
	snapshotStep = 256 << 10
	// idleMax is how many connections to one member are kept for later.
	idleMax = 4
	// keptBytes is the largest buffer that a connection keeps.
	keptBytes = 1 << 20
	// What one read from a connection takes at the most, besides large bodies: requests, and answers.
	requestReadBytes, answerReadBytes = 32 << 10, 512
)

func newNetwork(port *peerPort, hand rpcHandler) *network {
	n := &network{port: port, hand: hand, idle: map[raft.ServerID][]*raftConn{}}
	port.serve[streamRaft] = n.serve
	return n
}

// raftConn is a raft stream that this member has opened.
type raftConn struct {
	net.Conn
	r   *bufio.Reader
	buf []byte // where frames are put together
	// end closes the stream.
	end func()
}

func newRaftConn(c net.Conn, end func()) *raftConn {
	return &raftConn{Conn: c, r: bufio.NewReaderSize(c, answerReadBytes), end: end}
}

// send sends a request with one write.
func (c *raftConn) send(kind rpcKind, req any) error {
	c.buf = appendRequest(c.buf[:0], kind, req)
	_, err := c.Write(c.buf)
	if cap(c.buf) > keptBytes {
		c.buf = nil
	}
	return err
}

// receive reads the answer to a request of that kind. Errors: an rpcRefusal, after which the connection may be used again; others.
func (c *raftConn) receive(asked rpcKind, answer any) error {
	kind, body, err := readRaftFrame(c.r, maxAnswerBytes)
	if err != nil {
		return err
	}
	return decodeAnswer(asked, kind, body, answer)
}

// isRefusal says whether err is an answer.
func isRefusal(err error) bool {
	var r rpcRefusal
	return errors.As(err, &r)
}

// dial opens a raft stream.
//
// When it is closed, or its process killed, what the peer has not got yet is thrown away (SO_LINGER 0). The system would go on sending it,
// for minutes if the network does not let it through; and a leader that is long dead would be heard of once more when the network heals.
func (n *network) dial(id raft.ServerID) (*raftConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	c, err := n.port.dial(ctx, memberID(id), streamRaft)
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // it fails if the connection has ended
	}
	return newRaftConn(c, func() { n.port.forget(c) }), nil
}

// connect takes a stream out of the pool, or opens one.
func (n *network) connect(id raft.ServerID) (*raftConn, error) {
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
func (n *network) keep(id raft.ServerID, c *raftConn) {
	n.mu.Lock()
	idle := n.idle[id]
	full := len(idle) >= idleMax
	if !full {
		n.idle[id] = append(idle, c)
	}
	n.mu.Unlock()
	if full {
		c.end()
	}
}

// drop closes a stream that has failed, and those in the pool: they are older, and have most likely ended with the same process.
func (n *network) drop(id raft.ServerID, c *raftConn) {
	c.end()
	n.mu.Lock()
	idle := n.idle[id]
	delete(n.idle, id)
	n.mu.Unlock()
	for _, c := range idle {
		c.end()
	}
}

// call asks and waits for the answer.
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
	defer c.end()
	_ = c.SetDeadline(time.Now().Add(rpcTimeout * time.Duration(max(1, args.Size/snapshotStep))))
	if err := c.send(rpcSnapshot, args); err != nil {
		return err
	}
	sent, err := io.Copy(c.Conn, io.LimitReader(data, args.Size))
	switch {
	case err != nil:
		return err
	case sent < args.Size:
		return fmt.Errorf("quorum: the snapshot has %d bytes, and should have %d", sent, args.Size)
	}
	return c.receive(rpcSnapshot, resp)
}

// AppendEntriesPipeline implements raft.Transport. Pipelines are the transport's, which looks at their answers.
func (n *network) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// Consumer implements raft.Transport. What peers ask goes to hand.
func (n *network) Consumer() <-chan raft.RPC { return nil }

// LocalAddr implements raft.Transport. A member's number stands for its address: where that is at present the roster knows.
func (n *network) LocalAddr() raft.ServerAddress {
	return raft.ServerAddress(serverID(n.port.cfg.ID))
}

// EncodePeer implements raft.Transport.
func (n *network) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer implements raft.Transport.
func (n *network) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport.
func (n *network) SetHeartbeatHandler(beat func(raft.RPC)) { n.beat.Store(&beat) }

// serve answers what a peer asks on a stream, until that or the peer port ends.
func (n *network) serve(from MemberID, c net.Conn) {
	r := &frameReader{Reader: bufio.NewReaderSize(c, requestReadBytes), limit: c.SetReadDeadline, room: n.port.room}
	defer r.release()
	answers, source := make(chan raft.RPCResponse, 1), &snapshotSource{c: c, r: r}
	var buf []byte
	for {
		kind, body, err := r.readRaftFrame(maxRequestBytes)
		var req any
		if err == nil {
			req, err = n.decode(from, kind, body)
		}
		var answer raft.RPCResponse
		if err == nil && kind != rpcNotice {
			answer, err = n.ask(raft.RPC{Command: req, RespChan: answers}, answers, source)
		}
		if errors.Is(err, errRaftFrame) || errors.Is(err, errRequest) || errors.Is(err, errFrameRoom) {
			n.port.refuse(c, err)
			return
		}
		if err != nil {
			return
		}
		if kind == rpcNotice {
			n.hand(raft.RPC{Command: req, RespChan: make(chan raft.RPCResponse, 1)}, n.port.done)
			continue
		}
		buf = appendAnswer(buf[:0], kind, answer)
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

// decode decodes a request and looks at it. A panic of either is an error. Errors: errRaftFrame, errRequest.
func (n *network) decode(from MemberID, kind rpcKind, body []byte) (req any, err error) {
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

// ask has the library answer a request. Errors end the stream: errRequest, net.ErrClosed, those of the stream.
func (n *network) ask(rpc raft.RPC, answers <-chan raft.RPCResponse, source *snapshotSource) (raft.RPCResponse, error) {
	var snapshot *snapshotChecker
	switch q := rpc.Command.(type) {
	case *raft.InstallSnapshotRequest:
		source.begin(q.Size)
		rpc.Reader = source
		if n.checker != nil {
			snapshot = checkSnapshot(source)
			defer snapshot.close()
			// The library reads in its main loop. It does not have to wait for the beginning, nor see that there is none.
			head, err := io.ReadAll(io.LimitReader(snapshot, snapshotStep))
			if err != nil {
				return raft.RPCResponse{}, err
			}
			rpc.Reader = io.MultiReader(bytes.NewReader(head), snapshot)
		}
		n.hand(rpc, n.port.done)
	case *raft.AppendEntriesRequest:
		if beat := n.beat.Load(); beat != nil && isHeartbeat(q) {
			(*beat)(rpc)
			break
		}
		n.hand(rpc, n.port.done)
	case *raft.RequestVoteRequest:
		n.asked.Add(1)
		defer n.asked.Add(-1)
		n.hand(rpc, n.port.done)
	default:
		n.hand(rpc, n.port.done)
	}
	select {
	case answer := <-answers:
		if vote, ok := answer.Response.(*raft.RequestVoteResponse); ok && vote.Granted {
			n.voted.Store(vote.Term)
		}
		if snapshot != nil && snapshot.refused() != nil {
			return answer, snapshot.refused()
		}
		// What is left of a snapshot that was not wanted stands before the answer as the peer sees it, and before the next request.
		_, err := io.Copy(io.Discard, source)
		return answer, err
	case <-n.port.done:
		return raft.RPCResponse{}, net.ErrClosed
	}
}

// isHeartbeat says whether a request only says who leads.
func isHeartbeat(q *raft.AppendEntriesRequest) bool {
	return q.Term != 0 && len(q.Addr) > 0 && q.PrevLogEntry == 0 && q.PrevLogTerm == 0 &&
		len(q.Entries) == 0 && q.LeaderCommitIndex == 0
}

// snapshotSource is the snapshot behind a request. The library reads it in its main loop (UPSTREAM.md, 8), so it must end when its sender falls silent,
// or is slower than a leader would wait for.
type snapshotSource struct {
	c    net.Conn
	r    io.Reader
	left int64
	read int64
	from time.Time
	err  error
}

// begin begins a snapshot of so many bytes.
func (s *snapshotSource) begin(size int64) { s.left, s.read, s.from = size, 0, time.Now() }

// Read implements io.Reader. Errors: os.ErrDeadlineExceeded, when nothing has come for rpcTimeout, or less than a snapshotStep for each
// rpcTimeout; those of the connection. They stay.
func (s *snapshotSource) Read(b []byte) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.left == 0:
		return 0, io.EOF
	}
	silent, slow := time.Now().Add(rpcTimeout), s.from.Add(rpcTimeout*time.Duration(1+s.read/snapshotStep))
	_ = s.c.SetReadDeadline(minTime(silent, slow))
	n, err := s.r.Read(b[:min(int64(len(b)), s.left)])
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
