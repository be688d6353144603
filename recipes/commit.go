package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/mutant"
)

// commit is a multi that takes effect exactly once, although its reply may be
// lost. It makes one node more, a tag: ephemeral, with a name that nobody else
// has. When the reply is lost, the tag tells whether the multi was carried out:
//
//	multi(ops..., create tag)       reply lost
//	multi without operations        a barrier: nothing of the old connection comes later
//	exists tag                      yes: it was; no: it was not, and never will be
//
// The tag is deleted in the background. If the session ends before the answer to
// the last question, nobody can know any more, and the error says so.
type commit struct {
	s   *Session
	tag string // full path
	acl []zk.ACL

	// sent is true from before a request is sent until its outcome is certain.
	sent atomic.Bool
}

// tagName is what the names of tags end with.
const tagName = "tag"

// newCommit prepares a commit whose tag is a child of dir, which has to exist
// when the operations have been carried out.
func newCommit(s *Session, dir string, acl []zk.ACL) *commit {
	return &commit{s: s, tag: dir + "/" + protect(tagName), acl: acl}
}

// committed is the outcome of a commit.
type committed struct {
	results []zk.MultiResponse // of the operations; nil if the reply was lost
	zxid    int64              // 0 if the reply was not lost
}

// run carries out ops, for a caller that waits no longer than ctx. Whatever goes
// on after that leaves no tag.
func (c *commit) run(ctx context.Context, ops ...any) (committed, error) {
	done, err := call(ctx, c.s, func(ctx context.Context) (committed, error) {
		return c.do(ctx, ops)
	}, nil)
	if err != nil && c.sent.Load() && undecided(err) && !errors.Is(err, ErrUnknown) {
		return done, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return done, err
}

func (c *commit) do(ctx context.Context, ops []any) (committed, error) {
	ops = append(ops[:len(ops):len(ops)], &zk.CreateRequest{
		Path: c.tag, Data: []byte{}, Acl: c.acl, Flags: zk.FlagEphemeral,
	})
	for attempt := 1; ; attempt++ {
		l, err := c.s.ready(ctx)
		if err != nil {
			return committed{}, err
		}
		if err := ctx.Err(); err != nil {
			return committed{}, err
		}
		c.sent.Store(true)
		results, err := c.s.conn.Multi(ops...)
		switch fateOf(err) {
		case fateDone:
			c.s.spawn(c.clean)
			return committed{results: results[:len(ops)-1]}, nil
		case fateRefused:
			c.sent.Store(false)
			return committed{}, err
		}
		zxid, serr := c.settle(ctx, l, attempt)
		if mutant.On(mutant.CommitTwice) {
			zxid = 0
			c.clean()
		}
		switch {
		case serr != nil:
			c.clean()
			return committed{}, serr
		case zxid != 0:
			c.s.spawn(c.clean)
			return committed{zxid: zxid}, nil
		}
		c.sent.Store(false)
		if fateOf(err) == fateStrange {
			return committed{}, err
		}
	}
}

// settle finds out whether a multi whose reply was lost was carried out, and
// returns its zxid, or 0.
func (c *commit) settle(ctx context.Context, l *lease, attempt int) (zxid int64, err error) {
	for ; ; attempt++ {
		if err := c.s.pause(ctx, attempt); err != nil {
			return 0, err
		}
		if err := c.s.writeNothing(); err != nil {
			continue
		}
		exists, stat, err := c.s.conn.Exists(c.tag)
		switch {
		case fateOf(err) == fateUnknown:
			continue
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		case exists:
			return stat.Czxid, nil
		}
		// The tag goes with its session, so that its absence says nothing then.
		if err := c.s.over(l); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return 0, nil
	}
}

// clean deletes the tag. It goes on until it is certain that there is none and
// will be none; only the end of the Session stops it.
func (c *commit) clean() {
	for attempt := 1; ; attempt++ {
		err := c.s.conn.Delete(c.tag, -1)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return
		}
		if fateOf(err) == fateRefused {
			c.s.log.Error("node cannot be deleted, it stays until the session ends", "node", c.tag, "err", err)
			return
		}
		if c.s.pause(context.Background(), attempt) != nil {
			return
		}
	}
}
