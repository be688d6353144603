package znode

import "slices"

// pageRows is the number of rows of a page, which the first write to it after a snapshot copies.
// Small enough that the copy (2024 bytes of nodes, which with 8 bytes of Go's own fill one of the
// sizes that it allocates) does not slow an update down much, large enough that the list of pages,
// which Snapshot copies, stays small (a quarter of a megabyte for a million nodes).
const pageRows = 36

// slot is the number of a row. It stays the same as long as the row is in use, and means nothing
// outside of the Store: two replicas in the same state may use different slots.
type slot uint32

// noSlot is a slot that no row has.
const noSlot = ^slot(0)

// table keeps rows in pages that a snapshot can share: freezing costs a copy of the list of pages,
// and the first write to a page that is shared replaces it by a copy. So a snapshot's writer and
// Apply never touch the same memory, but for rows that neither changes.
//
// Invariant: a page with an epoch of at most frozen is never written to.
type table[T any] struct {
	pages  []*[pageRows]T
	epochs []uint32 // of the pages
	free   []slot   // rows given back, the newest last
	used   slot     // rows [used, ...) have never been in use
	epoch  uint32   // of pages made from now on; starts at 1
	frozen uint32   // pages up to this epoch belong to a snapshot
}

// row returns the row at i for reading. The pointer is stale after the next mut, add or remove.
func (t *table[T]) row(i slot) *T { return &t.pages[i/pageRows][i%pageRows] }

// mut returns the row at i for writing.
func (t *table[T]) mut(i slot) *T {
	at := i / pageRows
	if t.epochs[at] <= t.frozen {
		p := *t.pages[at]
		t.pages[at] = &p
		t.epochs[at] = t.epoch
	}
	return &t.pages[at][i%pageRows]
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
		t.pages = append(t.pages, new([pageRows]T))
		t.epochs = append(t.epochs, t.epoch)
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
func (t *table[T]) freeze() []*[pageRows]T {
	t.frozen = t.epoch
	t.epoch++
	return slices.Clone(t.pages)
}

// thaw says that no snapshot needs the frozen pages any more, so that writes can spare the copy.
func (t *table[T]) thaw() { t.frozen = 0 }
