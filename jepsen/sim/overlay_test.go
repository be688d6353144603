package sim

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The lines that are replaced are there in the Go that the house uses.
func TestOverlay(t *testing.T) {
	root := goroot(t)
	replace, err := runtimeFiles(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range patches {
		if replace[filepath.Join(root, "src", "runtime", p.file)] == "" {
			t.Errorf("%s is not replaced", p.file)
		}
	}
	if _, err := runtimeFiles(t.TempDir(), t.TempDir()); err == nil {
		t.Error("an overlay for a Go that is not there")
	}
}

func goroot(t *testing.T) string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
