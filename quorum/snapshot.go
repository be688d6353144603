package quorum

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// loadSnapshot restores the newest snapshot, and returns when it was taken; an empty store and the
// zero time when there is none.
func loadSnapshot(s *store.Stores) (_ *znode.Store, at time.Time, _ error) {
	newest, err := s.Newest()
	if err != nil {
		return nil, at, err
	}
	if newest == nil {
		return znode.New(), at, nil
	}
	r, err := newest.Open()
	if err != nil {
		return nil, at, err
	}
	defer r.Close()
	state, err := znode.Restore(r)
	if err != nil {
		return nil, at, fmt.Errorf("quorum: restore snapshot %s: %w", newest.Name, unreadable(err))
	}
	return state, newest.At, nil
}

// unreadable is an error of package znode about stored bytes as one of package store:
// ErrFormat, ErrDamaged, or err itself.
func unreadable(err error) error {
	switch {
	case errors.Is(err, znode.ErrNewer):
		return fmt.Errorf("%w: %w", store.ErrFormat, err)
	case errors.Is(err, znode.ErrDamaged):
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	return err
}
