package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/peer"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Forward stream, follower to leader: frames of commands, each frame
//
//	| length u32 | { command length u32 | command }... |
//
// The leader answers the preface with one byte, 1, when it takes commands, and closes the stream
// when it is not, or no longer, the leader. A follower learns the result of a command by applying
// it. When a command must not be in the log, the leader refuses it with an answer before it closes
// the stream:
//
//	| 2 u8 | number of the command on this stream u64, from 0 on |
//
// The follower drops that command, or it would send it again on each stream to come.
const (
	forwardAccepted = 1
	forwardRefused  = 2
)

// serveForward is the leader's end of a forward stream.
func (r *Replica) serveForward(_ MemberID, c *peer.Stream) error {
	ctx, end, ok := r.leadership()
	if !ok {
		return nil // closing the stream says it
	}
	defer end()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Write([]byte{forwardAccepted}); err != nil {
		return err
	}
	for taken := uint64(0); ; {
		// A fresh buffer for each frame: the commands are kept until they are in an entry.
		frame, err := c.ReadFrame(peer.MaxFrame, nil)
		if err != nil {
			return err
		}
		cmds, err := splitCommands(frame)
		if err != nil {
			return err
		}
		good, refused := checkForwarded(cmds)
		if good > 0 {
			if err := r.batcher.submit(ctx, cmds[:good]); err != nil {
				return err
			}
		}
		taken += uint64(good)
		if refused != nil {
			_ = c.SetWriteDeadline(time.Now().Add(r.peerTimeout()))
			_, _ = c.Write(binary.BigEndian.AppendUint64([]byte{forwardRefused}, taken)) // the stream ends in any case
			return refused
		}
	}
}

// checkForwarded returns how many of the commands may enter the log, up to the first that must not,
// and why that must not: there it would stop every member that applies it, or fit no frame.
func checkForwarded(cmds [][]byte) (good int, refused error) {
	for i, b := range cmds {
		if err := checkCommandSafely(b); err != nil {
			return i, fmt.Errorf("%w: forwarded command: %w", peer.ErrRefused, err)
		}
	}
	return len(cmds), nil
}

// checkCommandSafely is checkCommand, of which a panic is an error.
func checkCommandSafely(b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoding it: %v", p)
		}
	}()
	return checkCommand(b)
}

func checkCommand(b []byte) error {
	if len(b) > MaxCommandBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrCommandTooLong, len(b), MaxCommandBytes)
	}
	c, rest, err := znode.DecodeCommand(b)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes too many", len(rest))
	}
	switch c.Kind {
	case znode.KindRequest, znode.KindCreateSession, znode.KindAttach, znode.KindSync, znode.KindReconfig:
		return nil
	}
	return fmt.Errorf("%v is for the leader alone", c.Kind)
}

func appendCommands(b []byte, cmds [][]byte) []byte {
	start := len(b)
	b = peer.BeginFrame(b)
	for _, c := range cmds {
		b = binary.BigEndian.AppendUint32(b, uint32(len(c)))
		b = append(b, c...)
	}
	return peer.EndFrame(b, start)
}

// errTruncated says that a command of a frame is longer than the frame.
var errTruncated = fmt.Errorf("%w: truncated command in a forward frame", peer.ErrRefused)

func splitCommands(frame []byte) ([][]byte, error) {
	var cmds [][]byte
	for len(frame) > 0 {
		if len(frame) < 4 {
			return nil, errTruncated
		}
		n := binary.BigEndian.Uint32(frame)
		frame = frame[4:]
		if uint64(n) > uint64(len(frame)) {
			return nil, errTruncated
		}
		cmds = append(cmds, frame[:n:n])
		frame = frame[n:]
	}
	return cmds, nil
}

// route sends this member's commands to one leader, in one term.
type route struct {
	leader MemberID
	cancel context.CancelFunc
	done   chan struct{}
}

