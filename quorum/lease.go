package quorum

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
	"lockkeeper/wire"
)

// Lease stream, follower to leader, one request at a time:
//
//	report  | length u32 | { session u64 }... |
//	answer  | length u32 | status u8 | lag i64 (ns) | n u8 | n x { disk u64, index u64 } | { session u64 }... |
//
// The answer lists the sessions with a lease that the leader has extended. Lag is how long before
// it received the report the leader was last proven to be the leader; it counts against the
// confirmation. All moments are of clock.Clock.Now, which counts suspends. For each disk that the
// leader knows, in ascending order, there is the committed index up to which it has acknowledged
// entries: the next leader is to know it, too.
const (
	leaseConfirmed byte = 1
	leaseNotLeader byte = 2

	// maxLeaseFrame bounds a frame of the lease stream: two million sessions of one member.
	maxLeaseFrame = 16 << 20
)

// leaseAnswer is the leader's answer.
type leaseAnswer struct {
	status   byte
	lag      time.Duration
	acked    map[peer.DiskID]uint64 // raftnet.Transport.Acked, at most 255 of them
	extended []wire.SessionID
}

func (a *leaseAnswer) code(c *codec.Codec) {
	codec.U8(c, &a.status)
	if a.status == leaseConfirmed {
		codec.I64(c, &a.lag)
		a.codeAcked(c)
		codec.Rest(c, &a.extended)
	}
}

func (a *leaseAnswer) codeAcked(c *codec.Codec) {
	disks := slices.Sorted(maps.Keys(a.acked))
	n := uint8(min(len(disks), math.MaxUint8))
	codec.U8(c, &n)
	if c.Decoding() {
		a.acked, disks = map[peer.DiskID]uint64{}, make([]peer.DiskID, n)
	}
	for i := range disks[:n] {
		index := a.acked[disks[i]]
		c.U64((*uint64)(&disks[i]), &index)
		c.Refuse(i > 0 && disks[i] <= disks[i-1])
		a.acked[disks[i]] = index
	}
}

// leases extends the leases of this member's sessions, and on the leader the leases of all.
type leases struct {
	*engine
	leadership *leadership
	stream     leaderStream
}

func newLeases(e *engine, l *leadership) *leases {
	return &leases{engine: e, leadership: l, stream: leaderStream{engine: e, leadership: l, kind: peer.StreamLease,
		maxFrame: maxLeaseFrame}}
}

// serveLease is the leader's end of a lease stream.
func (l *leases) serveLease(_ peer.Identity, s *peer.Stream) error {
	return answerQuestions(s, maxLeaseFrame, func(question, answer *codec.Codec) error {
		received := l.cfg.Clock.Now()
		var heard []wire.SessionID
		if codec.Rest(question, &heard); question.Err() != nil {
			return fmt.Errorf("%w: a malformed lease report", peer.ErrRefused)
		}
		a := leaseAnswer{status: leaseNotLeader}
		if extended, proven, err := l.touchAsLeader(heard); err == nil {
			a = leaseAnswer{status: leaseConfirmed, lag: max(0, received.Sub(proven)), acked: l.transport.Acked(),
				extended: extended}
		}
		a.code(answer)
		return nil
	})
}

// touchAsLeader extends leases on the leader.
func (l *leases) touchAsLeader(heard []wire.SessionID) (extended []wire.SessionID, proven time.Time, err error) {
	term, ok := l.leadership.leadingTerm()
	if !ok {
		return nil, time.Time{}, ErrNoLeader
	}
	proven = l.transport.ProvenAt(term, l.cfg.Clock.Now())
	if proven.IsZero() {
		return nil, time.Time{}, ErrNoLeader
	}
	return l.cfg.Listener.Touch(heard), proven, nil
}

// Touch is Replica.Touch.
func (l *leases) Touch(ctx context.Context, heard []wire.SessionID) (extended []wire.SessionID, from time.Time,
	err error) {
	start := l.cfg.Clock.Now()
	err = l.stream.ask(ctx, func(context.Context) error {
		var proven time.Time
		extended, proven, err = l.touchAsLeader(heard)
		from = slices.MinFunc([]time.Time{start, proven}, time.Time.Compare)
		return err
	}, func(c *codec.Codec) { codec.Rest(c, &heard) }, func(c *codec.Codec) error {
		var answer leaseAnswer
		if answer.code(c); c.Err() != nil || answer.status != leaseConfirmed {
			return ErrNoLeader
		}
		l.transport.NoteAcked(answer.acked)
		extended, from = answer.extended, start.Add(-answer.lag)
		return nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return extended, from, nil
}

// leaderStream is a member's stream of questions to the leader.
type leaderStream struct {
	*engine
	leadership *leadership
	kind       peer.StreamKind
	maxFrame   int // bytes of an answer

	// Lock: mu is held for one question at a time, and taken before all other locks.
	mu     sync.Mutex
	leader MemberID
	conn   *peer.Stream
	buf    []byte
}

// ask sends a question to the member that leads, and decodes the answer. It opens a stream if there
// is none. If this member leads, ask calls here instead. Errors: ErrNoLeader, and the errors of the
// stream, of here and of decode.
func (l *leaderStream) ask(ctx context.Context, here func(context.Context) error,
	encode func(*codec.Codec), decode func(*codec.Codec) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	leader, epoch := l.leadership.leaderEpoch()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(epoch, cancel)() // a leader of the past will not answer
	if leader == l.cfg.ID {
		return here(ctx)
	}
	if l.leader != leader {
		l.drop()
	}
	if leader == NoMember {
		return ErrNoLeader
	}
	ctx, cancel = context.WithTimeout(ctx, l.peerTimeout())
	defer cancel()
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

// exchange sends a question and waits for the answer. Errors: decode's and the stream's.
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

// answerQuestions is the leader's end of a stream of questions: it answers one after the other. An
// error of answer ends the stream.
func answerQuestions(s *peer.Stream, maxFrame int, answer func(question, answer *codec.Codec) error) error {
	var in, out []byte
	for {
		var err error
		if in, err = s.ReadFrame(maxFrame, keep(in)); err != nil {
			return err
		}
		q, a := codec.Decode(in), codec.Encode(peer.BeginFrame(keep(out)[:0]))
		if err := answer(&q, &a); err != nil {
			return err
		}
		out = peer.EndFrame(a.Encoded(), 0)
		if _, err := s.Write(out); err != nil {
			return err
		}
	}
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
