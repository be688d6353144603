package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
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

// These are negative, and do not compile, when the limits contradict each other.
const (
	_ = uint64(raftnet.MaxEntryBytes - MaxCommandBytes - 64<<10)
	_ = uint64(MaxCommandBytes - 2*entryMaxBytes)
	_ = uint64(peer.MaxFrame - 2*sendMaxBytes - MaxCommandBytes)
)

// forwarder sends this member's commands to the leader, and takes the others' commands when this
// member leads.
type forwarder struct {
	*engine
	leadership *leadership
	batcher    *batcher
	outbox     *outbox
}

// serveForward is the leader's end of a forward stream.
func (f *forwarder) serveForward(_ peer.Identity, c *peer.Stream) error {
	ctx, end, ok := f.leadership.whileLeading()
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
			if err := f.batcher.submit(ctx, cmds[:good]); err != nil {
				return err
			}
		}
		taken += uint64(good)
		if refused != nil {
			_ = c.SetWriteDeadline(time.Now().Add(f.peerTimeout()))
			// The stream ends in any case.
			_, _ = c.Write(binary.BigEndian.AppendUint64([]byte{forwardRefused}, taken))
			return refused
		}
	}
}

// checkForwarded returns the number of commands that may enter the log, up to the first that must
// not, and the reason against that one: there it would stop every member that applies it, or fit no
// frame.
func checkForwarded(cmds [][]byte) (good int, refused error) {
	for i, b := range cmds {
		if _, err := checkCommandSafely(b); err != nil {
			return i, fmt.Errorf("%w: forwarded command: %w", peer.ErrRefused, err)
		}
	}
	return len(cmds), nil
}

// route sends this member's commands to one leader, in one term.
type route struct {
	leader MemberID
	cancel context.CancelFunc
	done   chan struct{}
}

// startRoute sends every open command, from the oldest on, and goes on with those that are added.
// life ends with the replica.
func (f *forwarder) startRoute(life context.Context, leader MemberID) *route {
	ctx, cancel := context.WithCancel(context.Background())
	rt := &route{leader: leader, cancel: cancel, done: make(chan struct{})}
	term := f.raft.CurrentTerm()
	go func() {
		defer close(rt.done)
		followed := false // a stream was accepted
		for ctx.Err() == nil {
			f.outbox.rewind()
			var err error
			if leader == f.cfg.ID {
				err = f.outbox.sendTo(ctx, false, func(cmds [][]byte) error { return f.batcher.submit(ctx, cmds) })
			} else {
				err = f.forwardTo(ctx, leader)
			}
			if ctx.Err() == nil {
				if followed = followed || errors.Is(err, errStreamEnded); followed {
					f.leadership.streamEnded(ctx, life, leader, term)
				}
				f.cfg.Logger.Debug("commands cannot reach the leader, trying again", "leader", leader, "err", err)
				sleep(ctx, routeRetry)
			}
		}
	}()
	return rt
}

// routeRetry is the pause before a broken forward stream is opened again.
const routeRetry = 20 * time.Millisecond

func (rt *route) end() {
	rt.cancel()
	<-rt.done
}

// errStreamEnded says that a stream has ended which the leader had accepted.
var errStreamEnded = errors.New("quorum: forward stream ended")

// forwardTo opens a forward stream and sends commands over it until it breaks.
func (f *forwarder) forwardTo(ctx context.Context, leader MemberID) error {
	dialCtx, cancel := context.WithTimeout(ctx, f.peerTimeout())
	c, err := f.port.Dial(dialCtx, leader, peer.StreamForward)
	cancel()
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	var ok [1]byte
	_ = c.SetReadDeadline(time.Now().Add(f.peerTimeout()))
	if _, err := c.Read(ok[:]); err != nil {
		return fmt.Errorf("quorum: member %d does not lead: %w", leader, err)
	}
	_ = c.SetReadDeadline(time.Time{})

	// The leader writes once more at most: when this read returns, the stream has ended.
	streamCtx, broken := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		var last [1 + 8]byte
		_, err := io.ReadFull(c, last[:])
		if err == nil && last[0] == forwardRefused {
			err = f.refused(binary.BigEndian.Uint64(last[1:]))
		}
		broken(err)
	}()
	defer wg.Wait()
	defer c.Close()

	var buf []byte
	err = f.outbox.sendTo(streamCtx, true, func(cmds [][]byte) error {
		buf = appendCommands(buf[:0], cmds)
		_ = c.SetWriteDeadline(time.Now().Add(f.peerTimeout()))
		_, err := c.Write(buf)
		return err
	})
	return fmt.Errorf("%w: %w", errStreamEnded, err)
}

// refused drops the command with number n on the present stream. It returns why the stream ends.
func (f *forwarder) refused(n uint64) error {
	key, ok := f.outbox.refuse(n)
	if !ok {
		return fmt.Errorf("quorum: the leader refused command %d of the stream, which is not known here", n)
	}
	f.cfg.Logger.Warn("the leader refused a command of this member: it is dropped, and its client's connection ends",
		"session", key.Session, "kind", key.Kind)
	f.cfg.Listener.Undeliverable(key)
	return errors.New("quorum: the leader refused a command")
}
