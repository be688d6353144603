package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWriteFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page")
	for _, text := range []string{"the first is longer", "second"} {
		if err := writeFile(name, func(w io.Writer) error { _, err := fmt.Fprint(w, text); return err }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); string(got) != text {
			t.Errorf("%q is in the file, %v, want %q", got, err, text)
		}
	}
	failed := errors.New("failed")
	if err := writeFile(name, func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a write that fails: %v", err)
	}
	if err := writeFile(filepath.Join(name, "page"), func(io.Writer) error { return nil }); err == nil {
		t.Error("a file was made below a file")
	}
}

// The logs of a scratch directory are kept, and the page links to them by relative names. Those
// that a member has in its data directory are not.
func TestWriteKeepsLogs(t *testing.T) {
	scratch, dir := t.TempDir(), filepath.Join(t.TempDir(), "report")
	for name, text := range map[string]string{
		"m1/log": "of m1", "cluster2/m3/log": "of m3", "client1.log": "of a client", "host1.log": "",
		"m1/zoo.cfg": "no log", "m1/data/raft.wal/1.log": "no log",
	} {
		file := filepath.Join(scratch, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	r := sample(1, time.Second)
	r.Files = []File{{Name: "traces/m1"}}
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "traces"), 0o755),
		os.WriteFile(filepath.Join(dir, "traces", "m1"), []byte("four"), 0o644), Write(dir, scratch, r))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := "client1.log cluster2-m3.log history.jsonl index.html m1.log report.json traces"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), `<a href="traces/m1">traces/m1</a> <span class="soft">4 bytes`) {
		t.Error("the page does not have the traces")
	}
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return name == "traces" }) {
		if link := fmt.Sprintf(`<a href="%s">`, name); name != "index.html" && !strings.Contains(string(page), link) {
			t.Errorf("the page has no link %s", link)
		}
	}
}

func TestReplaceTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	for _, step := range []struct{ before, name, table, want string }{
		{"# Page\n<!-- a: begin -->\nold\n<!-- a: end -->\nrest <!-- b: begin -->", "a", "new\n",
			"# Page\n<!-- a: begin -->\nnew\n<!-- a: end -->\nrest <!-- b: begin -->"},
		{"", "c", "new\n", "<!-- c: begin -->\nnew\n<!-- c: end -->\n"}, // there is no file
		{"# Page\n", "a", "new\n", ""},
		{"<!-- a: begin -->\n", "a", "new\n", ""},
	} {
		_ = os.Remove(file)
		if step.before != "" {
			if err := os.WriteFile(file, []byte(step.before), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := ReplaceTable(file, step.name, step.table)
		if text, _ := os.ReadFile(file); step.want != "" && (err != nil || string(text) != step.want) {
			t.Errorf("%q: %q, %v", step.before, text, err)
		}
		if step.want == "" && (err == nil || !strings.Contains(err.Error(), "has no place for the table")) {
			t.Errorf("%q: %v", step.before, err)
		}
	}
}
