package zkdata

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// bomb is a snapshot that has very many elements of one kind.
type bomb struct {
	what string
}

// writeTo writes the snapshot, without its end.
func (b *bomb) writeTo(w io.Writer, elements int) {
	out := bufio.NewWriter(w)
	i32 := func(n int32) { _ = binary.Write(out, binary.BigEndian, n) }
	i64 := func(n int64) { _ = binary.Write(out, binary.BigEndian, n) }
	i32(snapshotMagic)
	i32(snapshotVersion)
	i64(snapshotDBID)
	switch b.what {
	case "sessions":
		i32(int32(elements))
		for i := range elements {
			i64(int64(i))
			i32(1000)
		}
	case "ACLs":
		i32(0)
		i32(1)
		i64(1)
		i32(int32(elements))
		for range elements {
			i32(31)
			i32(0)
			i32(0)
		}
	case "nodes", "data":
		i32(0)
		i32(0)
		size := 0
		if b.what == "data" {
			size = 100_000
		}
		for i := range elements {
			path := ""
			if i > 0 {
				path = fmt.Sprintf("/%08d", i)
			}
			i32(int32(len(path)))
			_, _ = out.WriteString(path)
			i32(int32(size))
			_, _ = out.Write(make([]byte, size+persistLen))
		}
	}
	_ = out.Flush()
}

// A compressed snapshot that would take more memory than the limits allow is refused while it is
// unpacked, whatever it is made of. It is not taken for a damaged one, which the snapshot before it
// would replace.
func TestLimits(t *testing.T) {
	const memory = 1 << 20
	for _, tt := range []struct {
		what     string
		elements int
		limits   Limits
	}{
		{"sessions", 200_000, Limits{Memory: memory}},
		{"ACLs", 200_000, Limits{Memory: memory}},
		{"nodes", 20_000, Limits{Memory: memory}},
		{"nodes", 20_000, Limits{Nodes: 1000}},
		{"data", 200, Limits{Memory: memory}},
		{"data", 200, Limits{DataBytes: memory}},
	} {
		var file bytes.Buffer
		z := gzip.NewWriter(&file)
		(&bomb{what: tt.what}).writeTo(z, tt.elements)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		packed := file.Len()
		_, err := ReadSnapshot(&file, "bomb", tt.limits)
		if !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrDamaged) {
			t.Errorf("%s, %+v: %v", tt.what, tt.limits, err)
		}
		if left := file.Len(); packed > 1<<20 && left < packed/2 {
			t.Errorf("%s: only %d of %d packed bytes were left", tt.what, left, packed)
		}
	}
}

// Load does not fall back to an older snapshot when the newest is too large.
func TestLoadOfTooMuch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "version-2")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var small, file bytes.Buffer
	if err := NewState().WriteSnapshot(&small); err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(&file)
	(&bomb{what: "nodes"}).writeTo(z, 10_000)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"snapshot.1": small.Bytes(), "snapshot.2.gz": file.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := List(filepath.Dir(dir), filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(files, Options{Limits: Limits{Nodes: 1000}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("loaded: %v", err)
	}
}
