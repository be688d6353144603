package wire

import "encoding/binary"

// Record is an encodable unit of the protocol. Append appends the record's jute encoding to b and
// returns the extended slice. Every record type of this package also has Decode(*Decoder) on its
// pointer, which leaves a failure in the Decoder.
type Record interface {
	Append(b []byte) []byte
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// appendBuffer keeps the difference between nil (null) and empty.
func appendBuffer(b, v []byte) []byte {
	if v == nil {
		return appendInt32(b, -1)
	}
	return append(appendInt32(b, int32(len(v))), v...)
}

func appendString(b []byte, s string) []byte {
	return append(appendInt32(b, int32(len(s))), s...)
}

// appendNullString encodes null when null is set; s is then ignored.
func appendNullString(b []byte, s string, null bool) []byte {
	if null {
		return appendInt32(b, -1)
	}
	return appendString(b, s)
}

// appendVector keeps the difference between nil (null) and empty.
func appendVector[T any](b []byte, v []T, element func([]byte, T) []byte) []byte {
	if v == nil {
		return appendInt32(b, -1)
	}
	b = appendInt32(b, int32(len(v)))
	for _, e := range v {
		b = element(b, e)
	}
	return b
}

func appendStrings(b []byte, v []string) []byte { return appendVector(b, v, appendString) }
