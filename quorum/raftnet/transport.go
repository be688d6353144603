package raftnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/clock"
	"lockkeeper/quorum/peer"
)

// Local is this member, its raft node, its log and its state, as the transport asks it and reports
// to it. Its methods are called by several goroutines, from Port.Start on.
type Local interface {
	// Term is the current term.
	Term() uint64
	// Leader is the leader that raft knows; empty: it knows none.
	Leader() raft.ServerID
	// Servers are the members of the newest configuration in the log, committed or not.
	Servers() []raft.Server
	// LastIndex is the last index of the log or the snapshot.
	LastIndex() uint64
	// EntryTerm is the term of an entry of the log; false if it is not there.
	EntryTerm(index uint64) (term uint64, ok bool)
	// PrevTerm is the term that raft has to be shown for the entry of that index and term, before
	// those that a leader sends: the same, but for the end of a snapshot that contradicted the log.
	PrevTerm(index, term uint64) uint64
	// LastIncluded is an entry of a snapshot, applied, that the log may lack, with those before it
	// (lastIncludedIndex and lastIncludedTerm, Raft, section 7); index 0: there is none.
	LastIncluded() (index, term uint64)
	// AppliedIndex is the newest entry that is in the state.
	AppliedIndex() uint64
	// AwaitDurable waits until this member's log is durable up to index. Errors: it will not be, or
	// stop is closed before it is.
	AwaitDurable(index uint64, stop <-chan struct{}) error
	// Heard is called with each AppendEntries request that arrives, before raft takes it. It does
	// not block.
	Heard(*raft.AppendEntriesRequest)
	// ReplicationBegan is called when this member, as the leader, begins to send a follower entries
	// of the log, or a snapshot.
	ReplicationBegan(snapshot bool)
	// BeginInstall waits until this member neither writes nor installs a snapshot, and keeps it
	// from both until end is called; false: limit has passed, or stop is closed, before.
	BeginInstall(limit time.Duration, stop <-chan struct{}) (end func(), ok bool)
	// SnapshotTaken is called when this member has installed a snapshot that a leader has sent, or
	// could not and why.
	SnapshotTaken(err error)
	// SnapshotSent is called when this member, as the leader, has sent another one a snapshot; err
	// says why that has not installed it.
	SnapshotSent(to peer.MemberID, err error)
}

// Config describes the transport of one member.
type Config struct {
	Self  raft.ServerID
	Local Local
	// Port carries the streams; nil for a member that is in no cluster with others.
	Port *peer.Port
	// Clock is the clock of the proof of leadership; nil means Go's monotonic clock.
	Clock *clock.Clock
	// Observe is called with each request of raft that arrives and is to be answered. The function
	// that it returns is called with the answer before that is sent. It is for simulations; nil:
	// nothing is called.
	Observe func(request any) (answered func(answer any))
}

// Transport is raft's transport. Beside the exchange of requests (network) it has three things that
// the library's interface does not have:
//
//   - the proof of leadership: when a quorum of voters last answered this leader in its term
//     (ProvenAt), which leases rely on;
//   - holding back followers' answers until this leader's own log is durable (hold), because the
//     leader's disk is written in parallel with the followers' (Local.AwaitDurable);
//   - sending followers the commit index at once (commitLoop; UPSTREAM.md, 10). The library sends
//     it with the next entries or after CommitTimeout, and a client of a follower would wait that
//     long for its reply. A follower that has the entry and does not know that it is committed is
//     sent a notice over the pipeline, an AppendEntries without entries that has no answer. Where a
//     leader and one follower are a majority, that is done as soon as the entry is on the leader's
//     disk: the early commit, docs/decisions/001-early-commit.md.
//
// Requests of peers pass it on their way to the library (hand): it declines old snapshots.
type Transport struct {
	Followers

	net  *network // nil for a member alone
	wg   sync.WaitGroup
	stop chan struct{}
	rpcs chan raft.RPC // to the library
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
)

