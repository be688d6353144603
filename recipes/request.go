package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// call runs f in a goroutine of the Session and returns what it returns, or the
// error of ctx as soon as ctx ends: the calls of a ZooKeeper client cannot be
// interrupted, and a caller shall not have to wait for them. f goes on then; a
// result that nobody has received is given to drop, if that is not nil.
func call[T any](ctx context.Context, s *Session, f func(context.Context) (T, error), drop func(T)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	type result struct {
		value T
		err   error
	}
	// Unbuffered: either the caller has got the result, or the goroutine knows
	// that nobody will.
	done := make(chan result)
	ok := s.spawn(func() {
		v, err := f(ctx)
		select {
		case done <- result{v, err}:
		case <-ctx.Done():
			if err == nil && drop != nil {
				drop(v)
			}
		}
	})
	if !ok {
		return none, s.closed()
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// again makes a request that may be made any number of times until it is
// answered, in the session of l; l may be nil for any session.
func (s *Session) again(ctx context.Context, l *lease, request func() error) error {
	for attempt := 1; ; attempt++ {
		if err := s.over(l); err != nil {
			return err
		}
		err := request()
		if fateOf(err) != fateUnknown {
			return err
		}
		if err := s.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// change is again for requests that change something, for callers with a ctx.
// When ctx ends while a request is under way its outcome is unknown.
func (s *Session) change(ctx context.Context, request func(ctx context.Context, l *lease) error) error {
	var sent atomic.Bool
	_, err := call(ctx, s, func(ctx context.Context) (struct{}, error) {
		l, err := s.ready(ctx)
		if err != nil {
			return struct{}{}, err
		}
		sent.Store(true)
		return struct{}{}, request(ctx, l)
	}, nil)
	if err != nil && sent.Load() && undecided(err) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// undecided reports whether err says why the waiting for an answer ended, and
// nothing about what was asked for.
func undecided(err error) bool {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded, ErrExpired, ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// over reports why the session of l has ended, or nil.
func (s *Session) over(l *lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observeLocked()
	switch {
	case s.ended:
		return s.closed()
	case l != nil:
		return l.endErr
	}
	return nil
}

// catchUp has the server that answers catch up with all that was acknowledged to
// anybody before.
func (s *Session) catchUp(ctx context.Context, l *lease) error {
	return s.again(ctx, l, func() error {
		sent := time.Now()
		err := s.confirm()
		if err == nil && l != nil {
			s.mu.Lock()
			l.proveLocked(sent)
			s.mu.Unlock()
		}
		return err
	})
}

// makeDir makes a path that does not exist, and its parents, as containers.
func (s *Session) makeDir(ctx context.Context, dir string, acl []zk.ACL) error {
	if dir == "" {
		return nil
	}
	return (&place{s: s, acl: acl}).makeDir(ctx, dir)
}

// makeNode makes a persistent node, and its parents as containers. That it
// exists is all right.
func (s *Session) makeNode(ctx context.Context, l *lease, path string, data []byte, acl []zk.ACL) error {
	for {
		err := s.again(ctx, l, func() error {
			_, err := s.conn.Create(path, data, zk.FlagPersistent, acl)
			return err
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode):
			dir, _ := split(path)
			if err := s.makeDir(ctx, dir, acl); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// aclOr is acl, or the one that a nil ACL stands for: that of Config.
func (s *Session) aclOr(acl []zk.ACL) []zk.ACL {
	switch {
	case acl != nil:
		return acl
	case s.acl != nil:
		return s.acl
	}
	return zk.WorldACL(zk.PermAll)
}

// Again calls f, and calls it again, in the next session, each time it returns
// ErrExpired; and each time it returns ErrSilent, which is what expiry often looks
// like from here, when the cluster can be reached again. It is how a recipe is taken up once
// more. What f had acquired is lost by then; f has to have released it. Again
// returns what f returns otherwise; an outcome that is unknown (ErrUnknown) too, for
// only the caller can know whether to try that again.
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
		if err := s.pause(ctx, attempt); err != nil {
			return fmt.Errorf("recipes: wait for a session: %w", err)
		}
	}
}

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