// startRoute sends every open command, from the oldest on, and goes on with those that are added.
// life ends with the replica.
func (r *Replica) startRoute(life context.Context, leader MemberID) *route {
	ctx, cancel := context.WithCancel(context.Background())
	rt := &route{leader: leader, cancel: cancel, done: make(chan struct{})}
	term := r.raft.CurrentTerm()
	go func() {
		defer close(rt.done)
		followed, succeeding := false, false // a stream was accepted; this member is about to take the leader's place
		for ctx.Err() == nil {
			r.outbox.rewind()
			var err error
			if leader == r.cfg.ID {
				err = r.outbox.sendTo(ctx, false, func(cmds [][]byte) error { return r.batcher.submit(ctx, cmds) })
			} else {
				err = r.forwardTo(ctx, leader)
			}
			if ctx.Err() == nil {
				followed = followed || errors.Is(err, errStreamEnded)
				if followed && !succeeding && r.processEnded(ctx, leader) {
					succeeding = true
					r.wg.Go(func() { r.succeed(life, leader, term) })
				}
				r.cfg.Logger.Debug("commands cannot reach the leader, trying again", "leader", leader, "err", err)
				sleep(ctx, routeRetry)
			}
		}
	}()
	return rt
}

// routeRetry is the pause before a broken forward stream is opened again.
const routeRetry = 20 * time.Millisecond

func (rt *route) stop() {
	rt.cancel()
	<-rt.done
}

// errStreamEnded says that a stream has ended which the leader had accepted.
var errStreamEnded = errors.New("quorum: forward stream ended")

// forwardTo opens a forward stream and sends commands over it until it breaks.
func (r *Replica) forwardTo(ctx context.Context, leader MemberID) error {
	dialCtx, cancel := context.WithTimeout(ctx, r.peerTimeout())
	c, err := r.port.Dial(dialCtx, leader, peer.StreamForward)
	cancel()
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	var ok [1]byte
	_ = c.SetReadDeadline(time.Now().Add(r.peerTimeout()))
	if _, err := c.Read(ok[:]); err != nil {
		return fmt.Errorf("quorum: member %d does not lead: %w", leader, err)
	}
	_ = c.SetReadDeadline(time.Time{})

	// Whatever the leader writes now is the last: when this read returns, the stream has ended.
	streamCtx, broken := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		var last [1 + 8]byte
		_, err := io.ReadFull(c, last[:])
		if err == nil && last[0] == forwardRefused {
			err = r.refused(binary.BigEndian.Uint64(last[1:]))
		}
		broken(err)
	}()
	defer wg.Wait()
	defer c.Close()

	var buf []byte
	err = r.outbox.sendTo(streamCtx, true, func(cmds [][]byte) error {
		buf = appendCommands(buf[:0], cmds)
		_ = c.SetWriteDeadline(time.Now().Add(r.peerTimeout()))
		_, err := c.Write(buf)
		return err
	})
	return fmt.Errorf("%w: %w", errStreamEnded, err)
}

// refused drops the command with number n on the present stream. It returns why the stream ends.
func (r *Replica) refused(n uint64) error {
	key, ok := r.outbox.refuse(n)
	if !ok {
		return fmt.Errorf("quorum: the leader refused command %d of the stream, which is not known here", n)
	}
	r.cfg.Logger.Warn("the leader refused a command of this member: it is dropped, and its client's connection ends",
		"session", key.Session, "kind", key.Kind)
	r.cfg.Listener.Undeliverable(key)
	return errors.New("quorum: the leader refused a command")
}

// Lease stream, follower to leader, one request at a time:
//
//	report  | length u32 | { session u64 }... |
//	answer  | length u32 | status u8 | lag i64 (ns) | { session u64 }... |
//
// The answer lists the sessions whose lease the leader has extended. Lag is how long before it
// received the report the leader was last proven to be the leader; it counts against the
// confirmation.
const (
	leaseConfirmed byte = 1
	leaseNotLeader byte = 2

	// maxLeaseFrame bounds a frame of the lease stream: two million sessions of one member.
	maxLeaseFrame = 16 << 20
	// keptBytes is the largest buffer that a stream keeps.
	keptBytes = 1 << 20
)