// New makes the transport of a member.
func New(cfg Config) *Transport {
	t := newTransport(cfg.Self, cfg.Local)
	t.clock = cfg.Clock
	if cfg.Port != nil {
		t.net = newNetwork(cfg.Port, cfg.Local, t.hand, cfg.Observe)
	}
	return t
}

func newTransport(self raft.ServerID, local Local) *Transport {
	return &Transport{
		Followers: Followers{self: self, local: local, followers: map[raft.ServerID]*follower{},
			acked:     map[peer.DiskID]ack{},
			pipelines: map[raft.ServerID]*pipeline{}},
		stop: make(chan struct{}),
		rpcs: make(chan raft.RPC),
	}
}

// Serve serves a stream of the kind peer.StreamRaft that another member has opened, until that or
// the port ends. Errors: peer.ErrRefused, those of the stream.
func (t *Transport) Serve(from peer.Identity, s *peer.Stream) error {
	return t.net.serve(ServerID(from.Member, from.Disk), &conn{Stream: s})
}

// hand gives the library a peer's request, or this member's own, unless it answers it itself.
func (t *Transport) hand(rpc raft.RPC, stop <-chan struct{}) {
	if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && t.declineOld(&rpc, req) {
		return
	}
	select {
	case t.rpcs <- rpc:
	case <-stop:
	}
}

// Close ends the goroutines of the transport. Its port has been closed.
func (t *Transport) Close() {
	close(t.stop)
	t.wg.Wait()
	if t.net != nil {
		t.net.wg.Wait()
	}
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.rpcs }

// AppendEntries implements raft.Transport. While a follower is out of reach, the failure of a
// request that is no heartbeat is returned when a heartbeat has reached it (UPSTREAM.md, 18). The
// request is not sent then: its commit index is of an earlier time, and the follower would take
// itself for caught up with it.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := t.appendEntries(id, target, args, resp)
	if err != nil && t.net != nil && !isHeartbeat(args) && !isRefusal(err) && !errors.Is(err, errStale) {
		t.awaitContact(id, args.Term)
	}
	return err
}

const (
	// contactStep is how often a leader looks whether a heartbeat has reached a follower.
	contactStep = 20 * time.Millisecond
	// contactWait is how long it looks.
	contactWait = time.Minute
)

// awaitContact waits until a follower has answered a request that is sent from now on, or is no
// longer to be waited for: this member does not lead in that term any more, or does not have that
// follower, or ends, or contactWait is over. It returns at once when a follower has answered with a
// newer term, because the library sees that in answers to AppendEntries only, not to heartbeats.
func (t *Transport) awaitContact(id raft.ServerID, term uint64) {
	began := t.clock.Now()
	over := time.NewTimer(contactWait)
	defer over.Stop()
	ticker := time.NewTicker(contactStep)
	defer ticker.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-t.net.port.Done():
			return
		case <-over.C:
			return
		case <-ticker.C:
		}
		_, heard := t.Progress(id)
		if heard.After(began) || t.newestTerm() > term || t.local.Term() != term || t.local.Leader() != t.self ||
			!slices.ContainsFunc(t.local.Servers(), func(s raft.Server) bool { return s.ID == id }) {
			return
		}
	}
}

func (t *Transport) appendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	start := t.clock.Now()
	err := t.net.call(id, args, resp)
	if err == nil {
		t.answered(id, target, start, args, resp)
		err = t.hold(args, resp, nil)
	}
	return err
}

// hold delays the answer of a follower that has stored entries until they are durable here, too.
// Answers to requests without entries, and refusals, commit nothing and are not delayed; and the
// contact that an answer proves (answered) counts from when its request was sent, however long it
// is delayed. Errors: the entries will not be durable, or stop is closed; then the library must not
// see the answer.
func (t *Transport) hold(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
	stop <-chan struct{}) error {
	if len(args.Entries) == 0 || !resp.Success {
		return nil
	}
	return t.local.AwaitDurable(args.Entries[len(args.Entries)-1].Index, stop)
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.net == nil {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	c, err := t.net.connect(id)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // it has one from its last use
	t.local.ReplicationBegan(false)
	return newPipeline(t, id, target, c), nil
}

// InstallSnapshot implements raft.Transport.
func (t *Transport) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	t.local.ReplicationBegan(true)
	err := t.net.sendSnapshot(id, args, resp, data)
	switch {
	case err == nil && !resp.Success && resp.Term <= args.Term:
		t.local.SnapshotSent(IDOf(id), errNotInstalled)
	case err == nil || !errors.Is(err, net.ErrClosed):
		t.local.SnapshotSent(IDOf(id), err)
	}
	return err
}

