package main

import (
	_ "embed"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"lockkeeper/internal/manual"
)

// front is the page that becomes index.html.
const front = "docs/README.md"

//go:embed search.js
var search []byte

// A site is one run of build. Paths are slash-separated and relative to the repository.
type site struct {
	root, out string
	pages     []string        // the Markdown pages
	known     map[string]bool // the elements of pages
	written   map[string]bool // the files and listings that links have added
	sections  []section       // for the search
	faults    []error         // links that lead nowhere
}

// build writes the site of the repository at root to the directory out. It returns the number of
// Markdown pages. A link in a page to a file that does not exist is an error.
func build(root, out string) (pages int, err error) {
	s := &site{root: root, out: out, known: make(map[string]bool), written: make(map[string]bool)}
	if err := s.find(); err != nil {
		return 0, err
	}
	for _, p := range s.pages {
		if err := s.page(p); err != nil {
			return 0, fmt.Errorf("site: %s: %w", p, err)
		}
	}
	if err := errors.Join(s.faults...); err != nil {
		return 0, err
	}
	if err := errors.Join(s.write("style.css", []byte(manual.Style)), s.write("search.js", search)); err != nil {
		return 0, err
	}
	index, err := searchIndex(s.sections)
	if err != nil {
		return 0, err
	}
	return len(s.pages), s.write("search-index.js", index)
}

// find lists the Markdown pages. Those in test data and in hidden directories are none.
func (s *site) find() error {
	err := filepath.WalkDir(s.root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if file != s.root && (name == "testdata" || name == "node_modules" || name[0] == '.') {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(file, ".md") {
			rel, err := filepath.Rel(s.root, file)
			if err != nil {
				return err
			}
			s.pages = append(s.pages, filepath.ToSlash(rel))
			s.known[filepath.ToSlash(rel)] = true
		}
		return nil
	})
	if err == nil && !s.known[front] {
		err = fmt.Errorf("site: no %s in %s", front, s.root)
	}
	return err
}

// address is the file of the site that shows a page.
func address(page string) string {
	if page == front {
		return "index.html"
	}
	return strings.TrimSuffix(page, ".md") + ".html"
}

// relative is the link from one file of the site to another one.
func relative(from, to string) string {
	rel, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		panic(err) // both are relative
	}
	return filepath.ToSlash(rel)
}

// page renders one Markdown page.
func (s *site) page(page string) error {
	source, err := os.ReadFile(filepath.Join(s.root, page))
	if err != nil {
		return err
	}
	parsed, err := manual.Parse(source, func(destination string) (string, bool) { return s.link(page, destination), true })
	if err != nil {
		return err
	}
	body, err := parsed.HTML()
	if err != nil {
		return err
	}
	sections := split(address(page), parsed)
	if len(sections) == 0 {
		return errors.New("no heading")
	}
	s.sections = append(s.sections, sections...)
	return s.show(address(page), sections[0].Title, page, body)
}

// link is the destination of a page's link, for the site. It adds the file that the link leads to,
// and to s.faults a link to no file.
func (s *site) link(page, destination string) string {
	u, err := url.Parse(destination)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
		return destination
	}
	to, err := s.add(path.Join(path.Dir(page), u.Path))
	if err != nil {
		s.faults = append(s.faults, fmt.Errorf("site: %s: link to %s: %w", page, destination, err))
		return destination
	}
	u.Path = relative(address(page), to)
	return u.String()
}

// show writes a page of the site. source is its path in the repository.
func (s *site) show(to, title, source, body string) error {
	page := manual.Frame{Title: title, Source: source, Body: body, Base: strings.Repeat("../", strings.Count(to, "/")),
		Front: to == "index.html", Search: true}
	return s.write(to, []byte(page.HTML()))
}

func (s *site) write(to string, b []byte) error {
	file := filepath.Join(s.out, filepath.FromSlash(to))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// add returns the file of the site for a path that a page links to. A file of text becomes a page
// that shows it, a directory one that lists it or its README, any other file is copied.
func (s *site) add(target string) (string, error) {
	if s.known[target] {
		return address(target), nil
	}
	file := filepath.Join(s.root, filepath.FromSlash(target))
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		if readme := path.Join(target, "README.md"); s.known[readme] {
			return address(readme), nil
		}
		return s.list(target, file)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	to := target
	shown := utf8.Valid(b) && path.Ext(target) != ".svg"
	if shown {
		to += ".html"
	}
	if s.written[to] {
		return to, nil
	}
	s.written[to] = true
	if !shown {
		return to, s.write(to, b)
	}
	body := "<h1>" + html.EscapeString(target) + "</h1>\n<pre tabindex=\"0\"><code>" +
		html.EscapeString(string(b)) + "</code></pre>\n"
	return to, s.show(to, target, target, body)
}

// list adds a page that lists a directory.
func (s *site) list(target, dir string) (string, error) {
	to := path.Join(target, "files.html")
	if s.written[to] {
		return to, nil
	}
	s.written[to] = true
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<h1>%s</h1>\n<p>The files of this directory of the repository:</p>\n<ul>\n", html.EscapeString(target))
	for _, e := range entries {
		fmt.Fprintf(&b, "<li><code>%s</code></li>\n", html.EscapeString(e.Name()))
	}
	b.WriteString("</ul>\n")
	return to, s.show(to, target, target, b.String())
}
