package recipes

import (
	"slices"
	"strings"
)

// layouts are the names, in front of the sequence number, of the nodes of the locks
// that are known. Who makes nodes of one layout and who waits for which is in
// docs/guarantees.md.
var layouts = []struct {
	name string
	kind Kind
}{
	{readName, KindRead}, {kazooReadName, KindRead},
	{writeName, KindWrite}, {kazooLockName, KindWrite}, {lockName, KindWrite},
	{leaseName, KindLease}, {latchName, KindLead}, {layoutSession, KindWrite},
}

// layoutOf returns the layout of a node, or "".
func layoutOf(name string) string {
	if isKazooLease(name) {
		return layoutKazooLease
	}
	if _, ok := sequence(name); !ok {
		return ""
	}
	base := name[:len(name)-sequenceDigits]
	for _, l := range layouts {
		if l.name != layoutSession && strings.HasSuffix(base, l.name) {
			return l.name
		}
	}
	if isSessionName(base) {
		return layoutSession
	}
	return ""
}

// families are the layouts that the locks of one library share, so that they know of
// each other, if the program takes those that belong together.
var families = map[string]string{readName: writeName, kazooReadName: kazooLockName}

// familyOf returns the name of a layout's family, which is that of the lock for one at
// a time.
func familyOf(layout string) string {
	if f := families[layout]; f != "" {
		return f
	}
	return layout
}

const (
	layoutKazooLease = "kazoo lease"
	// layoutSession is that of ZooKeeper's own recipes in Java and C:
	// x-<session>-<sequence number>.
	layoutSession = "x-"
)

// isSessionName: the Java recipe writes its session in decimal, that in C in hex.
func isSessionName(base string) bool {
	id, ok := strings.CutPrefix(base, layoutSession)
	id, dash := strings.CutSuffix(id, "-")
	for i := range len(id) {
		ok = ok && isHex(id[i])
	}
	return ok && dash && id != ""
}

// awaited are the layouts that the maker of a node of a layout waits for in any case,
// as its library comes. TestAwaitedLayouts compares them with the table of who waits
// for whom.
var awaited = map[string][]string{
	lockName:  {lockName},
	writeName: {writeName, readName},
	readName:  {writeName},
	// WriteLock waits for readers, but Lock's nodes have the same name
	kazooLockName:    {kazooLockName},
	kazooReadName:    {kazooLockName},
	layoutSession:    {layoutSession, lockName},
	leaseName:        {leaseName},
	latchName:        {latchName},
	layoutKazooLease: {lockName, writeName, readName, kazooLockName, kazooReadName, layoutKazooLease},
}

// mayIgnore says whether c may hold the lock although other is in front of it, because
// its library, as far as the name tells, does not take other for a contender.
func mayIgnore(c, other *Contender) bool {
	switch c.Library {
	case libraryOwn, libraryGo:
		return false
	}
	if c.Library == libraryKazoo && c.Layout == lockName {
		return other.Kind == KindLease // a lock like that of docs/locks.md
	}
	if c.Layout == "" && other.Layout == "" {
		return false // there is no reason to think that they are not of one program
	}
	return !slices.Contains(awaited[c.Layout], other.Layout)
}

// strangers notes, for each contender, which others it may ignore.
func strangers(q []Contender) {
	for i := range q {
		c := &q[i]
		for j := range q {
			other := &q[j]
			if c.Kind == other.Kind && (c.Kind == KindLease || c.Kind == KindRead) {
				continue // of one semaphore or its queue, or both read
			}
			if familyOf(c.Layout) != familyOf(other.Layout) && mayIgnore(c, other) &&
				!slices.Contains(c.MayIgnore, other.Layout) {
				c.MayIgnore = append(c.MayIgnore, other.Layout)
			}
		}
		slices.Sort(c.MayIgnore)
	}
}

// foreignLayouts are the layouts that neither this package nor Curator's mutex has, of
// locks that do not wait for them.
var foreignLayouts = []string{kazooLockName, kazooReadName, layoutSession, layoutKazooLease}

// mostWarned is how many paths a Session warns of.
const mostWarned = 100

// warnOfStrangers logs, once for each path, that there are contenders whose libraries
// may not wait for ours. That of Curator's two locks, which do not wait for each other
// either, is not among them: our own nodes have their names, and do.
func (s *Session) warnOfStrangers(path string, names []string) {
	i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(foreignLayouts, layoutOf(n)) })
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
			"path", path, "node", names[i], "library", libraryOf(names[i], nil))
	}
}
