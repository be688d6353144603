package main

import (
	"context"
	"sync"

	"lockkeeper/recipes"
)

// mutex is recipes.Mutex.
type mutex struct {
	m *recipes.Mutex
	// lost is called when a grant is lost by anything but its release.
	lost func(why error)

	mu    sync.Mutex
	grant *recipes.Grant // the newest; nil before the first
	ended chan struct{}  // closed when lost has been called for it, if it had to be
}

func newMutex(s *recipes.Session, path string, lost func(error)) *mutex {
	return &mutex{m: recipes.NewMutex(s, path, recipes.MutexOptions{}), lost: lost}
}

func (m *mutex) acquire(ctx context.Context) (int64, error) {
	grant, err := m.m.Lock(ctx)
	if err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	m.mu.Lock()
	m.grant, m.ended = grant, ended
	m.mu.Unlock()
	// Ends with the grant.
	go func() {
		defer close(ended)
		<-grant.Lost()
		if err := grant.Err(); err != recipes.ErrReleased {
			m.lost(err)
		}
	}()
	return grant.Token(), nil
}

func (m *mutex) current() (grant *recipes.Grant, ended <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.grant, m.ended
}

func (m *mutex) release(ctx context.Context) error {
	grant, ended := m.current()
	err := grant.Unlock(ctx)
	<-ended // that this grant was lost must not be told after the next one was got
	return err
}

func (m *mutex) check() (bool, int64) {
	grant, _ := m.current()
	return grant.Held(), grant.Token()
}
