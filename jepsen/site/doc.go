// Command site makes a static web site of the repository's Markdown pages:
//
//	go run ./jepsen/site -out DIR
//
// The site needs no server and no JavaScript: all links are relative, and DIR/index.html is the
// index of docs/README.md. A script adds the search. The command belongs to the laboratory, so that
// the library for Markdown is no dependency of the product.
//
// The files:
//
//   - main.go: the flags
//   - site.go: the pages of a repository and the files of a site
//   - markdown.go: Markdown to HTML, anchors, links
//   - search.go: the index of the search
//   - web: template, stylesheet, script
package main
