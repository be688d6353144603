package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
)

// leaderStream is a follower's end of a stream of questions to the leader. It is used by one
// goroutine at a time.
type leaderStream struct {
	*engine
	kind     peer.StreamKind
	maxFrame int // bytes of an answer

	mu     sync.Mutex
	leader MemberID
	conn   *peer.Stream
	buf    []byte
}

// ask sends one frame to another member that leads, which it opens a stream to if there is
// none, and decodes the answer. epoch ends with the leader. The caller holds l.mu.
func (l *leaderStream) ask(ctx context.Context, leader MemberID, epoch context.Context,
	encode func(*codec.Codec), decode func(*codec.Codec) error) error {
	if l.leader != leader {
		l.drop()
	}
	if leader == NoMember {
		return ErrNoLeader
	}
	ctx, cancel := context.WithTimeout(ctx, l.peerTimeout())
	defer cancel()
	defer context.AfterFunc(epoch, cancel)() // a leader of the past will not answer
	if l.conn == nil {
		c, err := l.port.Dial(ctx, leader, l.kind)
		if err != nil {
			return fmt.Errorf("quorum: reach leader %d: %w", leader, err)
		}
		l.leader, l.conn = leader, c
	}
	c := l.conn
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := l.exchange(encode, decode); err != nil {
		l.drop()
		return fmt.Errorf("quorum: ask leader %d: %w", leader, err)
	}
	return nil
}

func (l *leaderStream) drop() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// exchange sends a question and waits for the answer. Errors: those of decode and of the stream.
func (l *leaderStream) exchange(encode func(*codec.Codec), decode func(*codec.Codec) error) (err error) {
	c := codec.Encode(peer.BeginFrame(l.buf[:0]))
	encode(&c)
	l.buf = peer.EndFrame(c.Encoded(), 0)
	if _, err := l.conn.Write(l.buf); err != nil {
		return err
	}
	if l.buf, err = l.conn.ReadFrame(l.maxFrame, keep(l.buf)); err != nil {
		return err
	}
	c = codec.Decode(l.buf)
	return decode(&c)
}

// keptBytes is the largest buffer that a stream keeps.
const keptBytes = 1 << 20

// keep is a buffer to be used again, or nil if it is too large to be kept.
func keep(buf []byte) []byte {
	if cap(buf) > keptBytes {
		return nil
	}
	return buf
}
