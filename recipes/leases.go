package recipes

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// A semaphore's leases are no part of a lock's queue: kazoo's, which are children
// of the path, have no sequence numbers, and Curator's, in the child leases, have
// those of another node. So that a lock on the path of a semaphore waits for who has
// a lease, it compares czxids: it waits for the leases that were made before its own
// node was. Our semaphore does the same with the locks on its path, so that the two
// never wait for each other. kazoo's semaphore counts a lock's node as a lease,
// Curator's does not see it.

// lookLeases lists, relative to dir, whose children are names, the leases of
// semaphores. In a path without semaphores, that costs nothing.
func (s *Session) lookLeases(dir string, names []string) ([]string, error) {
	var leases []string
	for _, n := range names {
		if locknode.IsKazooLease(n) {
			leases = append(leases, n)
		}
	}
	if !slices.Contains(names, locknode.CuratorLeases) {
		return leases, nil
	}
	children, _, err := s.conn.Children(dir + "/" + locknode.CuratorLeases)
	if errors.Is(err, zk.ErrNoNode) {
		return leases, nil
	}
	for _, n := range children {
		if locknode.KindOf(n) == KindLease {
			leases = append(leases, locknode.CuratorLeases+"/"+n)
		}
	}
	return leases, err
}

// earlier returns the first of dir's children called names that was made before our
// node and is ephemeral, "" if there is none. The others need not be looked at again.
func (p *place) earlier(dir string, names []string) (string, error) {
	for _, name := range names {
		if p.passed[name] {
			continue
		}
		exists, stat, err := p.s.conn.Exists(dir + "/" + name)
		switch {
		case err != nil:
			return "", err
		case exists && ephemeral(stat.EphemeralOwner) && stat.Czxid < p.token:
			return name, nil
		}
		p.pass(name)
	}
	return "", nil
}

// lookBeside looks for contenders of other locks on a semaphore's path that were
// there before the lease p was made.
func (s *Session) lookBeside(path string, p *place) (found bool, changed <-chan struct{}, err error) {
	v, err := s.lookChildren(path)
	if err != nil {
		return false, nil, err
	}
	var names []string
	for _, n := range v.names {
		if _, ok := locknode.Sequence(n); ok || locknode.IsKazooLease(n) {
			names = append(names, n)
		}
	}
	first, err := p.earlier(path, names)
	return first != "", v.watch.fired, err
}
