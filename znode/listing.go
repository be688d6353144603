package znode

import "slices"

// Listing collects the names of a node's children in steps, because a directory of a million takes
// longer than the state may be locked at once. In the end it has exactly the children
// that there are then: a child that is created meanwhile follows those that have not been
// listed yet, and one that is deleted after it has been listed is noted.
//
// List, Step and Close are reads, but of one Listing not at the same time; after Close, Names needs
// no lock.
type Listing struct {
	tree   *tree
	parent slot
	next   slot // the next child to list; noSlot when all have been listed
	names  []string
	gone   map[string]int // deleted children: the number of names at that time
	lost   bool           // the node itself was deleted
}

// List begins to list the children of the node at path; nil if there is none. The Listing has to be
// closed.
func (s *Store) List(path string) *Listing {
	t := s.state.tree
	i, ok := t.find(path)
	if !ok {
		return nil
	}
	l := &Listing{tree: t, parent: i, next: t.first(t.nodes.row(i)), names: []string{}, gone: map[string]int{}}
	t.changeListings(func(all []*Listing) []*Listing { return append(slices.Clone(all), l) })
	return l
}

// Step lists up to n more children of a node of s and reports whether all that there are have been
// listed. lost says that the node has been deleted, or the state replaced, and that the listing
// cannot be continued.
func (l *Listing) Step(s *Store, n int) (done, lost bool) {
	t := s.state.tree
	if l.lost || t != l.tree {
		return false, true
	}
	first := t.first(t.nodes.row(l.parent))
	for ; n > 0 && l.next != noSlot; n-- {
		l.names = append(l.names, string(t.nodes.row(l.next).name()))
		if l.next = t.siblings(l.next).next; l.next == first {
			l.next = noSlot
		}
	}
	return l.next == noSlot, false
}

// Close ends the listing: it does not follow later changes.
func (l *Listing) Close() {
	l.tree.changeListings(func(all []*Listing) []*Listing {
		return slices.DeleteFunc(slices.Clone(all), func(other *Listing) bool { return other == l })
	})
}

// Names returns the listed names, without the children that were deleted since.
func (l *Listing) Names() []string {
	if len(l.gone) == 0 {
		return l.names
	}
	names := make([]string, 0, len(l.names))
	for k, name := range l.names {
		if k >= l.gone[name] {
			names = append(names, name)
		}
	}
	return names
}

// changeListings replaces the list of listings. Several readers may do so at once.
func (t *tree) changeListings(change func([]*Listing) []*Listing) {
	for {
		old := t.listings.Load()
		var all []*Listing
		if old != nil {
			all = *old
		}
		all = change(all)
		next := &all
		if len(all) == 0 {
			next = nil
		}
		if t.listings.CompareAndSwap(old, next) {
			return
		}
	}
}

// childAttached updates the listings of the node at parent, which has the one at i as its new last
// child.
func (t *tree) childAttached(i, parent slot) {
	if all := t.listings.Load(); all != nil {
		for _, l := range *all {
			if l.parent == parent && !l.lost && l.next == noSlot {
				l.next = i
			}
		}
	}
}

// childDetaching updates the listings before the node at i is deleted.
func (t *tree) childDetaching(i slot) {
	all := t.listings.Load()
	if all == nil {
		return
	}
	n, next := t.nodes.row(i), t.siblings(i).next
	for _, l := range *all {
		switch {
		case l.lost:
		case l.parent == i:
			l.lost = true
		case l.parent != n.parent:
		case l.next != i:
			l.gone[string(n.name())] = len(l.names)
		case next == t.first(t.nodes.row(l.parent)):
			l.next = noSlot
		default:
			l.next = next
		}
	}
}
