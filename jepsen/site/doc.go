// Command site makes a static web site of the repository's Markdown pages:
//
//	go run ./jepsen/site -out DIR
//
// The site needs no server and no JavaScript: all links are relative, and DIR/index.html is the
// index of docs/README.md. A script adds the search. Package internal/manual makes the HTML.
//
// The files:
//
//   - main.go: the flags
//   - site.go: the pages of a repository, their links, and the files of a site
//   - search.go, search.js: the index of the search, and the script that searches
package main
