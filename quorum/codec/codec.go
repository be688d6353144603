package codec

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// ErrMalformed says that what was decoded is shorter or longer than its format, or has a value that
// no encoder writes.
var ErrMalformed = errors.New("codec: malformed")

// Codec encodes or decodes a sequence of fields. When a field cannot be decoded, it and all that
// follow are zero, and Err returns ErrMalformed. Encoding only reads the fields, so several
// goroutines may encode the same message.
type Codec struct {
	b         []byte // encoded so far, or still to be decoded
	decoding  bool
	malformed bool
}

// Encode makes a Codec that appends to b.
func Encode(b []byte) Codec { return Codec{b: b} }

// Decode makes a Codec that decodes b. What it decodes keeps the memory of b.
func Decode(b []byte) Codec { return Codec{b: b, decoding: true} }

// Encoded is what Encode was called with and all that was appended.
func (c *Codec) Encoded() []byte { return c.b }

// More reports whether bytes are left to decode.
func (c *Codec) More() bool { return c.decoding && !c.malformed && len(c.b) > 0 }

// Decoding reports whether the fields are decoded, not encoded.
func (c *Codec) Decoding() bool { return c.decoding }

// Err returns ErrMalformed if not all that was to be decoded was what it should be, to its last
// byte.
func (c *Codec) Err() error {
	if c.malformed || c.decoding && len(c.b) > 0 {
		return ErrMalformed
	}
	return nil
}

// Refuse makes what is decoded malformed if bad is true.
func (c *Codec) Refuse(bad bool) { c.malformed = c.malformed || bad }

// take takes n bytes off what is to be decoded. If there are fewer, it takes none and returns
// zeros.
func (c *Codec) take(n int) []byte {
	if c.malformed || n > len(c.b) {
		c.malformed = true
		return zeros[:min(n, len(zeros))]
	}
	s := c.b[:n:n]
	c.b = c.b[n:]
	return s
}

// zeros is what a number decodes as that is not there.
var zeros [8]byte

// U8 is a number of one byte.
func U8[T ~uint8](c *Codec, v *T) {
	if c.decoding {
		*v = T(c.take(1)[0])
	} else {
		c.b = append(c.b, byte(*v))
	}
}

// U32 is a number of four bytes.
func U32[T ~uint32 | ~int](c *Codec, v *T) {
	if c.decoding {
		*v = T(int32(binary.BigEndian.Uint32(c.take(4))))
	} else {
		c.b = binary.BigEndian.AppendUint32(c.b, uint32(*v))
	}
}

// U64 are numbers of eight bytes.
func (c *Codec) U64(vs ...*uint64) {
	for _, v := range vs {
		if c.decoding {
			*v = binary.BigEndian.Uint64(c.take(8))
		} else {
			c.b = binary.BigEndian.AppendUint64(c.b, *v)
		}
	}
}

// I64 is a signed number of eight bytes.
func I64[T ~int64](c *Codec, v *T) {
	if c.decoding {
		*v = T(binary.BigEndian.Uint64(c.take(8)))
	} else {
		c.b = binary.BigEndian.AppendUint64(c.b, uint64(*v))
	}
}

// Array are bytes of a fixed number.
func (c *Codec) Array(v []byte) {
	if c.decoding {
		clear(v[copy(v, c.take(len(v))):])
	} else {
		c.b = append(c.b, v...)
	}
}

// Bool are bytes that are 0 or 1.
func (c *Codec) Bool(vs ...*bool) {
	for _, v := range vs {
		if c.decoding {
			b := c.take(1)[0]
			c.Refuse(b > 1)
			*v = b == 1
		} else if *v {
			c.b = append(c.b, 1)
		} else {
			c.b = append(c.b, 0)
		}
	}
}

// Time is a point in time in ns since 1970 (8 bytes); 0 is the zero time.
func (c *Codec) Time(v *time.Time) {
	var ns int64
	if !c.decoding && !v.IsZero() {
		ns = v.UnixNano()
	}
	I64(c, &ns)
	if c.decoding {
		if *v = (time.Time{}); ns != 0 {
			*v = time.Unix(0, ns)
		}
	}
}

// Bytes is a length (4 bytes) and so many bytes. Decoded, an empty one is nil.
func (c *Codec) Bytes(v *[]byte) {
	n := uint32(len(*v))
	U32(c, &n)
	if !c.decoding {
		c.b = append(c.b, *v...)
		return
	}
	c.Refuse(uint64(n) > uint64(len(c.b)))
	if *v = nil; n > 0 && !c.malformed {
		*v = c.take(int(n))
	}
}

// Text is a length (1 byte) and so many bytes. Of a longer text the first 255 bytes are encoded.
func (c *Codec) Text(v *string) {
	n := uint8(min(len(*v), math.MaxUint8))
	if U8(c, &n); !c.decoding {
		c.b = append(c.b, (*v)[:n]...)
		return
	}
	c.Refuse(int(n) > len(c.b))
	if *v = ""; n > 0 && !c.malformed {
		*v = string(c.take(int(n)))
	}
}

// Count is the number of items of a list (4 bytes), each of which has minBytes at least.
func (c *Codec) Count(n, minBytes int) int {
	u := uint32(n)
	U32(c, &u)
	if c.decoding && uint64(u)*uint64(minBytes) > uint64(len(c.b)) {
		c.malformed, u = true, 0
	}
	return int(u)
}

// Rest is a list of numbers of eight bytes that fills what is left.
func Rest[T ~int64 | ~uint64](c *Codec, vs *[]T) {
	if c.decoding {
		*vs = make([]T, len(c.b)/8)
	}
	for i := range *vs {
		if c.decoding {
			(*vs)[i] = T(binary.BigEndian.Uint64(c.take(8)))
		} else {
			c.b = binary.BigEndian.AppendUint64(c.b, uint64((*vs)[i]))
		}
	}
}
