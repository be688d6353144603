package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// HTML in a page is shown as it is: the pages are our own.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(html.WithUnsafe()))

// anchors gives headings the ids that code hosts give them, which the pages' links use.
type anchors map[string]int

// Generate is the id of a heading: small letters, digits, "-" and "_"; "-" for each space. The
// second one of a page ends in -1.
func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(value)))
	n := a[id]
	a[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put records an id that a page gives itself.
func (a anchors) Put(value []byte) { a[string(value)]++ }

// render is the HTML of a page, its title and its sections. It adds the files that the page links
// to, and to s.faults the links that lead to no file.
func (s *site) render(page string, source []byte) (body, title string, sections []section, err error) {
	tree := markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(make(anchors)))))
	err = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = s.link(page, n.Destination)
		case *ast.Image:
			n.Destination = s.link(page, n.Destination)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return "", "", nil, err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, tree); err != nil {
		return "", "", nil, err
	}
	// A wide table or block scrolls by itself, also with the keyboard.
	body = strings.NewReplacer("<table>", `<div class="wide" tabindex="0"><table>`, "</table>", "</table></div>",
		"<pre>", `<pre tabindex="0">`).Replace(b.String())
	sections = split(page, source, tree)
	if len(sections) == 0 {
		return "", "", nil, fmt.Errorf("no heading")
	}
	return body, sections[0].Title, sections, nil
}

// link is the destination of a page's link, for the site.
func (s *site) link(page string, destination []byte) []byte {
	u, err := url.Parse(string(destination))
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
		return destination
	}
	to, err := s.add(path.Join(path.Dir(page), u.Path))
	if err != nil {
		s.faults = append(s.faults, fmt.Errorf("site: %s: link to %s: %w", page, destination, err))
		return destination
	}
	u.Path = relative(address(page), to)
	return []byte(u.String())
}
