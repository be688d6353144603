// Package manual makes HTML of the repository's Markdown pages, for the web site (jepsen/site) and
// for the console, which serves the pages below docs (package lockkeeper/docs). It trusts them: a
// page may have HTML in it.
//
//   - markdown.go: Markdown to HTML, anchors, links
//   - layout.go: the frame around a page, and its style sheet
package manual
