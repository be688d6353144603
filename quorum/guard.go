package quorum

import (
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
)

// guardedStore stops the member at the first write that fails. What a failed write left behind is
// unknown, so this process must not acknowledge anything that relies on it.
type guardedStore struct {
	raft.LogStore
	raft.StableStore
	fatal func(error)
	once  sync.Once
	// released is closed when the member has been cut off from its peers for good.
	released chan struct{}
}

func (g *guardedStore) check(what string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("quorum: %s: %w", what, err)
	g.once.Do(func() { g.fatal(err) })
	return err
}

func (g *guardedStore) StoreLog(l *raft.Log) error {
	return g.check("write log", g.LogStore.StoreLog(l))
}

func (g *guardedStore) StoreLogs(ls []*raft.Log) error {
	return g.check("write log", g.LogStore.StoreLogs(ls))
}

func (g *guardedStore) DeleteRange(lo, hi uint64) error {
	return g.check("truncate log", g.LogStore.DeleteRange(lo, hi))
}

func (g *guardedStore) Set(key, val []byte) error {
	if mutant.On(mutant.VoteNotPersisted) {
		return nil
	}
	return g.check("write vote", g.StableStore.Set(key, val))
}

func (g *guardedStore) SetUint64(key []byte, val uint64) error {
	if g.check("write term", g.StableStore.SetUint64(key, val)) != nil {
		// The library panics when it cannot save its term. The member is being stopped; nothing that raft
		// does after this can reach anybody.
		<-g.released
	}
	return nil
}
