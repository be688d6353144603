package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Claims stream, follower to leader, one question at a time:
//
//	claims  | length u32 | { session u64 | password (16) }... |
//	answer  | length u32 | status u8 | { 1 if the session may exist, else 0, u8 }... |
//
// The answer has one byte for each claim if its status is claimsDecided, else none. A leader that
// does not know the stream yet, during an upgrade, closes it; then nothing is known.
const (
	claimsDecided   byte = 1
	claimsUndecided byte = 2 // the sender does not lead, or cannot prove it

	// MaxClaims bounds the claims of a question.
	MaxClaims = 4096
	// maxClaimsFrame bounds a frame of the claims stream.
	maxClaimsFrame = MaxClaims * (8 + wire.PasswordLen)
)

// errClaims says that a question has too many claims.
var errClaims = errors.New("quorum: too many claims in one question")

// codeClaim encodes or decodes a claim.
func codeClaim(c *codec.Codec, claim *znode.Claim) {
	codec.I64(c, &claim.Session)
	c.Array(claim.Password[:])
}

// claims are questions whether sessions exist that a member does not know.
type claims struct {
	*engine
	leadership *leadership
	state      *state
	stream     leaderStream
}

func newClaims(e *engine, l *leadership, s *state) *claims {
	return &claims{engine: e, leadership: l, state: s,
		stream: leaderStream{engine: e, leadership: l, kind: peer.StreamClaims, maxFrame: maxClaimsFrame}}
}

// MayExist is Replica.MayExist.
func (cl *claims) MayExist(ctx context.Context, claims []znode.Claim) (exist []bool, err error) {
	if len(claims) > MaxClaims {
		return nil, errClaims
	}
	err = cl.stream.ask(ctx, func(ctx context.Context) error {
		exist, err = cl.decideClaims(ctx, claims)
		return err
	}, func(c *codec.Codec) {
		for i := range claims {
			codeClaim(c, &claims[i])
		}
	}, func(c *codec.Codec) error {
		var status byte
		if codec.U8(c, &status); status != claimsDecided {
			return ErrNoLeader
		}
		exist = make([]bool, len(claims))
		for i := range exist {
			c.Bool(&exist[i])
		}
		return c.Err()
	})
	if err != nil {
		return nil, err
	}
	return exist, nil
}

// serveClaims is the leader's end of a claims stream.
func (cl *claims) serveClaims(_ peer.Identity, s *peer.Stream) error {
	return answerQuestions(s, maxClaimsFrame, func(question, answer *codec.Codec) error {
		var claims []znode.Claim
		for question.More() {
			var claim znode.Claim
			codeClaim(question, &claim)
			claims = append(claims, claim)
		}
		if question.Err() != nil {
			return fmt.Errorf("%w: malformed claims", peer.ErrRefused)
		}
		status := claimsUndecided
		exist := cl.answerClaims(claims)
		if exist != nil {
			status = claimsDecided
		}
		codec.U8(answer, &status)
		for i := range exist {
			answer.Bool(&exist[i])
		}
		return nil
	})
}

// answerClaims decides the claims of another member; nil if this member cannot.
func (cl *claims) answerClaims(claims []znode.Claim) []bool {
	ctx, end, ok := cl.leadership.whileLeading()
	if !ok {
		return nil
	}
	defer end()
	exist, err := cl.decideClaims(ctx, claims)
	if err != nil {
		return nil
	}
	return exist
}

// decideClaims decides claims on the leader. That all the sessions exist it says at once: a claim
// that is let through is decided by the log. That one of them does not it says only when it is
// certain. Errors: ErrNoLeader, ctx's.
func (cl *claims) decideClaims(ctx context.Context, claims []znode.Claim) ([]bool, error) {
	arrived := cl.cfg.Clock.Now()
	if exist, all := cl.holds(claims); all {
		return exist, nil
	}
	// An unproven leader gives up after this time.
	ctx, cancel := context.WithTimeout(ctx, cl.cfg.heartbeatTimeout())
	defer cancel()
	if err := cl.settleSince(ctx, arrived); err != nil {
		return nil, err
	}
	exist, _ := cl.holds(claims)
	return exist, nil
}

// holds looks claims up in the state of this member.
func (cl *claims) holds(claims []znode.Claim) (exist []bool, all bool) {
	exist, all = make([]bool, len(claims)), true
	cl.state.View(func(s *znode.Store) {
		for i := range claims {
			exist[i] = s.Sessions().Holds(&claims[i])
			all = all && exist[i]
		}
	})
	return exist, all
}

// settleSince waits until the state of this member, which leads, has everything that any leader had
// committed at the moment arrived, which is now. Nothing is written for it: the leader waits until
// a quorum has followed it after that moment, so that no later leader can have committed anything
// before, and until it has applied the entries that its log has now. Errors: ErrNoLeader, ctx's.
func (cl *claims) settleSince(ctx context.Context, arrived time.Time) error {
	term, from, ok := cl.leadership.settledFrom()
	if !ok {
		return ErrNoLeader
	}
	last, err := cl.lastCommand(from)
	if err != nil {
		return err
	}
	for {
		if now, leads := cl.leadership.settledTerm(); !leads || now != term {
			return ErrNoLeader
		}
		proven := cl.transport.ProvenAt(term, cl.cfg.Clock.Now())
		applied := cl.state.applied()
		if !proven.Before(arrived) && applied >= last {
			return nil
		}
		if sleep(ctx, proofStep); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
