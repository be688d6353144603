package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
)

// The two meta pages of a bbolt file. Transaction N writes its pages where nothing refers to them,
// syncs, and then writes meta page N mod 2. The 80 bytes that make N valid are within one sector,
// which a disk writes wholly or not at all. So after any crash both meta pages are whole and their
// numbers are consecutive. A broken meta page is damage: bbolt would use the other one, one
// transaction older, and the member would forget an entry or a vote. So the file is refused.
//
//	0        16      20        24          28      32     40       48     56     64     72
//	+--------+-------+---------+-----------+-------+------+--------+------+------+------+-------+
//	| header | magic | version | page size | flags | root | unused | free | high | txid | check |
//	|        |       |         |           |       |      |        | list |      |      | sum   |
//	+--------+-------+---------+-----------+-------+------+--------+------+------+------+-------+
//
// in the byte order of the machine. The checksum is FNV-1a of the bytes between header and
// checksum.
const (
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	pageHeaderLen = 16
	metaLen       = 64 // with its checksum
	pageSizeMin   = 1 << 10
	pageSizeMax   = 64 << 10
)

// The kinds of pages: the flags in their headers.
const (
	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10
)

const (
	elementLen      = 16   // of each element that follows the header of a branch or leaf page
	bucketElement   = 0x01 // the flag of a leaf's element with a bucket as value
	bucketHeaderLen = 16
	noFreelist      = math.MaxUint64
)

type boltMeta struct {
	pageSize                   int64
	root, freelist, high, txid uint64
}

// checkBoltPages verifies the meta pages of a file and the pages of its tree. In a file that
// passes, bbolt reads nothing beyond the end, no page is below two others or below itself, and only
// the root has buckets. So the time that bbolt and its own check take is proportional to the file.
func checkBoltPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := checkBoltMetas(f)
	if err != nil {
		return err
	}
	t := boltTree{f: f, meta: m, seen: make(map[uint64]bool)}
	if m.freelist != noFreelist {
		if err := t.page(m.freelist, freelistPage, false); err != nil {
			return damagedf("%w", err)
		}
	}
	if err := t.page(m.root, branchPage|leafPage, false); err != nil {
		return damagedf("%w", err)
	}
	return nil
}

// checkBoltMetas verifies both meta pages of a file, and that it is as long as they say. It returns
// the newer one.
func checkBoltMetas(f *os.File) (newer boltMeta, err error) {
	st, err := f.Stat()
	if err != nil {
		return newer, err
	}
	first, err := readMeta(f, 0, 0)
	if err != nil {
		return newer, err
	}
	if first.pageSize < pageSizeMin || first.pageSize > pageSizeMax {
		return newer, damagedf("its pages have %d bytes", first.pageSize)
	}
	second, err := readMeta(f, 1, first.pageSize)
	if err != nil {
		return newer, err
	}
	older := first
	newer = second
	if first.txid > second.txid {
		older, newer = second, first
	}
	switch {
	case newer.txid != older.txid+1 || first.txid%2 != 0:
		return newer, damagedf("its meta pages are of transactions %d and %d: a write was lost", older.txid, newer.txid)
	case older.pageSize != newer.pageSize:
		return newer, damagedf("its meta pages name two page sizes")
	case st.Size() < int64(newer.high)*newer.pageSize:
		return newer, damagedf("the file has %d bytes of %d", st.Size(), int64(newer.high)*newer.pageSize)
	}
	return newer, nil
}

