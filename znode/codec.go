package znode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"lockkeeper/wire"
)

// ErrDamaged is in the chain of every error about bytes that have changed since they were written:
// a checksum does not match, the end is missing, contents contradict each other.
var ErrDamaged = errors.New("damaged")

// ErrNewer is in the chain of every error about a format, a flag or a kind of command that this
// program does not know yet.
var ErrNewer = errors.New("written by a newer version")

// castagnoli is the polynomial that processors compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendString(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// decoder reads our own encodings. After the first failure every read returns zero and err has the
// reason.
type decoder struct {
	b   []byte // not read yet
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrDamaged, what)
		d.b = nil
	}
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("too short")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("bad varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint32() int32 {
	v := d.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail("number exceeds 32 bits")
		return 0
	}
	return int32(v)
}

// count reads the number of elements that follow, each of at least minSizeBytes bytes.
func (d *decoder) count(minSizeBytes int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/minSizeBytes) {
		d.fail("count exceeds what follows")
		return 0
	}
	return int(n)
}

// password reads the password of a session.
func (d *decoder) password() (p wire.Password) {
	if copy(p[:], d.bytes()) != len(p) {
		d.fail("bad password")
	}
	return p
}

// bytes reads a length and that many bytes, which alias the input; nil when there are none.
func (d *decoder) bytes() []byte {
	v := d.take(d.uvarint())
	if len(v) == 0 {
		return nil
	}
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }
