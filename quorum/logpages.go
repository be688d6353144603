package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"go.etcd.io/bbolt"
)

// A look at every page of a log file before bbolt has it. bbolt trusts what it reads: damage makes it panic, loop, or
// go on with less than was written.
//
// # Which damage is a crash, and which is not
//
// A transaction writes its pages where nothing refers to them, syncs, and then writes one of the two meta pages, in
// turn: number N goes to page N mod 2. What makes N valid is 80 bytes within one sector, and disks write a sector
// wholly or not at all (bbolt, and the databases before it, stand on that). So after any crash both meta pages are
// whole, and their numbers follow one another: the transaction that was cut short is not there, and there is nothing
// to repair. A meta page that is not whole was whole once. bbolt would go on with the other one, one transaction
// back, and with that this member could forget an entry, or a vote, that it has given its word for. So it is refused,
// like everything else that does not match.

const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	pageHeaderLen  = 16
	metaLen        = 64 // with its checksum
	noFreelist     = ^uint64(0)
	branchPage     = 0x01
	leafPage       = 0x02
	metaPage       = 0x04
	branchElemLen  = 16
	leafElemLen    = 16
	bucketElem     = 0x01
	bucketRootLen  = 16 // root page and sequence, in front of an inline page
	pageDepthMax   = 64 // of the tree; a real one has less than 10 levels
	pageSizeMin    = 1 << 10
	pageSizeMax    = 64 << 10
	metaPagesBytes = 8 << 10 // what is read to find the page size
)

