package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestReplace: the content is new, with the mode, whatever an earlier call has left beside it. The
// tests of recipes/fence play failures and power cuts at each call.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path+".new", []byte("left behind"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "two"} {
		if err := Replace(OS{Mode: 0o600}, path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, serr := os.Stat(path)
		if string(got) != content || err != nil || serr != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v, %v", got, err, info.Mode(), serr)
		}
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if err := Replace(OS{Mode: 0o600}, filepath.Join(path, "below"), nil); err == nil {
		t.Error("below a file: no error")
	}
}
