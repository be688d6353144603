package main

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"

	"lockkeeper/internal/manual"
)

// A section is a heading of a page with the text up to the next one: one result of a search.
type section struct {
	Title   string `json:"t"` // of the page
	Heading string `json:"h"`
	Address string `json:"a"` // relative to the site, with the anchor
	Begin   string `json:"b"` // the first words
	Words   string `json:"w"` // each word of the section once, in small letters, sorted
}

// beginBytes is about the length of section.Begin.
const beginBytes = 140

// split cuts a page, which is at an address of the site, into its sections.
func split(address string, page *manual.Page) []section {
	var all []section
	var text strings.Builder
	end := func() {
		if len(all) > 0 {
			last := &all[len(all)-1]
			last.Begin, last.Words = begin(text.String()), words(last.Heading+" "+text.String())
		}
		text.Reset()
	}
	for n := page.Tree.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			page.Text(&text, n)
			continue
		}
		end()
		var heading strings.Builder
		page.Text(&heading, h)
		s := section{Heading: strings.TrimSpace(heading.String()), Address: address}
		s.Title = s.Heading
		if len(all) > 0 {
			s.Title = all[0].Title
			if id, ok := h.AttributeString("id"); ok {
				s.Address += "#" + string(id.([]byte))
			}
		}
		all = append(all, s)
	}
	end()
	return all
}

// begin is the beginning of a text, up to the end of a word.
func begin(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= beginBytes {
		return text
	}
	if i := strings.LastIndexByte(text[:beginBytes], ' '); i > 0 {
		return text[:i] + " …"
	}
	return ""
}

// words is each word of a text once.
func words(text string) string {
	all := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '.' && r != '-'
	})
	for i := range all {
		all[i] = strings.Trim(all[i], ".-")
	}
	slices.Sort(all)
	return strings.TrimSpace(strings.Join(slices.Compact(all), " "))
}

// searchIndex is a script, because a browser reads no other file for a page that it has from disk.
func searchIndex(all []section) ([]byte, error) {
	b, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return append(append([]byte("window.sections = "), b...), ";\n"...), nil
}
