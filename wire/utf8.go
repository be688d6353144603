package wire

import (
	"strings"
	"unicode/utf8"
)

// DecodeUTF8 copies b to a string. Malformed input becomes U+FFFD the way Java's String does it, so
// that two servers read an ACL id alike: one replacement for each longest beginning of a character,
// and a single one for an encoded surrogate. (Go's own conversions differ in the number of
// replacements.)
func DecodeUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	// A replacement has 3 bytes and may replace one, so the Builder may have to grow.
	s.Grow(len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			n = malformedLen(b)
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// malformedLen returns the number of bytes at the beginning of b, which start no valid character,
// that Java replaces by one U+FFFD.
func malformedLen(b []byte) int {
	continues := func(i int) bool { return i < len(b) && b[i]&0xC0 == 0x80 }
	switch c := b[0]; {
	case c>>4 == 0xE:
		if !continues(1) || c == 0xE0 && b[1] < 0xA0 {
			return 1
		}
		if continues(2) { // well-formed but for being a surrogate
			return 3
		}
		return 2
	case c >= 0xF0 && c <= 0xF4:
		if !continues(1) || c == 0xF0 && b[1] < 0x90 || c == 0xF4 && b[1] > 0x8F {
			return 1
		}
		if !continues(2) {
			return 2
		}
		return 3
	}
	return 1
}
