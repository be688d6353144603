package manual

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// HTML in a page is shown as it is: the pages are our own. Cells are aligned by an attribute, as
// the console's policy permits no styles in a page.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Linkify, extension.Strikethrough, extension.TaskList,
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
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

// A Page is one Markdown page.
type Page struct {
	Source []byte
	Tree   ast.Node
}

// Parse reads a page. link is called with the destination of each of its links and pictures, and
// returns the destination in HTML; without one, the page has the text of the link or picture only.
func Parse(source []byte, link func(destination string) (to string, ok bool)) (*Page, error) {
	p := &Page{source, markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(make(anchors)))))}
	var without []ast.Node
	err := ast.Walk(p.Tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var destination *[]byte
		switch n := n.(type) {
		case *ast.Link:
			destination = &n.Destination
		case *ast.Image:
			destination = &n.Destination
		default:
			return ast.WalkContinue, nil
		}
		to, ok := link(string(*destination))
		if !ok {
			without = append(without, n)
		}
		*destination = []byte(to)
		return ast.WalkContinue, nil
	})
	for _, n := range without {
		for child := n.FirstChild(); child != nil; child = n.FirstChild() {
			n.Parent().InsertBefore(n.Parent(), n, child)
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
	return p, err
}

// HTML is the page without a frame. A wide table or block scrolls by itself, also with the
// keyboard.
func (p *Page) HTML() (string, error) {
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.Source, p.Tree); err != nil {
		return "", fmt.Errorf("manual: %w", err)
	}
	return strings.NewReplacer("<table>", `<div class="wide" tabindex="0"><table>`, "</table>", "</table></div>",
		"<pre>", `<pre tabindex="0">`).Replace(b.String()), nil
}

// Text appends the text below a node to b.
func (p *Page) Text(b *strings.Builder, n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		b.Write(n.Segment.Value(p.Source))
		if n.SoftLineBreak() || n.HardLineBreak() {
			b.WriteByte(' ')
		}
		return
	case *ast.String:
		b.Write(n.Value)
		return
	case *ast.CodeBlock, *ast.FencedCodeBlock:
		for i := range n.Lines().Len() {
			line := n.Lines().At(i)
			b.Write(line.Value(p.Source))
		}
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		p.Text(b, c)
	}
	if n.Type() == ast.TypeBlock {
		b.WriteByte(' ')
	}
}

// Title is the text of the first heading; empty if there is none.
func (p *Page) Title() string {
	for n := p.Tree.FirstChild(); n != nil; n = n.NextSibling() {
		if _, ok := n.(*ast.Heading); ok {
			var b strings.Builder
			p.Text(&b, n)
			return strings.TrimSpace(b.String())
		}
	}
	return ""
}