// readMeta reads and verifies meta page id, which is at an offset.
func readMeta(f io.ReaderAt, id uint64, at int64) (m boltMeta, err error) {
	page := make([]byte, pageHeaderLen+metaLen)
	if _, err := f.ReadAt(page, at); errors.Is(err, io.EOF) {
		return m, damagedf("the file ends within its meta pages")
	} else if err != nil {
		return m, err
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
	return boltMeta{pageSize: int64(ne.Uint32(b[8:])), root: ne.Uint64(b[16:]), freelist: ne.Uint64(b[32:]),
		high: ne.Uint64(b[40:]), txid: ne.Uint64(b[48:])}, nil
}

// boltTree verifies the pages of a file: each is used once, and all its offsets are within it. A
// page begins with a header, and its elements follow:
//
//	0    8       10      12         16
//	+----+-------+-------+----------+----------+----------+--
//	| id | flags | count | overflow | element  | element  | ...
//	+----+-------+-------+----------+----------+----------+--
//
//	element of a branch:  offset of the key (4), its length (4), page (8)
//	element of a leaf:    flags (4), offset of the key (4), its length (4), value's length (4)
//	element of the freelist: page (8)
//
// Offsets count from the element; the value follows the key. overflow is the number of further
// pages that this one takes. The value of a bucket is its root page and its sequence, 8 bytes each;
// if the root is 0, the bucket's only page follows.
type boltTree struct {
	f    io.ReaderAt
	meta boltMeta
	seen map[uint64]bool
}

// page verifies a page, which must be of one of these kinds, and those below it. inBucket says that
// they are not of the root.
func (t *boltTree) page(id uint64, kinds uint16, inBucket bool) error {
	b := make([]byte, t.meta.pageSize)
	if err := t.read(b, id); err != nil {
		return err
	}
	if binary.NativeEndian.Uint64(b) != id {
		return fmt.Errorf("page %d is another one", id)
	}
	overflow := uint64(binary.NativeEndian.Uint32(b[12:]))
	if overflow >= t.meta.high-id {
		return fmt.Errorf("page %d has %d more, and there are not as many", id, overflow)
	}
	for i := range overflow + 1 {
		if t.seen[id+i] {
			return fmt.Errorf("page %d is used twice", id+i)
		}
		t.seen[id+i] = true
	}
	if overflow > 0 {
		b = make([]byte, (int64(overflow)+1)*t.meta.pageSize)
		if err := t.read(b, id); err != nil {
			return err
		}
	}
	if err := t.elements(b, kinds, inBucket); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// read reads pages from id on.
func (t *boltTree) read(b []byte, id uint64) error {
	if id < 2 || id >= t.meta.high {
		return fmt.Errorf("there is no page %d", id)
	}
	_, err := t.f.ReadAt(b, int64(id)*t.meta.pageSize)
	return err
}

var (
	errPageKind     = errors.New("its kind is another one")
	errPageElements = errors.New("it does not hold its elements")
	errPageBucket   = errors.New("it has a bucket within a bucket")
)

// elements verifies the elements of a page, and the pages that they refer to.
func (t *boltTree) elements(page []byte, kinds uint16, inBucket bool) error {
	if len(page) < pageHeaderLen {
		return errPageElements
	}
	ne := binary.NativeEndian
	kind, count := ne.Uint16(page[8:]), int(ne.Uint16(page[10:]))
	if kind&kinds == 0 || kind&(kind-1) != 0 {
		return errPageKind
	}
	if kind == freelistPage {
		return checkFreelist(page, count)
	}
	if kind == branchPage && count == 0 {
		return errPageElements // bbolt follows the first one without looking at the count
	}
	for i := range count {
		at := pageHeaderLen + i*elementLen
		if at+elementLen > len(page) {
			return errPageElements
		}
		var err error
		if kind == branchPage {
			err = t.branchElement(page[at:], inBucket)
		} else {
			err = t.leafElement(page[at:], inBucket)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// branchElement verifies the element of a branch, which e begins with, and the page below it.
func (t *boltTree) branchElement(e []byte, inBucket bool) error {
	ne := binary.NativeEndian
	if _, err := part(e, ne.Uint32(e), ne.Uint32(e[4:])); err != nil {
		return err
	}
	return t.page(ne.Uint64(e[8:]), branchPage|leafPage, inBucket)
}

// leafElement verifies the element of a leaf, which e begins with, and the pages of the bucket that
// it may be.
func (t *boltTree) leafElement(e []byte, inBucket bool) error {
	ne := binary.NativeEndian
	at, keyLen, valueLen := ne.Uint32(e[4:]), ne.Uint32(e[8:]), ne.Uint32(e[12:])
	b, err := part(e, at, keyLen)
	if err != nil {
		return err
	}
	value, err := part(e[int(at)+len(b):], 0, valueLen)
	if err != nil || ne.Uint32(e)&bucketElement == 0 {
		return err
	}
	if inBucket {
		return errPageBucket
	}
	if len(value) < bucketHeaderLen {
		return errPageElements
	}
	if root := ne.Uint64(value); root != 0 {
		return t.page(root, branchPage|leafPage, true)
	}
	return t.elements(value[bucketHeaderLen:], leafPage, true)
}

// part returns length bytes of a page from an offset on.
func part(page []byte, at, length uint32) ([]byte, error) {
	if uint64(at)+uint64(length) > uint64(len(page)) {
		return nil, errPageElements
	}
	return page[at:][:length], nil
}

// checkFreelist verifies that the page holds the list. A list of 65,535 pages or more has its
// length as its first element.
func checkFreelist(page []byte, count int) error {
	room := (len(page) - pageHeaderLen) / 8
	if count == math.MaxUint16 {
		room--
		if n := binary.NativeEndian.Uint64(page[pageHeaderLen:]); n > uint64(room) {
			return errPageElements
		}
		return nil
	}
	if count > room {
		return errPageElements
	}
	return nil
}
