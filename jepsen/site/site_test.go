package main

import (
	"html"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const repository = "../.."

var (
	linkPattern = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	idPattern   = regexp.MustCompile(` id="([^"]*)"`)
)

// A shown is a file of the site with its links and anchors.
type shown struct {
	links []string
	ids   map[string]bool
}

// read reads the pages of a site.
func read(t *testing.T, dir string) map[string]shown {
	t.Helper()
	all := make(map[string]shown)
	err := filepath.Walk(dir, func(file string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		s := shown{ids: make(map[string]bool)}
		if path.Ext(rel) == ".html" {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, m := range linkPattern.FindAllSubmatch(b, -1) {
				s.links = append(s.links, html.UnescapeString(string(m[1])))
			}
			for _, m := range idPattern.FindAllSubmatch(b, -1) {
				s.ids[html.UnescapeString(string(m[1]))] = true
			}
		}
		all[filepath.ToSlash(rel)] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// faults lists the links that lead nowhere, and the pages that no path of links from the index
// leads to.
func faults(all map[string]shown) []string {
	var bad []string
	reached := map[string]bool{"index.html": true}
	for queue := []string{"index.html"}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		for _, link := range all[from].links {
			u, err := url.Parse(link)
			if err != nil {
				bad = append(bad, from+": "+err.Error())
				continue
			}
			if u.Scheme != "" {
				continue
			}
			to := from
			if u.Path != "" {
				to = path.Join(path.Dir(from), u.Path)
			}
			target, ok := all[to]
			switch {
			case !ok:
				bad = append(bad, from+": no file for "+link)
			case u.Fragment != "" && !target.ids[u.Fragment]:
				bad = append(bad, from+": no anchor for "+link)
			case !reached[to]:
				reached[to] = true
				queue = append(queue, to)
			}
		}
	}
	for p := range all {
		if path.Ext(p) == ".html" && !reached[p] {
			bad = append(bad, p+": no way from the index")
		}
	}
	slices.Sort(bad)
	return bad
}

// TestSite builds the site of the repository: each link and each anchor leads somewhere, and every
// page can be reached from the index.
func TestSite(t *testing.T) {
	out := t.TempDir()
	if _, err := build(repository, out); err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults(read(t, out)) {
		t.Error(fault)
	}
}

// TestIndex has each page of docs in the index once. Each begins with a sentence below its title.
func TestIndex(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(repository, front))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(repository, "docs/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	for _, file := range pages {
		name := filepath.Base(file)
		if name == path.Base(front) {
			continue
		}
		if n := strings.Count(string(index), "]("+name+")"); n != 1 {
			t.Errorf("%s links to %s %d times, not once", front, name, n)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !opening.Match(b) {
			t.Errorf("docs/%s: the title is not followed by a sentence", name)
		}
	}
}

// opening is a title and the beginning of a paragraph.
var opening = regexp.MustCompile("^# [^\n]+\n\n[A-Za-z`*]")

// TestFaultsAreFound breaks a small repository in each way that TestSite is to notice.
func TestFaultsAreFound(t *testing.T) {
	tests := []struct{ name, page, want string }{
		{"no file", "# A\n\n[x](missing.md)\n", "link to missing.md"},
		{"no anchor", "# A\n\n[x](other.md#nowhere)\n", "docs/a.html: no anchor for other.html#nowhere"},
		{"no way", "# A\n", "docs/other.html: no way from the index"},
		{"none", "# A\n\n[x](other.md#two-words-1), [y](../src/x.go), [z](../src)\n", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root, out := t.TempDir(), t.TempDir()
			for name, content := range map[string]string{
				"docs/README.md": "# Index\n\n[a](a.md)\n",
				"docs/a.md":      test.page,
				"docs/other.md":  "# Other\n\n## Two `words`\n\n## Two words!\n",
				"src/x.go":       "package x\n",
			} {
				file := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := ""
			if _, err := build(root, out); err != nil {
				got = err.Error()
			} else {
				got = strings.Join(faults(read(t, out)), "\n")
			}
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("faults %q, want %q", got, test.want)
			}
		})
	}
}
