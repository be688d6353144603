package recipes

import (
	"slices"

	"lockkeeper/locknode"
)

// foreignLayouts are the layouts that neither this package nor Curator's mutex has, of
// locks that do not wait for them.
var foreignLayouts = []string{locknode.LayoutKazooLock, locknode.LayoutKazooRead, locknode.LayoutSession,
	locknode.LayoutKazooLease}

// mostWarned is how many paths a Session warns of.
const mostWarned = 100

// warnOfStrangers logs, once for each path, that there are contenders whose libraries
// may not wait for ours. That of Curator's two locks, which do not wait for each other
// either, is not among them: our own nodes have their names, and do.
func (s *Session) warnOfStrangers(path string, names []string) {
	i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(foreignLayouts, locknode.Layout(n)) })
	if i < 0 {
		return
	}
	s.mu.Lock()
	warned := s.warned[path] || len(s.warned) >= mostWarned
	if !warned {
		if s.warned == nil {
			s.warned = make(map[string]bool)
		}
		s.warned[path] = true
	}
	s.mu.Unlock()
	if !warned {
		s.log.Warn("a contender of another library may not wait for this one, and hold the lock beside it: "+
			"see docs/guarantees.md, who excludes whom",
			"path", path, "node", names[i], "library", locknode.Library(names[i], false))
	}
}
