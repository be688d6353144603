package sim

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHangIsCPUTime: a program that computes without end is ended, one that only has to wait longer
// than that is not.
func TestHangIsCPUTime(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	if out, err := output(exec.Command("sh", "-c", "echo begun; sleep 0.5; echo ended"), limit); err != nil || string(out) != "begun\nended\n" {
		t.Errorf("a program that waits: %q, %v", out, err)
	}
	if runtime.GOOS != "linux" {
		t.Skip("no /proc to read the CPU time of a process from")
	}
	out, err := output(exec.Command("sh", "-c", "echo begun; while :; do :; done"), limit)
	if !errors.Is(err, errHangs) || string(out) != "begun\n" {
		t.Errorf("a program that computes: %q, %v", out, err)
	}
	if text := reason(out, err); !strings.Contains(text, "CPU time") {
		t.Errorf("the reason is %q", text)
	}
	if _, err := output(exec.Command("sh", "-c", "exit 3"), limit); err == nil || errors.Is(err, errHangs) {
		t.Errorf("a program that fails: %v", err)
	}
}

// A seed is the same run wherever the program is, with a journal and without: otherwise nobody
// could look at a finding of CI.
func TestSeedIsTheSameRunEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the standard library")
	}
	t.Parallel()
	var digest string
	for _, name := range []string{"a", strings.Repeat("a", 50)} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		p, err := Build(t.Context(), dir, BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Unseeded != nil {
			t.Skip(p.Unseeded)
		}
		for _, journal := range []string{"", filepath.Join(dir, "journal")} {
			r, err := p.Run(t.Context(), Simulation{Seed: 2, Virtual: 2 * time.Minute, Journal: journal})
			if err != nil || !r.OK() {
				t.Fatalf("%v, %+v", err, r)
			}
			if digest == "" {
				digest = r.Journal
			}
			if r.Journal != digest {
				t.Errorf("in %s, with the journal %q: a run with the digest %s, was %s", dir, journal, r.Journal, digest)
			}
			if journal == "" {
				continue
			}
			if text, err := os.ReadFile(journal); err != nil || !bytes.HasSuffix(text, []byte("\n")) {
				t.Errorf("a journal of %d bytes, %v", len(text), err)
			}
		}
	}
}
