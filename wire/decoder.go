package wire

import (
	"encoding/binary"
	"fmt"
)

// Decoder reads jute values from a byte slice, in order. After the first failure every read returns
// a zero value, so a record is read without a check after each field; Decode returns the failure.
//
// Buffers alias the input; strings are copies. A Decoder allocates at most in proportion to the
// bytes it has been given: it compares a length or count with the remaining bytes before it
// allocates.
type Decoder struct {
	b   []byte
	off int
	err error
}

// Decode reads r, a pointer to a record, from b. Bytes after the record are ignored, as ZooKeeper
// does. It returns the first failure.
func Decode(b []byte, r interface{ Decode(*Decoder) }) error {
	d := Decoder{b: b}
	if r.Decode(&d); d.err != nil {
		return fmt.Errorf("wire: decode %T: %w", r, d.err)
	}
	return nil
}

// Remaining returns the number of bytes not read yet.
func (d *Decoder) Remaining() int { return len(d.b) - d.off }

// fail keeps the first failure, with the offset where it was found.
func (d *Decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("byte %d of %d: "+format, append([]any{d.off, len(d.b)}, args...)...)
	}
}

// take returns the next n bytes, nil after a failure. The result has no spare capacity, so that
// appending to it cannot overwrite the rest of the frame.
func (d *Decoder) take(n int, what string) []byte {
	if d.err != nil {
		return nil
	}
	if n > d.Remaining() {
		d.fail("%s needs %d bytes, %d left", what, n, d.Remaining())
		return nil
	}
	v := d.b[d.off : d.off+n : d.off+n]
	d.off += n
	return v
}

// Bool reads a boolean. Any byte but 0 is true.
func (d *Decoder) Bool() bool {
	v := d.take(1, "boolean")
	return v != nil && v[0] != 0
}

// Int32 reads an int.
func (d *Decoder) Int32() int32 {
	v := d.take(4, "int")
	if v == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(v))
}

// Int64 reads a long.
func (d *Decoder) Int64() int64 {
	v := d.take(8, "long")
	if v == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(v))
}

// Buffer reads a buffer, nil for null. The result aliases the input.
func (d *Decoder) Buffer() []byte {
	n := d.Int32()
	if d.err != nil || n == -1 {
		return nil
	}
	if n < 0 {
		d.fail("length %d", n)
		return nil
	}
	return d.take(int(n), "buffer")
}

// NullString reads a string and reports whether it is null. Invalid UTF-8 is replaced as Java
// replaces it.
func (d *Decoder) NullString() (s string, null bool) {
	v := d.Buffer()
	if v == nil {
		return "", d.err == nil
	}
	return DecodeUTF8(v), false
}

// Text reads a string where null means the same as empty.
func (d *Decoder) Text() string {
	s, _ := d.NullString()
	return s
}

// Path reads a string that must not be null.
func (d *Decoder) Path() string {
	s, null := d.NullString()
	if null {
		d.fail("null where a path is needed")
	}
	return s
}

// Count reads the count of a vector with elements of at least minLen bytes each, and fails when the
// remaining bytes cannot hold them. A negative count other than -1 (null) is an empty vector.
func (d *Decoder) Count(minLen int) (n int, null bool) {
	c := d.Int32()
	switch {
	case d.err != nil || c == -1:
		return 0, true
	case c < 0:
		return 0, false
	case int64(c)*int64(minLen) > int64(d.Remaining()):
		d.fail("vector of %d elements, %d bytes left", c, d.Remaining())
		return 0, true
	}
	return int(c), false
}

// Strings reads a vector of strings, nil for null. A null element is an error.
func (d *Decoder) Strings() []string { return vector(d, 4, (*Decoder).Path) }

// vector reads a vector with elements of at least minLen bytes each, nil for null or after a
// failure.
func vector[T any](d *Decoder, minLen int, element func(*Decoder) T) []T {
	n, null := d.Count(minLen)
	if null {
		return nil
	}
	v := make([]T, n)
	for i := range v {
		if v[i] = element(d); d.err != nil {
			return nil
		}
	}
	return v
}
