package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"unicode/utf8"
)

// limited runs f and fails when f allocates more than n input bytes justify. The slack is for the
// fuzzing engine, which allocates beside us.
func limited(t *testing.T, n int, f func()) {
	t.Helper()
	if got := allocatedBytes(f); got > uint64(1<<20+64*n) {
		t.Errorf("%d bytes allocated for %d bytes", got, n)
	}
}

// goldenSeeds calls add with the payload of every recorded frame of a kind, without those of the
// handshake.
func goldenSeeds(f *testing.F, kinds string, add func(payload []byte)) {
	for _, file := range goldenFiles(f) {
		begun := map[string]bool{}
		for _, g := range readGolden(f, file) {
			if !bytes.ContainsRune([]byte(kinds), rune(g.kind)) {
				continue
			}
			if begun[g.conn] {
				add(g.frame[frameLenBytes:])
			}
			begun[g.conn] = true
		}
	}
}

func FuzzDecodeBody(f *testing.F) {
	goldenSeeds(f, ">~!", func(p []byte) {
		r, err := DecodeRequest(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(int32(r.Op), r.Body)
	})
	f.Fuzz(func(t *testing.T, number int32, body []byte) {
		op := Op(number)
		original := bytes.Clone(body)
		var rec Record
		var err error
		limited(t, len(body), func() { rec, err = DecodeBody(op, body) })
		if _, known := bodyTypes[op]; known == errors.Is(err, ErrUnknownOp) {
			t.Fatalf("%v: %v", op, err)
		}
		if err != nil {
			return
		}
		once := rec.Append(nil)
		again, err := DecodeBody(op, once)
		if err != nil {
			t.Fatalf("%+v encodes to %x, which does not decode: %v", rec, once, err)
		}
		if !reflect.DeepEqual(rec, again) {
			t.Fatalf("%+v became %+v", rec, again)
		}
		if twice := again.Append(nil); !bytes.Equal(once, twice) {
			t.Fatalf("%x became %x", once, twice)
		}
		if !bytes.Equal(body, original) {
			t.Fatal("the input was modified")
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	for _, c := range recordCases {
		for op := range bodyTypes {
			if r := newResponse(op); r != nil && reflect.TypeOf(r) == reflect.TypeOf(c.rec) {
				f.Add(int32(op), c.rec.Append(nil))
			}
		}
	}
	f.Fuzz(func(t *testing.T, number int32, body []byte) {
		op := Op(number)
		var rec Record
		var err error
		limited(t, len(body), func() { rec, err = DecodeResponse(op, body) })
		if err != nil {
			return
		}
		once := rec.Append(nil)
		again, err := DecodeResponse(op, once)
		if err != nil || !reflect.DeepEqual(rec, again) {
			t.Fatalf("%+v became %+v, %v", rec, again, err)
		}
	})
}

func FuzzReply(f *testing.F) {
	goldenSeeds(f, "<", func(p []byte) { f.Add(p) })
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := DecodeReply(frame)
		if (err != nil) != (len(frame) < replyHeaderLen) {
			t.Fatalf("%d bytes: %v", len(frame), err)
		}
		if err != nil {
			return
		}
		if got := append(h.Append(nil), body...); !bytes.Equal(got, frame) {
			t.Fatalf("%x became %x", frame, got)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	goldenSeeds(f, ">~!", func(p []byte) { f.Add(p) })
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := DecodeRequest(frame)
		if (err != nil) != (len(frame) < 8) {
			t.Fatalf("%d bytes: %v", len(frame), err)
		}
		if err != nil {
			return
		}
		got := append(AppendRequest(nil, r.Xid, r.Op, nil)[frameLenBytes:], r.Body...)
		if !bytes.Equal(got, frame) {
			t.Fatalf("%x became %x", frame, got)
		}
	})
}

func FuzzConnectRequest(f *testing.F) {
	for _, c := range recordCases {
		f.Add(c.rec.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again ConnectRequest
		var err error
		limited(t, len(b), func() { err = Decode(b, &r) })
		if err != nil {
			return
		}
		once := r.Append(nil)
		if err := Decode(once, &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
		if len(b) == len(once) && b[len(b)-1] <= 1 && !bytes.Equal(b, once) {
			t.Fatalf("%x became %x", b, once)
		}
	})
}

func FuzzConnectResponse(f *testing.F) {
	for _, c := range recordCases {
		f.Add(c.rec.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again ConnectResponse
		var err error
		limited(t, len(b), func() { err = Decode(b, &r) })
		if err != nil {
			return
		}
		once := r.Append(nil)
		if err := Decode(once, &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 'x', 0, 0, 0, 0}, 10, 3)
	f.Add(append(appendInt32(nil, 1<<20), "short"...), 1<<21, 0)
	f.Add([]byte("srvr"), DefaultMaxBuffer, 64)
	f.Fuzz(func(t *testing.T, in []byte, max, size int) {
		if size < 0 || size > 1<<16 {
			size = 0
		}
		// The same frames however the bytes arrive, and nothing lost between them.
		plain, buffered := io.Reader(bytes.NewReader(in)), io.Reader(bufio.NewReader(bytes.NewReader(in)))
		used := 0
		for {
			var a, b []byte
			var errA, errB error
			limited(t, len(in), func() { a, errA = ReadFrame(plain, make([]byte, size), max) })
			b, errB = ReadFrame(buffered, nil, max)
			if !bytes.Equal(a, b) || (errA == nil) != (errB == nil) || errA != nil && errA.Error() != errB.Error() {
				t.Fatalf("%x, %v and %x, %v", a, errA, b, errB)
			}
			if errA != nil {
				break
			}
			if len(a) > max || !bytes.Equal(a, in[used+frameLenBytes:][:len(a)]) {
				t.Fatalf("frame of %d bytes at %d, at most %d", len(a), used, max)
			}
			used += frameLenBytes + len(a)
		}
	})
}

func FuzzString(f *testing.F) {
	f.Add([]byte("/a/ä世"))
	f.Add([]byte("a\xed\xa0\x80\xed\xb0\x80\xe2\x82:\xff\xc3x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := DecodeUTF8(b)
		switch {
		case !utf8.ValidString(s):
			t.Fatalf("%x became %x", b, s)
		case utf8.Valid(b) && s != string(b):
			t.Fatalf("valid %x became %x", b, s)
		case len(s) > 3*len(b):
			t.Fatalf("%x became %d bytes", b, len(s))
		}
	})
}