func damagedf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// checkLogFile verifies a log file: every page that is in use, the checksum of every value, and that every entry is
// there. It returns the state that the file holds.
func checkLogFile(path string) (logState, error) {
	st, err := os.Stat(path)
	if err != nil {
		return logState{}, err
	}
	if st.Size() == 0 {
		return logState{}, damagedf("the file is empty")
	}
	// bbolt's lock is taken for the time of the check: what another process is writing looks damaged.
	lock, err := bbolt.Open(path, logFileMode, &bbolt.Options{ReadOnly: true, Timeout: boltLockTimeout})
	switch {
	case err == nil:
		defer lock.Close()
	case inUse(err):
		return logState{}, ErrInUse
	case errors.Is(err, os.ErrPermission):
		return logState{}, err
	default:
		return logState{}, damagedf("%v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return logState{}, err
	}
	defer f.Close()
	if err := dropCache(f); err != nil {
		return logState{}, err
	}
	return checkLogPages(f, st.Size())
}

// checkLogPages verifies the content of a log file.
func checkLogPages(file io.ReaderAt, sizeBytes int64) (logState, error) {
	w := pageWalk{file: file, sizeBytes: sizeBytes, seen: map[uint64]struct{}{}}
	return w.check()
}

// pageWalk goes through the pages of a log file.
type pageWalk struct {
	file      io.ReaderAt
	sizeBytes int64
	pageSize  int
	high      uint64 // the first page number that is not in use
	seen      map[uint64]struct{}
}

func (w *pageWalk) check() (logState, error) {
	root, err := w.metas()
	if err != nil {
		return logState{}, err
	}
	buckets := map[string][]byte{}
	err = w.walk(root, func(key, value []byte, flags uint32) error {
		if flags != bucketElem || len(value) < bucketRootLen {
			return damagedf("%q is not a bucket", key)
		}
		buckets[string(key)] = value
		return nil
	})
	if err != nil {
		return logState{}, err
	}
	if buckets[string(stateBucket)] == nil && buckets["conf"] != nil {
		return logState{}, fmt.Errorf("%w: the file was written by a development version of this program", ErrFormat)
	}
	if len(buckets) != 2 || buckets[string(stateBucket)] == nil || buckets[string(entriesBucket)] == nil {
		return logState{}, damagedf("it does not have the buckets that it should have")
	}
	return w.content(buckets)
}

// content checks what stands in the buckets.
func (w *pageWalk) content(buckets map[string][]byte) (state logState, err error) {
	found := false
	err = w.walkBucket(buckets[string(stateBucket)], func(key, value []byte, flags uint32) error {
		if found || flags != 0 || !bytes.Equal(key, stateKey) {
			return damagedf("its state has an unknown part")
		}
		found = true
		if state, err = decodeLogState(value); err != nil && !errors.Is(err, ErrFormat) {
			return damagedf("%v", err)
		}
		return err
	})
	if err == nil && !found {
		err = damagedf("its state is missing")
	}
	if err != nil {
		return logState{}, err
	}
	next := state.first
	err = w.walkBucket(buckets[string(entriesBucket)], func(key, value []byte, flags uint32) error {
		if flags != 0 || !bytes.Equal(key, indexKey(next)) || next > state.last {
			return damagedf("entry %d is missing, or one stands in its place", next)
		}
		if err := checkEntryRecord(next, value); err != nil {
			return damagedf("%v", err)
		}
		next++
		return nil
	})
	if err == nil && next != state.last+1 {
		err = damagedf("entries %d to %d are missing", next, state.last)
	}
	return state, err
}

// metas checks the two meta pages and returns the root page that is valid.
func (w *pageWalk) metas() (root uint64, err error) {
	head := make([]byte, metaPagesBytes)
	if _, err := w.file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	first, err := decodeMeta(head, 0)
	if err != nil {
		return 0, err
	}
	if w.pageSize = int(first.pageSize); w.pageSize < pageSizeMin || w.pageSize > pageSizeMax {
		return 0, damagedf("its pages have %d bytes", w.pageSize)
	}
	page := make([]byte, w.pageSize)
	if _, err := w.file.ReadAt(page, int64(w.pageSize)); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	second, err := decodeMeta(page, 1)
	if err != nil {
		return 0, err
	}
	older, newer := first, second
	if first.txid > second.txid {
		older, newer = second, first
	}
	switch {
	case newer.txid != older.txid+1 || first.txid%2 != 0:
		return 0, damagedf("its meta pages are of transactions %d and %d: a write was lost", older.txid, newer.txid)
	case older.pageSize != newer.pageSize:
		return 0, damagedf("its meta pages name two page sizes")
	case w.sizeBytes < int64(newer.high)*int64(w.pageSize):
		return 0, damagedf("the file has %d bytes of %d", w.sizeBytes, int64(newer.high)*int64(w.pageSize))
	}
	w.high = newer.high
	return newer.root, nil
}

// boltMeta is a meta page:
//
//	 0       4         8           12      16     24        32         40     48     56
//	+-------+---------+-----------+-------+------+---------+----------+------+------+----------+
//	| magic | version | page size | flags | root | (unused)| freelist | high | txid | checksum |
//	+-------+---------+-----------+-------+------+---------+----------+------+------+----------+
//
// in the byte order of the machine. The checksum is FNV-1a of what stands before it.
type boltMeta struct {
	pageSize         uint32
	root, high, txid uint64
}

func decodeMeta(page []byte, id uint64) (m boltMeta, err error) {
	if len(page) < pageHeaderLen+metaLen {
		return m, damagedf("the file ends within its meta pages")
	}
	ne := binary.NativeEndian
	if ne.Uint64(page) != id || ne.Uint16(page[8:]) != metaPage {
		return m, damagedf("meta page %d is not one", id)
	}
	b := page[pageHeaderLen:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaLen-8])
	switch {
	case ne.Uint32(b) != boltMagic || ne.Uint32(b[4:]) != boltVersion:
		return m, damagedf("meta page %d is not one of a database of version %d", id, boltVersion)
	case ne.Uint64(b[metaLen-8:]) != sum.Sum64():
		return m, damagedf("meta page %d: %v", id, errChecksum)
	}
	return boltMeta{pageSize: ne.Uint32(b[8:]), root: ne.Uint64(b[16:]), high: ne.Uint64(b[40:]), txid: ne.Uint64(b[48:])}, nil
}

// page reads a page, with those that it flows over into, and takes note that it is in use.
func (w *pageWalk) page(id uint64) ([]byte, error) {
	if id < 2 || id >= w.high {
		return nil, damagedf("page %d does not exist", id)
	}
	b := make([]byte, w.pageSize)
	if _, err := w.file.ReadAt(b, int64(id)*int64(w.pageSize)); err != nil {
		return nil, damagedf("page %d cannot be read: %v", id, err)
	}
	over := uint64(binary.NativeEndian.Uint32(b[12:]))
	if binary.NativeEndian.Uint64(b) != id || id+over >= w.high {
		return nil, damagedf("page %d is another one", id)
	}
	for i := id; i <= id+over; i++ {
		if _, ok := w.seen[i]; ok {
			return nil, damagedf("page %d is in use twice", i)
		}
		w.seen[i] = struct{}{}
	}
	if over == 0 {
		return b, nil
	}
	whole := make([]byte, int(over+1)*w.pageSize)
	if _, err := w.file.ReadAt(whole, int64(id)*int64(w.pageSize)); err != nil {
		return nil, damagedf("page %d cannot be read: %v", id, err)
	}
	return whole, nil
}

