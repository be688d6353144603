package splitbrain

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestWriteInto(t *testing.T) {
	good, bad := documents()
	file := filepath.Join(t.TempDir(), "page.md")
	page := "# Page\n\n<!-- split-brain lockkeeper: begin -->\nold\n<!-- split-brain lockkeeper: end -->\n\nbetween\n\n<!-- split-brain zookeeper: begin -->\n<!-- split-brain zookeeper: end -->\nrest\n"
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Document{good, bad} {
		if err := d.WriteInto(file); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for want, times := range map[string]int{
		"\nold\n": 0, "between": 1, "rest": 1, "`again & again`": 1, "2026-11-21 17:00 UTC": 2, "tickTime 500 ms, sessions of 2000 ms. 1 of 1 cases": 1,
		"| 3 | 1 \\| 2, leader left | 2 > 3/2 goes on | stopped after 0.5 s, writes again after 1.0 s, told 1.9 s before": 3, "**not as predicted**": 1,
	} {
		if n := strings.Count(got, want); n != times {
			t.Errorf("%q is there %d times, want %d", want, n, times)
		}
	}
	if strings.Index(got, "not as predicted") < strings.Index(got, "between") {
		t.Error("ZooKeeper's table is not in its place")
	}
	if t.Failed() {
		t.Log(got)
	}
	if err := os.WriteFile(file, []byte("# Page\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := good.WriteInto(file); err == nil || !strings.Contains(err.Error(), "has no place for the table") {
		t.Errorf("a page without a place: %v", err)
	}
}

// TestSplitBrainPage: docs/split-brain.md has the tables of both systems as WriteInto writes them, each with its command, and
// no other figures of time.
func TestSplitBrainPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/split-brain.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, target := range []string{"lockkeeper", "zookeeper"} {
		before, rest, _ := strings.Cut(page, "<!-- split-brain "+target+": begin -->\n")
		table, after, found := strings.Cut(rest, "<!-- split-brain "+target+": end -->")
		head := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d UTC: ` + "`go run ./cmd/jepsen split-brain [^`]*`, on ")
		if !found || !head.MatchString(table) || strings.Count(table, "\n| ") < 5 {
			t.Errorf("there is no table of %s: write it with 'go run ./cmd/jepsen split-brain -target %s -out docs/split-brain.md'", target, target)
		}
		page = before + after
	}
	if figures := regexp.MustCompile(`\d\.\d+ ?(s|ms)\b`).FindAllString(page, -1); len(figures) > 0 {
		t.Errorf("these figures are in no table that a command has written: %q", figures)
	}
}
