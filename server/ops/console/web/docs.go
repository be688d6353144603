package web

import (
	"io/fs"
	"net/url"
	"path"
	"strings"

	"lockkeeper/docs"
	"lockkeeper/internal/manual"
)

// frontPage is the page that becomes docs/index.html.
const frontPage = "README.md"

// docAddress is the address below docs/ of one of docs.Files.
func docAddress(name string) string {
	switch stem, ok := strings.CutSuffix(name, ".md"); {
	case name == frontPage:
		return "index.html"
	case ok:
		return stem + ".html"
	}
	return name
}

// docFiles are the names of docs.Files.
func docFiles() (names []string) {
	err := fs.WalkDir(docs.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		panic(err) // they are in this binary
	}
	return names
}

// docLink is the destination of a link in the page from. A link to a file that is not in this
// binary has none.
func docLink(from, destination string) (string, bool) {
	u, err := url.Parse(destination)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
		return destination, err == nil
	}
	to := path.Join(path.Dir(from), u.Path)
	info, err := fs.Stat(docs.Files, to)
	if err == nil && info.IsDir() {
		to = path.Join(to, frontPage)
		info, err = fs.Stat(docs.Files, to)
	}
	if err != nil || info.IsDir() {
		return "", false
	}
	u.Path = strings.Repeat("../", strings.Count(from, "/")) + docAddress(to)
	return u.String(), true
}

// docFile is the answer for one of docs.Files.
func docFile(name string) file {
	source, err := docs.Files.ReadFile(name)
	if err != nil {
		panic(err) // it is in this binary
	}
	if path.Ext(name) != ".md" {
		return newFile(name, string(source))
	}
	page, err := manual.Parse(source, func(to string) (string, bool) { return docLink(name, to) })
	if err != nil {
		panic(err) // TestDocs has parsed all pages, and made HTML of them
	}
	body, err := page.HTML()
	if err != nil {
		panic(err)
	}
	base := strings.Repeat("../", strings.Count(name, "/"))
	return newFile(docAddress(name), manual.Frame{Title: page.Title(), Source: "docs/" + name, Body: body, Base: base,
		Front: name == frontPage, Back: base + "../"}.HTML())
}
