package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// zkLock is go-zookeeper's own Lock, used as that library's users have to use
// it: when Lock returns an error its node may have been created, and stays for
// as long as the session does, before all that come later. So a client that
// wants to go on with the session has to remove it.
type zkLock struct {
	session *session
	path    string
	lock    *zk.Lock
	token   atomic.Int64
}

func newZKLock(s *session, path string) *zkLock {
	return &zkLock{session: s, path: path, lock: zk.NewLock(s.conn, path, zk.WorldACL(zk.PermAll))}
}

func (l *zkLock) acquire(ctx context.Context) (int64, error) {
	if err := l.session.awaitReady(ctx); err != nil {
		return 0, err
	}
	if err := l.lock.Lock(); err != nil {
		return 0, errors.Join(err, l.removeMine(ctx))
	}
	node, stat, err := l.mine(ctx)
	if err != nil {
		return 0, err
	}
	if node == "" {
		return 0, fmt.Errorf("%s: the lock's node has gone", l.path)
	}
	l.token.Store(stat.Czxid)
	return stat.Czxid, nil
}

func (l *zkLock) release(ctx context.Context) error {
	l.token.Store(0)
	err := l.session.retry(ctx, l.lock.Unlock)
	if errors.Is(err, zk.ErrNoNode) {
		// An Unlock with a lost reply, or the session has ended. The library still believes that it
		// has the lock.
		l.lock = zk.NewLock(l.session.conn, l.path, zk.WorldACL(zk.PermAll))
		return nil
	}
	return err
}

// check knows no more than the library: nothing.
func (l *zkLock) check() (bool, int64) {
	token := l.token.Load()
	return token != 0, token
}

// mine finds the lock's node that belongs to this session, if there is one.
// (No two handles of one worker may use the same path.)
func (l *zkLock) mine(ctx context.Context) (node string, stat *zk.Stat, err error) {
	err = l.session.retry(ctx, func() error {
		node, stat = "", nil
		children, _, err := l.session.conn.Children(l.path)
		if err != nil {
			return err
		}
		for _, child := range children {
			exists, s, err := l.session.conn.Exists(path.Join(l.path, child))
			if err != nil {
				return err
			}
			if exists && s.EphemeralOwner == l.session.current() {
				node, stat = path.Join(l.path, child), s
				return nil
			}
		}
		return nil
	})
	return node, stat, err
}

// removeMine deletes the node of a failed Lock.
func (l *zkLock) removeMine(ctx context.Context) error {
	// The create may have reached another member than the one that answers
	// now: catch up with it first.
	err := l.session.retry(ctx, func() error {
		_, err := l.session.conn.Sync(l.path)
		return err
	})
	if err != nil {
		return err
	}
	node, _, err := l.mine(ctx)
	if errors.Is(err, zk.ErrNoNode) || (err == nil && node == "") {
		return nil
	}
	if err != nil {
		return err
	}
	err = l.session.retry(ctx, func() error { return l.session.conn.Delete(node, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
