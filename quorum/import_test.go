package quorum

import (
	"errors"
	"strings"
	"testing"

	"lockkeeper/znode"
)

// A member begins with what was imported, once; one that is not complete is refused, and can be
// done again.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	stores, err := OpenStores(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stores.Close() }()
	cfg := Config{ID: 1, Members: []Member{{ID: 1}}, Stores: stores, Listener: newRecorder(), Logger: testLogger()}
	from := Origin{Term: 7, StateTerm: 5, Index: 5<<32 + 9}
	if err := stores.Stable.SetUint64(importKey, 1); err != nil { // one has begun, and was killed
		t.Fatal(err)
	}
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("a start after half an import: %v", err)
	}
	for range 2 { // the second time as after a kill before the last write
		if err := Import(cfg, from, znode.New()); err != nil {
			t.Fatal(err)
		}
		if err := stores.Stable.SetUint64(importKey, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := Import(cfg, from, znode.New()); err != nil {
		t.Fatal(err)
	}
	if err := Import(cfg, from, znode.New()); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a second import: %v", err)
	}
	rec := newRecorder()
	cfg.Listener = rec
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Propose(t.Context(), createSession(7)); err != nil {
		t.Fatal(err)
	}
	rec.result(t, createSession(7).Key())
	if s := r.Status(); s.Term <= from.Term || s.AppliedIndex <= from.Index {
		t.Errorf("%+v is not after the import", s)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
