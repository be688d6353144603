package codec

import (
	"bytes"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"
)

type kind uint8

// all has a field of each sort.
type all struct {
	Kind  kind
	N     int
	A, B  uint64
	Size  int64
	Yes   bool
	Fixed [16]byte
	At    time.Time
	Data  []byte
	Name  string
	Items []uint64
	Tail  []int64
}

func (a *all) code(c *Codec) {
	U8(c, &a.Kind)
	U32(c, &a.N)
	c.U64(&a.A, &a.B)
	I64(c, &a.Size)
	c.Bool(&a.Yes)
	c.Array(a.Fixed[:])
	c.Time(&a.At)
	c.Bytes(&a.Data)
	c.Text(&a.Name)
	if n := c.Count(len(a.Items), 8); c.Decoding() && n > 0 {
		a.Items = make([]uint64, n)
	}
	for i := range a.Items {
		c.U64(&a.Items[i])
	}
	Rest(c, &a.Tail)
}

func encode(a all) []byte {
	c := Encode([]byte("before"))
	a.code(&c)
	return c.Encoded()[len("before"):]
}

func decode(b []byte) (a all, err error) {
	c := Decode(b)
	a.code(&c)
	return a, c.Err()
}

func TestFieldsSurvive(t *testing.T) {
	for _, a := range []all{
		{Tail: []int64{}},
		{Kind: 7, N: -3, A: 1, B: 1 << 63, Size: -9, Yes: true, At: time.Unix(5, 6), Data: []byte("data"), Name: "name",
			Items: []uint64{1, 2}, Tail: []int64{-1, 4}},
	} {
		b := encode(a)
		if got, err := decode(b); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v decoded as %+v, %v", a, got, err)
		}
		// Without the list at the end, which takes what is left, every length but one is malformed.
		b = b[:len(b)-8*len(a.Tail)]
		for n := range b {
			if _, err := decode(b[:n:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("the first %d of %d bytes: %v", n, len(b), err)
			}
		}
		if _, err := decode(append(b, 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("a byte too many: %v", err)
		}
	}
}

// Bytes on the wire and on disk, which members of other versions read.
func TestLayout(t *testing.T) {
	c := Encode(nil)
	k, n, u, yes, data := kind(9), uint32(2), uint64(3), true, []byte("xy")
	U8(&c, &k)
	U32(&c, &n)
	c.U64(&u)
	c.Bool(&yes)
	c.Bytes(&data)
	want := []byte{9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 'x', 'y'}
	if !bytes.Equal(c.Encoded(), want) {
		t.Errorf("encoded as %x, want %x", c.Encoded(), want)
	}
}

// A message that is sent to several members is encoded by several goroutines; the race detector
// sees one that writes.
func TestEncodingOnlyReads(t *testing.T) {
	a := all{Yes: true, At: time.Unix(1, 0), Data: []byte("data"), Items: []uint64{1}, Tail: []int64{2}}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			c := Encode(nil)
			a.code(&c)
		})
	}
	wg.Wait()
}

// A length is not believed: nothing is allocated for items that are not there.
func TestLengthsThatLie(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 1}
	c := Decode(huge)
	var data []byte
	if c.Bytes(&data); data != nil || c.Err() == nil {
		t.Errorf("decoded %d bytes, %v", len(data), c.Err())
	}
	c = Decode(huge)
	if n := c.Count(0, 1); n != 0 || c.Err() == nil {
		t.Errorf("counted %d items, %v", n, c.Err())
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(all{Data: []byte("data"), Items: []uint64{1}, Tail: []int64{2}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(b)
		if err == nil && !bytes.Equal(encode(a), b) {
			t.Errorf("%x decoded and encoded again: %x", b, encode(a))
		}
	})
}
