package recipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"
)

// UpdateOptions are the settings of an OptimisticUpdate. The zero value is good.
type UpdateOptions struct {
	// Create: a node that does not exist is made, persistent, with the parents
	// it needs, as containers. Without it the error is zk.ErrNoNode.
	Create bool

	// ACL is for nodes that are made. Nil stands for [Config].ACL.
	ACL []zk.ACL

	// TagDir is the path under which an ephemeral node stands while an update is
	// under way, by which a change whose reply was lost is recognised. "" stands
	// for the node itself, on which CREATE and DELETE are needed then. It cannot
	// be the node itself if that is ephemeral.
	TagDir string
}

// Updated is what an update has done.
type Updated struct {
	Old     []byte // what was there; nil if there was no node
	New     []byte // what is there instead
	Version int32  // of the node, after the update
}

// OptimisticUpdate changes the data of a node, without a lock: it reads them, has
// change make the new data from the old, and writes those if the node still has
// the version that was read; else it starts over, after a pause that grows.
// change may be called any number of times; it gets nil if there is no node
// (and UpdateOptions.Create is set), and an error that it returns is the end of
// it. It is called by the goroutine that called OptimisticUpdate.
//
// The update is made exactly once, or not at all. A lost reply does not make
// that uncertain: see the error ErrUnknown for when it is.
func OptimisticUpdate(ctx context.Context, s *Session, path string, opts UpdateOptions,
	change func(old []byte) ([]byte, error),
) (Updated, error) {
	u, err := update(ctx, s, path, opts, change)
	if err != nil {
		return Updated{}, fmt.Errorf("recipes: update %s: %w", path, err)
	}
	return u, nil
}

func update(ctx context.Context, s *Session, path string, opts UpdateOptions,
	change func([]byte) ([]byte, error),
) (Updated, error) {
	acl, tagDir := s.aclOr(opts.ACL), opts.TagDir
	if tagDir == "" {
		tagDir = path
	}
	for attempt := 0; ; attempt++ {
		if err := backOff(ctx, attempt); err != nil {
			return Updated{}, err
		}
		old, err := readNode(ctx, s, path)
		if err != nil {
			return Updated{}, err
		}
		if !old.exists && !opts.Create {
			return Updated{}, zk.ErrNoNode
		}
		data, err := change(old.data)
		if err != nil {
			return Updated{}, err
		}
		if data == nil {
			data = []byte{}
		}
		u := Updated{Old: old.data, New: data}
		var op any = &zk.CreateRequest{Path: path, Data: data, Acl: acl}
		if old.exists {
			op = &zk.SetDataRequest{Path: path, Data: data, Version: old.stat.Version}
			u.Version = old.stat.Version + 1
		}
		_, err = newCommit(s, tagDir, acl).run(ctx, op)
		switch {
		case err == nil:
			return u, nil
		case errors.Is(err, zk.ErrNoNode):
			// Deleted meanwhile, or a parent of what is to be made is missing.
			if err := makeParents(ctx, s, path, opts, tagDir, acl); err != nil {
				return Updated{}, err
			}
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists): // again
		default:
			return Updated{}, err
		}
	}
}

func makeParents(ctx context.Context, s *Session, path string, opts UpdateOptions, tagDir string, acl []zk.ACL) error {
	_, err := call(ctx, s, func(ctx context.Context) (struct{}, error) {
		if opts.Create {
			dir, _ := split(path)
			if err := s.makeDir(ctx, dir, acl); err != nil {
				return struct{}{}, err
			}
		}
		if tagDir != path {
			return struct{}{}, s.makeDir(ctx, tagDir, acl)
		}
		return struct{}{}, nil
	}, nil)
	return err
}

// readNode reads a node's data, not older than what was acknowledged before by
// the server that answers. (A stale read costs another attempt, no more.)
func readNode(ctx context.Context, s *Session, path string) (view, error) {
	return call(ctx, s, func(ctx context.Context) (v view, err error) {
		l, err := s.ready(ctx)
		if err != nil {
			return v, err
		}
		err = s.again(ctx, l, func() (err error) {
			v.data, v.stat, err = s.conn.Get(path)
			return err
		})
		if errors.Is(err, zk.ErrNoNode) {
			return view{}, nil
		}
		v.exists = true
		if v.data == nil {
			v.data = []byte{}
		}
		return v, err
	}, nil)
}

// Bounds of the pause between two attempts of an update.
const (
	minBackOff = time.Millisecond
	maxBackOff = 200 * time.Millisecond
)

// backOff pauses before an attempt, counted from 0, for a time that is drawn by
// lot, so that those who collided do not collide again.
func backOff(ctx context.Context, attempt int) error {
	if attempt == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(rand.N(min(minBackOff<<min(attempt, 20), maxBackOff)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
