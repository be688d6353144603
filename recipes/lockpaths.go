package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// pathsAtOnce is how many nodes LockPaths asks about at a time.
const pathsAtOnce = 64

// LockPaths finds, in order, the paths at and below root that [Session.Contenders] may have
// something to say about: those with children, and those that may be a lock's node themselves. The
// queues that a semaphore consists of are not listed beside it. What may not be read is left out,
// but for root, for which that is an error; /zookeeper is never looked at.
//
// It asks about each node of the tree. A lockkeeper server answers [Session.Report] at once.
func (s *Session) LockPaths(ctx context.Context, root string) ([]string, error) {
	var found []string
	parts := map[string]bool{} // the queues of semaphores that have been seen
	todo, looked := []string{root}, 0
	for len(todo) > 0 {
		step := todo[max(0, len(todo)-pathsAtOnce):]
		names, errs := s.childrenOf(ctx, step)
		todo = todo[:len(todo)-len(step)]
		var more []string
		for i, at := range step {
			err := errs[i]
			if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) && at != root {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("recipes: look for locks at %s, after %d other nodes: %w", at, looked, err)
			}
			looked++
			_, contender := locknode.Sequence(at)
			if at != "/" && !contender {
				found = append(found, at)
			}
			parts[at+locknode.KazooLockSuffix] = true
			if at != "/" && slices.Contains(names[i], locknode.CuratorLeases) && slices.Contains(names[i], locknode.CuratorLocks) {
				parts[at+"/"+locknode.CuratorLeases], parts[at+"/"+locknode.CuratorLocks] = true, true
			}
			for _, name := range names[i] {
				_, contender := locknode.Sequence(name) // it has no locks below it
				if !contender && (at != "/" || name != "zookeeper") {
					more = append(more, strings.TrimSuffix(at, "/")+"/"+name)
				}
			}
		}
		todo = append(todo, more...)
	}
	found = slices.DeleteFunc(found, func(path string) bool { return parts[path] })
	slices.Sort(found)
	return found, nil
}

// Contention is a lock with its contenders, as [Session.Contenders] returns them.
type Contention = locknode.Lock

// Contentions lists, in the order of their paths, the locks at and below root that somebody holds
// or waits for. It asks about each node of the tree, as [Session.LockPaths].
func (s *Session) Contentions(ctx context.Context, root string) ([]Contention, error) {
	if _, err := ask(ctx, s, func() (struct{}, error) { return struct{}{}, s.confirm() }); err != nil {
		return nil, fmt.Errorf("recipes: look for locks at %s: %w", root, err)
	}
	paths, err := s.LockPaths(ctx, root)
	if err != nil {
		return nil, err
	}
	var list []Contention
	for step := range slices.Chunk(paths, pathsAtOnce) {
		found, errs := make([]Contention, len(step)), make([]error, len(step))
		var wg sync.WaitGroup
		for n, path := range step {
			wg.Go(func() {
				found[n].Path = path
				found[n].Contenders, errs[n] = ask(ctx, s, func() ([]Contender, error) { return inspector{s: s}.path(path) })
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("recipes: contenders at and below %s: %w", root, err)
		}
		list = append(list, slices.DeleteFunc(found, func(c Contention) bool { return len(c.Contenders) == 0 })...)
	}
	return list, nil
}

// childrenOf lists the children of several nodes at once.
func (s *Session) childrenOf(ctx context.Context, paths []string) (names [][]string, errs []error) {
	names, errs = make([][]string, len(paths)), make([]error, len(paths))
	var wg sync.WaitGroup
	for i, at := range paths {
		wg.Go(func() {
			names[i], errs[i] = ask(ctx, s, func() ([]string, error) {
				names, _, err := s.conn.Children(at)
				return names, err
			})
		})
	}
	wg.Wait()
	return names, errs
}
