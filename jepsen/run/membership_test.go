package run

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// The half page that is torn is one of the newer meta page.
func TestTearLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "raft.db")
	pageBytes := os.Getpagesize()
	whole := make([]byte, 4*pageBytes)
	for page, txid := range []uint64{7, 8} {
		binary.NativeEndian.PutUint64(whole[page*pageBytes+metaTxid:], txid)
	}
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tearLog(name, rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	torn, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	from, to := pageBytes+metaBytes/2, pageBytes+metaBytes
	if bytes.Equal(torn[from:to], whole[from:to]) {
		t.Error("the newer page is as it was")
	}
	copy(torn[from:to], whole[from:to])
	if !bytes.Equal(torn, whole) {
		t.Error("more was torn than half of the newer page")
	}
}