// serveLease is the leader's end of a lease stream.
func (r *Replica) serveLease(_ MemberID, c *peer.Stream) error {
	var in, out []byte
	for {
		var err error
		if in, err = c.ReadFrame(maxLeaseFrame, keep(in)); err != nil {
			return err
		}
		if len(in)%8 != 0 {
			return fmt.Errorf("%w: a lease report of %d bytes", peer.ErrRefused, len(in))
		}
		received := time.Now()
		heard := make([]wire.SessionID, len(in)/8)
		for i := range heard {
			heard[i] = wire.SessionID(binary.BigEndian.Uint64(in[8*i:]))
		}
		out = peer.BeginFrame(keep(out)[:0])
		if extended, proven, err := r.touchAsLeader(heard); err != nil {
			out = append(out, leaseNotLeader)
		} else {
			out = append(out, leaseConfirmed)
			out = binary.BigEndian.AppendUint64(out, uint64(max(0, received.Sub(proven))))
			for _, id := range extended {
				out = binary.BigEndian.AppendUint64(out, uint64(id))
			}
		}
		if _, err := c.Write(peer.EndFrame(out, 0)); err != nil {
			return err
		}
	}
}

// keep is a buffer to be used again, or nil if it is too large to be kept.
func keep(buf []byte) []byte {
	if cap(buf) > keptBytes {
		return nil
	}
	return buf
}

// touchAsLeader extends leases on the leader.
func (r *Replica) touchAsLeader(heard []wire.SessionID) (extended []wire.SessionID, proven time.Time, err error) {
	term, ok := r.leadingTerm()
	if !ok {
		return nil, time.Time{}, ErrNoLeader
	}
	proven = r.transport.ProvenAt(term, time.Now())
	if proven.IsZero() {
		return nil, time.Time{}, ErrNoLeader
	}
	return r.cfg.Listener.Touch(heard), proven, nil
}

// leaseClient is a follower's end of a lease stream. It is used by one goroutine at a time.
type leaseClient struct {
	mu     sync.Mutex
	leader MemberID
	conn   *peer.Stream
	buf    []byte
}

// Touch reports sessions that this member heard from to the leader. It returns those whose lease
// was extended, and a moment, not after the call began, from which the extension counts: none of
// them is expired before that moment plus its timeout, by whatever leader. An error means that
// nothing is known. Touch serves one call at a time; others wait.
func (r *Replica) Touch(ctx context.Context, heard []wire.SessionID) (extended []wire.SessionID, from time.Time, err error) {
	l := &r.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	start := time.Now()
	leader, epoch := r.leaderEpoch()
	if leader == r.cfg.ID {
		extended, proven, err := r.touchAsLeader(heard)
		return extended, minTime(start, proven), err
	}
	if l.conn != nil && l.leader != leader {
		r.dropLeaseStream()
	}
	if leader == NoMember {
		return nil, time.Time{}, ErrNoLeader
	}
	ctx, cancel := context.WithTimeout(ctx, r.peerTimeout())
	defer cancel()
	defer context.AfterFunc(epoch, cancel)() // a leader of the past will not answer
	if l.conn == nil {
		c, err := r.port.Dial(ctx, leader, peer.StreamLease)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("quorum: reach leader %d: %w", leader, err)
		}
		l.leader, l.conn = leader, c
	}
	c := l.conn
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	extended, lag, err := l.exchange(heard)
	if err != nil {
		r.dropLeaseStream()
		return nil, time.Time{}, fmt.Errorf("quorum: report to leader %d: %w", leader, err)
	}
	if mutant.On(mutant.LeaseFromConfirmation) {
		start = time.Now()
	}
	return extended, start.Add(-lag), nil
}

func (r *Replica) dropLeaseStream() {
	if r.lease.conn != nil {
		_ = r.lease.conn.Close()
		r.lease.conn = nil
	}
}

func (l *leaseClient) exchange(heard []wire.SessionID) (extended []wire.SessionID, lag time.Duration, err error) {
	l.buf = peer.BeginFrame(l.buf[:0])
	for _, id := range heard {
		l.buf = binary.BigEndian.AppendUint64(l.buf, uint64(id))
	}
	if _, err := l.conn.Write(peer.EndFrame(l.buf, 0)); err != nil {
		return nil, 0, err
	}
	if l.buf, err = l.conn.ReadFrame(maxLeaseFrame, keep(l.buf)); err != nil {
		return nil, 0, err
	}
	b := l.buf
	if len(b) < 9 || b[0] != leaseConfirmed || (len(b)-9)%8 != 0 {
		return nil, 0, ErrNoLeader
	}
	lag = time.Duration(binary.BigEndian.Uint64(b[1:]))
	for b = b[9:]; len(b) > 0; b = b[8:] {
		extended = append(extended, wire.SessionID(binary.BigEndian.Uint64(b)))
	}
	return extended, lag, nil
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
