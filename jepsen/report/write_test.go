package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page")
	for _, text := range []string{"the first is longer", "second"} {
		if err := WriteFile(name, func(w io.Writer) error { _, err := fmt.Fprint(w, text); return err }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); string(got) != text {
			t.Errorf("%q is in the file, %v, want %q", got, err, text)
		}
	}
	failed := errors.New("failed")
	if err := WriteFile(name, func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a write that fails: %v", err)
	}
	if err := WriteFile(filepath.Join(name, "page"), func(io.Writer) error { return nil }); err == nil {
		t.Error("a file was made below a file")
	}
}