// errNotInstalled says that a member has refused a snapshot without a reason.
var errNotInstalled = errors.New("raftnet: the member has not installed it")

// answered records a follower's answer to a request that was sent at start, by t.clock.
func (t *Transport) answered(id raft.ServerID, addr raft.ServerAddress, start time.Time,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if f := t.noteAnswer(id, addr, start, args, resp); f != nil {
		t.wg.Go(func() { t.commitLoop(f) })
	}
}

// commitLoop sends one follower the commit indexes that no entry carries, or not early enough: in a
// notice, which has no answer, while there is a pipeline, else in a request. It ends with the term.
func (t *Transport) commitLoop(f *follower) {
	for {
		select {
		case <-t.stop:
			return
		case _, ok := <-f.wake:
			if !ok {
				return
			}
		}
		args, addr, p, confirm, due := t.takeDue(f)
		if !due || p != nil && !confirm && p.notice(&args) == nil {
			continue
		}
		var resp raft.AppendEntriesResponse
		// A failure needs no second try: the library's own next request carries the commit index
		// too.
		_ = t.appendEntries(f.id, addr, &args, &resp)
	}
}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	return t.net.call(id, args, resp)
}

// RequestPreVote implements raft.WithPreVote. Without it a member that comes back from a partition
// would depose the leader with the high term that it reached alone.
func (t *Transport) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	return t.net.call(id, args, resp)
}

// TimeoutNow implements raft.Transport.
func (t *Transport) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	return t.net.call(id, args, resp)
}

// LocalAddr implements raft.Transport. A server's name is its address for raft: the port knows
// where the member is at present.
func (t *Transport) LocalAddr() raft.ServerAddress {
	if t.net == nil {
		return AloneAddr
	}
	return raft.ServerAddress(t.self)
}

// EncodePeer implements raft.Transport.
func (t *Transport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	if t.net == nil {
		return []byte(addr)
	}
	return []byte(id)
}

// DecodePeer implements raft.Transport.
func (t *Transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport. The handler is never called (UPSTREAM.md, 15).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// Stand has the library of this member hold an election at once.
func (t *Transport) Stand(ctx context.Context) {
	// The answer says nothing.
	t.hand(raft.RPC{Command: timeoutNow(), RespChan: make(chan raft.RPCResponse, 1)}, ctx.Done())
}

// Append has the library of this member take entries that no leader sends: the first configuration
// of a cluster. Errors: it refuses them, or ctx has ended.
func (t *Transport) Append(ctx context.Context, args *raft.AppendEntriesRequest) error {
	args.RPCHeader.ProtocolVersion = raft.ProtocolVersionMax
	answers := make(chan raft.RPCResponse, 1)
	t.hand(raft.RPC{Command: args, RespChan: answers}, ctx.Done())
	select {
	case a := <-answers:
		if resp, ok := a.Response.(*raft.AppendEntriesResponse); a.Error == nil && (!ok || !resp.Success) {
			return fmt.Errorf("raftnet: entry %d is refused", args.Entries[0].Index)
		}
		return a.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Elect has the library of another voter hold an election at once. It waits for its answer.
func (t *Transport) Elect(id raft.ServerID) error {
	return t.TimeoutNow(id, "", timeoutNow(), &raft.TimeoutNowResponse{})
}

// timeoutNow is the request that makes the library of a voter hold an election at once.
func timeoutNow() *raft.TimeoutNowRequest {
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
}

// Votes reports the newest term in which this member has voted for a peer, and whether it has
// a request for a vote that it has not answered.
func (t *Transport) Votes() (term uint64, pending bool) {
	return t.net.voted.Load(), t.net.votesPending.Load() > 0
}
