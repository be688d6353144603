package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// LockPaths finds, in order, the paths at and below root that [Session.Contenders] may have
// something to say about: those with children, and those that may be a lock's node themselves. The
// queues that a semaphore consists of are not listed beside it. What may not be read is left out,
// but for root, for which that is an error; /zookeeper is never looked at.
func (s *Session) LockPaths(ctx context.Context, root string) ([]string, error) {
	var found []string
	parts := map[string]bool{} // the queues of semaphores that have been seen
	todo := []string{root}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		names, err := ask(ctx, s, func() ([]string, error) {
			names, _, err := s.conn.Children(at)
			return names, err
		})
		if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) && at != root {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("recipes: look for locks at %s: %w", at, err)
		}
		_, contender := locknode.Sequence(at)
		if at != "/" && !contender {
			found = append(found, at)
		}
		parts[at+locknode.KazooLockSuffix] = true
		if at != "/" && slices.Contains(names, locknode.CuratorLeases) && slices.Contains(names, locknode.CuratorLocks) {
			parts[at+"/"+locknode.CuratorLeases], parts[at+"/"+locknode.CuratorLocks] = true, true
		}
		for _, name := range names {
			_, contender := locknode.Sequence(name) // it has no locks below it
			if !contender && (at != "/" || name != "zookeeper") {
				todo = append(todo, strings.TrimSuffix(at, "/")+"/"+name)
			}
		}
	}
	found = slices.DeleteFunc(found, func(path string) bool { return parts[path] })
	slices.Sort(found)
	return found, nil
}
