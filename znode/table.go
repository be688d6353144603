package znode

import "slices"

// pageRows is the number of rows of a page: what the first write to a page after a snapshot copies. Small
// enough that the copy (some 7 KB of nodes) is lost in the cost of an update, large enough that the list of pages, which
// Snapshot copies whole, stays small (16,000 pointers for a million nodes).
const pageRows = 64

// slot is the number of a row. It stays the same as long as the row is in use, and means nothing outside of the
// Store: two replicas in the same state may use different slots.
type slot uint32

// noSlot is a slot that no row has.
const noSlot = ^slot(0)

// table keeps rows in pages that a snapshot can share: freezing costs a copy of the list of pages, and the first
// write to a page that is shared replaces it by a copy. So a snapshot's writer and Apply never touch the same
// memory, but for rows that neither changes.
//
// Invariant: a page whose epoch is at most frozen is never written to.
type table[T any] struct {
	pages  []*page[T]
	free   []slot // rows given back, the newest last
	used   slot   // rows [used, ...) have never been in use
	epoch  uint64 // of pages made from now on; starts at 1
	frozen uint64 // pages up to this epoch belong to a snapshot
}

type page[T any] struct {
	epoch uint64
	rows  [pageRows]T
}

// row returns the row at i for reading. The pointer is stale after the next mut, add or remove.
func (t *table[T]) row(i slot) *T { return &t.pages[i/pageRows].rows[i%pageRows] }

// mut returns the row at i for writing.
func (t *table[T]) mut(i slot) *T {
	p := t.pages[i/pageRows]
	if p.epoch <= t.frozen {
		p = &page[T]{epoch: t.epoch, rows: p.rows}
		t.pages[i/pageRows] = p
	}
	return &p.rows[i%pageRows]
}

// add takes a row into use and returns it, zero, for writing.
func (t *table[T]) add() (slot, *T) {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i, t.mut(i)
	}
	i := t.used
	if i%pageRows == 0 {
		t.pages = append(t.pages, &page[T]{epoch: t.epoch})
	}
	t.used++
	return i, t.mut(i)
}

// remove zeroes the row at i and gives it back.
func (t *table[T]) remove(i slot) {
	var zero T
	*t.mut(i) = zero
	t.free = append(t.free, i)
}

// len returns the number of rows in use.
func (t *table[T]) len() int { return int(t.used) - len(t.free) }

// freeze returns the pages as they are now; they will not change.
func (t *table[T]) freeze() []*page[T] {
	t.frozen = t.epoch
	t.epoch++
	return slices.Clone(t.pages)
}

// thaw says that no snapshot needs the frozen pages any more, so that writes can spare the copy.
func (t *table[T]) thaw() { t.frozen = 0 }
