package wire

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestDecoderSticky(t *testing.T) {
	d := Decoder{b: []byte{0, 0, 0, 1, 0, 0, 0, 9, 'x'}}
	if v := d.Int32(); v != 1 || d.err != nil {
		t.Fatalf("%d, %v", v, d.err)
	}
	if v := d.Buffer(); v != nil || d.err == nil {
		t.Fatalf("%q, %v", v, d.err)
	}
	first := d.err
	for _, want := range []string{"byte 8 of 9", "buffer", "9 bytes", "1 left"} {
		if !strings.Contains(first.Error(), want) {
			t.Errorf("error %q does not say %q", first, want)
		}
	}
	// The x would be a boolean, were it not for the failure before it.
	if d.Bool() || d.Int32() != 0 || d.Int64() != 0 || d.Text() != "" || d.Path() != "" || d.Strings() != nil ||
		d.ACLs() != nil || d.Buffer() != nil {
		t.Error("a value after a failure")
	}
	if s, null := d.NullString(); s != "" || null {
		t.Error("a null after a failure")
	}
	if d.err != first {
		t.Errorf("the failure became %v", d.err)
	}
}

func TestDecoderBadLengths(t *testing.T) {
	for _, n := range []int32{-2, math.MinInt32, math.MaxInt32, 5} {
		in := append(appendInt32(nil, n), "abcd"...)
		d := &Decoder{b: in}
		if v := d.Buffer(); v != nil || d.err == nil {
			t.Errorf("buffer of length %d: %q", n, v)
		}
		d = &Decoder{b: in}
		if s, null := d.NullString(); s != "" || null || d.err == nil {
			t.Errorf("string of length %d: %q, %v", n, s, null)
		}
	}
	for _, n := range []int32{2, 1 << 29, 1 << 30, math.MaxInt32} {
		in := append(appendInt32(nil, n), "\x00\x00\x00\x01a"...)
		if d := (&Decoder{b: in}); d.Strings() != nil || d.err == nil {
			t.Errorf("%d strings in 5 bytes", n)
		}
		if d := (&Decoder{b: in}); d.ACLs() != nil || d.err == nil {
			t.Errorf("%d ACL entries in 5 bytes", n)
		}
	}
}

// The shortest elements, so many that nothing is left behind them.
func TestDecoderShortestElements(t *testing.T) {
	const n = 5
	count := appendInt32(nil, n)
	if v := (&Decoder{b: append(count, make([]byte, 4*n)...)}).Strings(); len(v) != n {
		t.Errorf("%d strings", len(v))
	}
	if v := (&Decoder{b: append(count, make([]byte, 12*n)...)}).ACLs(); len(v) != n {
		t.Errorf("%d ACL entries", len(v))
	}
	var who WhoAmIResponse
	if err := Decode(append(count, make([]byte, 8*n)...), &who); err != nil || len(who.Clients) != n {
		t.Errorf("%d identities, %v", len(who.Clients), err)
	}
}

// What a record finds wrong after a failure does not hide it.
func TestDecoderKeepsFirstFailure(t *testing.T) {
	_, err := DecodeBody(OpSetWatches, unhex(t, "0000000000000000 00000007"))
	if err == nil || !strings.Contains(err.Error(), "vector of 7 elements, 0 bytes left") {
		t.Errorf("%v", err)
	}
}

// A few bytes that announce a lot must not make the decoder allocate it.
func TestDecodeAllocation(t *testing.T) {
	// also 1<<28 elements, which times the least length of an element overflows 32 bits
	huge := "7fffffff"
	for _, count := range []string{huge, "10000000", "15555556", "20000000", "00100000"} {
		bodies := map[Op]string{
			OpCreate:      "00000000 ffffffff" + count,
			OpSetACL:      "00000000" + count,
			OpSetData:     "00000000" + count,
			OpSync:        count,
			OpSetWatches:  "0000000000000000" + count,
			OpSetWatches2: "0000000000000000 00000000 00000000 00000000 00000000" + count,
			OpMulti:       "00000001 00 ffffffff 00000000 ffffffff" + count,
		}
		for op, body := range bodies {
			b := unhex(t, body)
			if n := allocatedBytes(func() { _, _ = DecodeBody(op, b) }); n > 64<<10 {
				t.Errorf("%v %s: %d bytes allocated for %d", op, body, n, len(b))
			}
		}
		for _, op := range []Op{OpGetChildren, OpGetACL, OpWhoAmI, OpGetEphemerals, OpGetData} {
			b := unhex(t, count)
			if n := allocatedBytes(func() { _, _ = DecodeResponse(op, b) }); n > 64<<10 {
				t.Errorf("%v response %s: %d bytes allocated", op, count, n)
			}
		}
	}
}

// allocatedBytes returns how many bytes were allocated while f ran, a few of other goroutines
// included.
func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestDecodeUTF8(t *testing.T) {
	text, err := os.ReadFile("testdata/java-utf8.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		in, want, _ := strings.Cut(line, " ")
		if got := hex.EncodeToString([]byte(DecodeUTF8(unhex(t, in)))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		n++
	}
	if n < 100 {
		t.Errorf("only %d lines", n)
	}
	for _, s := range []string{"", "/a", "/ä/世/\u00ff", "\U0001F512", "\uFFFD", "a\x00b"} {
		if got := DecodeUTF8([]byte(s)); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestAppendDoesNotTouchPrefix(t *testing.T) {
	b := make([]byte, 3, 64)
	copy(b, "abc")
	out := AppendFrame(b, PathRequest{"/a"})
	if !bytes.Equal(out[:3], []byte("abc")) || &out[0] != &b[0] {
		t.Errorf("%q", out)
	}
}
