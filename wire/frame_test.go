package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestReadFrame(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), 30000)
	payloads := [][]byte{[]byte("one"), {}, big, []byte("two")}
	var stream []byte
	for _, p := range payloads {
		stream = append(appendInt32(stream, int32(len(p))), p...)
	}
	readers := map[string]func() io.Reader{
		"plain":          func() io.Reader { return bytes.NewReader(stream) },
		"bufio":          func() io.Reader { return bufio.NewReader(bytes.NewReader(stream)) },
		"byte by byte":   func() io.Reader { return iotest.OneByteReader(bytes.NewReader(stream)) },
		"half by half":   func() io.Reader { return iotest.HalfReader(bytes.NewReader(stream)) },
		"with the EOF":   func() io.Reader { return iotest.DataErrReader(bytes.NewReader(stream)) },
		"bufio, trickle": func() io.Reader { return bufio.NewReader(iotest.OneByteReader(bytes.NewReader(stream))) },
	}
	for name, open := range readers {
		for _, buf := range [][]byte{nil, make([]byte, 2), make([]byte, 10), make([]byte, 0, 1<<20)} {
			r := open()
			for i, want := range payloads {
				got, err := ReadFrame(r, buf, 1<<20)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s, buffer of %d, frame %d: %d bytes, %v", name, cap(buf), i, len(got), err)
				}
				if len(got) > 0 && cap(buf) >= len(got) && &got[0] != &buf[:1][0] {
					t.Errorf("%s, buffer of %d, frame %d: buffer not used", name, cap(buf), i)
				}
			}
			if _, err := ReadFrame(r, buf, 1<<20); err != io.EOF {
				t.Errorf("%s: at the end: %v", name, err)
			}
		}
	}
}

func TestReadFrameErrors(t *testing.T) {
	full := AppendFrame(nil, PathRequest{"/abc"})
	for n := range full {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if _, err := ReadFrame(bytes.NewReader(full[:n]), nil, 100); err != want {
			t.Errorf("%d bytes: %v", n, err)
		}
		if _, err := ReadFrame(bufio.NewReader(bytes.NewReader(full[:n])), nil, 100); err != want {
			t.Errorf("%d bytes through bufio: %v", n, err)
		}
	}
	broken := errors.New("broken")
	if _, err := ReadFrame(iotest.ErrReader(broken), nil, 100); err != broken {
		t.Errorf("broken reader: %v", err)
	}
	if _, err := ReadFrame(bufio.NewReader(iotest.ErrReader(broken)), nil, 100); err != broken {
		t.Errorf("broken reader through bufio: %v", err)
	}
}

func TestReadFrameLimit(t *testing.T) {
	for _, c := range []struct {
		n, max int32
		ok     bool
	}{
		{-1, 10, false}, {-1 << 31, 10, false}, {0, 0, true}, {1, 0, false}, {10, 10, true}, {11, 10, false},
		{DefaultMaxBuffer, DefaultMaxBuffer, true}, {DefaultMaxBuffer + 1, DefaultMaxBuffer, false},
		{'s'<<24 | 'r'<<16 | 'v'<<8 | 'r', DefaultMaxBuffer, false},
	} {
		in := appendInt32(nil, c.n)
		if c.ok {
			in = append(in, make([]byte, c.n)...)
		}
		got, err := ReadFrame(bytes.NewReader(in), nil, int(c.max))
		if c.ok && (err != nil || len(got) != int(c.n)) || !c.ok && !errors.Is(err, ErrFrameLength) {
			t.Errorf("length %d, at most %d: %d bytes, %v", c.n, c.max, len(got), err)
		}
	}
}

// A length that no bytes follow costs little memory, whatever the limit.
func TestReadFrameAllocation(t *testing.T) {
	in := append(appendInt32(nil, 1<<30), "a few bytes"...)
	n := allocatedBytes(func() {
		if _, err := ReadFrame(bytes.NewReader(in), nil, 1<<30); err != io.ErrUnexpectedEOF {
			t.Error(err)
		}
	})
	if n > 4*readStep {
		t.Errorf("%d bytes allocated", n)
	}
}
