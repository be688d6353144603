package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/mutant"
)

// Barrier blocks its waiters as long as it is set. It is one
// persistent node; Curator's DistributedBarrier and kazoo's Barrier on the same
// path are the same barrier. It belongs to nobody: it stays set when the program
// that has set it ends.
type Barrier struct {
	s    *Session
	path string
	acl  []zk.ACL
}

// NewBarrier returns the barrier on a path. acl is for the nodes that are made;
// nil stands for [Config].ACL.
func NewBarrier(s *Session, path string, acl []zk.ACL) *Barrier {
	return &Barrier{s: s, path: path, acl: s.aclOr(acl)}
}

// Set sets the barrier. That it is set already is no error.
func (b *Barrier) Set(ctx context.Context) error {
	err := b.s.change(ctx, func(ctx context.Context, l *lease) error {
		return b.s.makeNode(ctx, l, b.path, []byte{}, b.acl)
	})
	if err != nil {
		return fmt.Errorf("recipes: set barrier %s: %w", b.path, err)
	}
	return nil
}

// Remove lets everybody through. That the barrier is not set is no error.
func (b *Barrier) Remove(ctx context.Context) error {
	err := b.s.change(ctx, func(ctx context.Context, l *lease) error {
		return b.s.again(ctx, l, func() error { return b.s.conn.Delete(b.path, -1) })
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("recipes: remove barrier %s: %w", b.path, err)
	}
	return nil
}

// Wait returns nil as soon as it sees that the barrier is not set; what was
// acknowledged to anybody before the call counts. A barrier that is removed and
// set again at once may or may not let through those who wait.
//
// It returns ErrExpired when the session expires, though nothing is lost by it:
// call it again.
func (b *Barrier) Wait(ctx context.Context) error {
	_, err := call(ctx, b.s, func(ctx context.Context) (struct{}, error) {
		l, err := b.s.ready(ctx)
		if err != nil {
			return struct{}{}, err
		}
		if !mutant.On(mutant.WaitUnsynced) {
			err = b.s.catchUp(ctx, l)
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, b.s.until(ctx, l,
			func() (view, error) { return b.s.lookExists(b.path) },
			func(v view) (bool, error) { return !v.exists, nil })
	}, nil)
	if err != nil {
		return fmt.Errorf("recipes: wait for barrier %s: %w", b.path, err)
	}
	return nil
}
