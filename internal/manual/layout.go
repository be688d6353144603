package manual

import (
	_ "embed"
	"fmt"
	"html"
	"strings"
)

// Style is the style sheet of all pages, style.css.
//
//go:embed style.css
var Style string

// A Frame surrounds a page.
type Frame struct {
	Title  string
	Source string // the path in the repository
	Body   string // HTML, as of Page.HTML
	// Base is the way from the page to the directory of style.css and index.html: empty, or ../.
	Base   string
	Front  bool // the page is the index
	Search bool // search.js is beside style.css
	// Back is the directory of the console, for a link to it and its icon; empty for none.
	Back string
}

// HTML is the whole page. It is made without html/template: with that library the linker keeps
// every method of every type, 5 MB more of a member's program.
func (f Frame) HTML() string {
	title, current, script, form, found, back, icon := f.Title+" · lockkeeper", "", "", "", "", "", ""
	base := html.EscapeString(f.Base)
	if f.Front {
		title, current = f.Title, ` aria-current="page"`
	}
	if f.Back != "" {
		to := html.EscapeString(f.Back)
		icon = fmt.Sprintf("<link rel=\"icon\" href=\"%sicon.svg\" type=\"image/svg+xml\">\n", to)
		back = fmt.Sprintf("<a href=\"%s\">Console</a>\n", to)
	}
	if f.Search {
		script = fmt.Sprintf("<script src=\"%ssearch.js\" data-base=\"%[1]s\" defer></script>\n", base)
		form = `<form role="search" hidden>
<input type="search" aria-label="Search the pages" placeholder="Search" autocomplete="off">
</form>
`
		found = "<div id=\"found\" role=\"status\" hidden></div>\n"
	}
	return strings.Join([]string{`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>`, html.EscapeString(title), `</title>
<link rel="stylesheet" href="`, base, `style.css">
`, icon, script, `</head>
<body>
<a class="skip" href="#text">Skip to the text</a>
<header>
<a class="name" href="`, base, `index.html"`, current, `>lockkeeper: all pages</a>
`, back, form, `</header>
`, found, `<main id="text">
`, f.Body, `</main>
<footer>From <code>`, html.EscapeString(f.Source), `</code></footer>
</body>
</html>
`}, "")
}
