package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Again calls f, and calls it again, in the next session, each time it returns ErrExpired; and each
// time it returns ErrSilent, which expiry often looks like from here, when the cluster can be
// reached again. It is how a recipe is taken up once more. The grants of f are lost by then; f has
// to have released them. Again returns every other result of f; an outcome that is unknown
// (ErrUnknown) too, for only the caller can know whether to try that again.
func Again(ctx context.Context, s *Session, f func(ctx context.Context) error) error {
	for attempt := 1; ; attempt++ {
		began := time.Now()
		err := f(ctx)
		if !errors.Is(err, ErrExpired) && !errors.Is(err, ErrSilent) || errors.Is(err, ErrUnknown) {
			return err
		}
		if time.Since(began) > maxPause { // it got on in between
			attempt = 1
		}
		if err := s.link.pause(ctx, attempt); err != nil {
			return fmt.Errorf("recipes: wait for a session: %w", err)
		}
	}
}

// commit is a multi that takes effect exactly once, although its reply may be lost. It makes one
// node more, a tag: ephemeral, with a name that nobody else has. When the reply is lost, the tag
// tells whether the multi was carried out:
//
//	multi(ops..., create tag)       reply lost
//	multi without operations        a barrier: nothing of the old connection comes later
//	exists tag                      yes: it was; no: it was not, and never will be
//
// The tag is deleted in the background. If the session ends before the answer to the last question,
// nobody can know any more, and the error says so.
type commit struct {
	link *link
	tag  string // full path
	acl  []zk.ACL

	// sent is true from before a request is sent until its outcome is certain.
	sent atomic.Bool
}

// tagName is the end of the names of tags.
const tagName = "tag"

// newCommit prepares a commit with a tag in dir, which has to exist when the operations have been
// carried out.
func newCommit(s *Session, dir string, acl []zk.ACL) *commit {
	return &commit{link: s.link, tag: dir + "/" + protect(tagName), acl: acl}
}

// committed is the outcome of a commit.
type committed struct {
	results []zk.MultiResponse // of the operations; nil if the reply was lost
	zxid    int64              // 0 if the reply was not lost
}

// run carries out ops, for a caller that waits no longer than ctx. Whatever goes on after that
// leaves no tag.
func (c *commit) run(ctx context.Context, ops ...any) (committed, error) {
	done, err := call(ctx, c.link, func(ctx context.Context) (committed, error) {
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
		l, err := c.link.ready(ctx)
		if err != nil {
			return committed{}, err
		}
		if err := ctx.Err(); err != nil {
			return committed{}, err
		}
		c.sent.Store(true)
		results, err := c.link.conn.Multi(ops...)
		switch fateOf(err) {
		case fateDone:
			c.link.spawn(c.clean)
			return committed{results: results[:len(ops)-1]}, nil
		case fateRefused:
			c.sent.Store(false)
			return committed{}, err
		}
		zxid, serr := c.settle(ctx, l, attempt)
		switch {
		case serr != nil:
			c.clean()
			return committed{}, serr
		case zxid != 0:
			c.link.spawn(c.clean)
			return committed{zxid: zxid}, nil
		}
		c.sent.Store(false)
		if fateOf(err) == fateStrange {
			return committed{}, err
		}
	}
}

// settle finds out, after a lost reply, whether the multi was carried out, and returns its zxid, or
// 0.
func (c *commit) settle(ctx context.Context, l *lease, attempt int) (zxid int64, err error) {
	for ; ; attempt++ {
		if err := c.link.pause(ctx, attempt); err != nil {
			return 0, err
		}
		if err := c.link.writeNothing(); err != nil {
			continue
		}
		exists, stat, err := c.link.conn.Exists(c.tag)
		switch {
		case fateOf(err) == fateUnknown:
			continue
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		case exists:
			return stat.Czxid, nil
		}
		// The tag goes with its session, so that its absence says nothing then.
		if err := c.link.over(l); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return 0, nil
	}
}

// clean deletes the tag. It goes on until it is certain that there is none and will be none; only
// the end of the Session stops it.
func (c *commit) clean() {
	for attempt := 1; ; attempt++ {
		err := c.link.conn.Delete(c.tag, -1)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return
		}
		if fateOf(err) == fateRefused {
			c.link.log.Error("node cannot be deleted, it stays until the session ends", "node", c.tag, "err", err)
			return
		}
		if c.link.pause(context.Background(), attempt) != nil {
			return
		}
	}
}