type visitor func(key, value []byte, flags uint32) error

// walkBucket goes through a bucket in the order of its keys, given its value in the root.
func (w *pageWalk) walkBucket(b []byte, visit visitor) error {
	if root := binary.NativeEndian.Uint64(b); root != 0 {
		return w.walk(root, visit)
	}
	o := order{visit: visit}
	return w.elements(b[bucketRootLen:], 0, &o) // inline: small enough to stand in the root itself
}

func (w *pageWalk) walk(root uint64, visit visitor) error {
	o := order{visit: visit}
	b, err := w.page(root)
	if err != nil {
		return err
	}
	return w.elements(b, 0, &o)
}

// order sees to it that keys ascend over all pages of a tree.
type order struct {
	visit visitor
	last  []byte // the newest key
	lower []byte // where the present page must begin; nil: anywhere
	upper []byte // where it must end; nil: nowhere
	any   bool
}

func (o *order) leaf(key, value []byte, flags uint32) error {
	if o.any && bytes.Compare(key, o.last) <= 0 || bytes.Compare(key, o.lower) < 0 || o.upper != nil && bytes.Compare(key, o.upper) >= 0 {
		return damagedf("keys are out of order")
	}
	o.last, o.any = key, true
	return o.visit(key, value, flags)
}

// elements goes through one page, and those below it.
//
//	 0    8       10      12         16
//	+----+-------+-------+----------+-----------------------------+-------------------+
//	| id | flags | count | overflow | elements of 16 bytes        | keys and values   |
//	+----+-------+-------+----------+-----------------------------+-------------------+
//
// An element of a leaf is (flags, position, key length, value length), of a branch (position, key length, page);
// positions count from the element.
func (w *pageWalk) elements(b []byte, depth int, o *order) error {
	if len(b) < pageHeaderLen || depth > pageDepthMax {
		return damagedf("a page is not one")
	}
	ne := binary.NativeEndian
	flags, count := ne.Uint16(b[8:]), int(ne.Uint16(b[10:]))
	if flags != leafPage && flags != branchPage || pageHeaderLen+count*leafElemLen > len(b) || flags == branchPage && count == 0 {
		return damagedf("page %d is not one of a tree", ne.Uint64(b))
	}
	if flags == branchPage {
		return w.branch(b, count, depth, o)
	}
	for i := range count {
		at := pageHeaderLen + i*leafElemLen
		e := b[at:]
		from := uint64(at) + uint64(ne.Uint32(e[4:]))
		mid := from + uint64(ne.Uint32(e[8:]))
		to := mid + uint64(ne.Uint32(e[12:]))
		if to > uint64(len(b)) {
			return damagedf("page %d: a value reaches beyond it", ne.Uint64(b))
		}
		if err := o.leaf(b[from:mid:mid], b[mid:to:to], ne.Uint32(e)); err != nil {
			return err
		}
	}
	return nil
}

func (w *pageWalk) branch(b []byte, count, depth int, o *order) error {
	ne := binary.NativeEndian
	keys := make([][]byte, count)
	for i := range keys {
		at := pageHeaderLen + i*branchElemLen
		from := uint64(at) + uint64(ne.Uint32(b[at:]))
		to := from + uint64(ne.Uint32(b[at+4:]))
		if to > uint64(len(b)) {
			return damagedf("page %d: a key reaches beyond it", ne.Uint64(b))
		}
		keys[i] = b[from:to:to]
	}
	lower, upper := o.lower, o.upper
	for i := range keys {
		// bbolt finds a key behind the last branch key that is not greater.
		if o.any && bytes.Compare(keys[i], o.last) <= 0 {
			return damagedf("page %d: keys are out of order", ne.Uint64(b))
		}
		o.lower, o.upper = keys[i], upper
		if i+1 < count {
			o.upper = keys[i+1]
		}
		child, err := w.page(ne.Uint64(b[pageHeaderLen+i*branchElemLen+8:]))
		if err != nil {
			return err
		}
		if err := w.elements(child, depth+1, o); err != nil {
			return err
		}
	}
	o.lower, o.upper = lower, upper
	return nil
}
