package quorum

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"
)

// The two meta pages of a bbolt file. Transaction N writes its pages where nothing refers to them,
// syncs, and then writes meta page N mod 2. What makes N valid is 80 bytes within one sector, which
// a disk writes wholly or not at all. So after any crash both meta pages are whole and their
// numbers follow one another. A meta page that is not whole was whole once: bbolt would go on with
// the other one, one transaction back, and the member would forget an entry or a vote. So it is
// refused.
//
//	0        16      20        24          28      32     40        48         56     64     72
//	+--------+-------+---------+-----------+-------+------+---------+----------+------+------+----------+
//	| header | magic | version | page size | flags | root | (unused)| freelist | high | txid | checksum |
//	+--------+-------+---------+-----------+-------+------+---------+----------+------+------+----------+
//
// in the byte order of the machine. The checksum is FNV-1a of what stands between header and
// checksum.
const (
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	pageHeaderLen = 16
	metaLen       = 64 // with its checksum
	metaPage      = 0x04
	pageSizeMin   = 1 << 10
	pageSizeMax   = 64 << 10
)

type boltMeta struct {
	pageSize   int64
	high, txid uint64
}

// checkBoltMetas verifies both meta pages of a file, and that it is as long as they say.
func checkBoltMetas(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	first, err := readMeta(f, 0, 0)
	if err != nil {
		return err
	}
	if first.pageSize < pageSizeMin || first.pageSize > pageSizeMax {
		return damagedf("its pages have %d bytes", first.pageSize)
	}
	second, err := readMeta(f, 1, first.pageSize)
	if err != nil {
		return err
	}
	older, newer := first, second
	if first.txid > second.txid {
		older, newer = second, first
	}
	switch {
	case newer.txid != older.txid+1 || first.txid%2 != 0:
		return damagedf("its meta pages are of transactions %d and %d: a write was lost", older.txid, newer.txid)
	case older.pageSize != newer.pageSize:
		return damagedf("its meta pages name two page sizes")
	case st.Size() < int64(newer.high)*newer.pageSize:
		return damagedf("the file has %d bytes of %d", st.Size(), int64(newer.high)*newer.pageSize)
	}
	return nil
}

// readMeta reads and verifies meta page id, which stands at an offset.
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
	return boltMeta{pageSize: int64(ne.Uint32(b[8:])), high: ne.Uint64(b[40:]), txid: ne.Uint64(b[48:])}, nil
}
