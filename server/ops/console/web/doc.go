// Package web is the page of the console, embedded: HTML, CSS and JavaScript modules that the
// browser loads as they are. It shows the answers of package console's API (docs/api.md), and knows
// nothing else of a member.
//
// It also serves the pages of lockkeeper/docs as HTML, below docs/; each view links to the page
// that explains it. They need no JavaScript.
//
// All addresses in it are relative, so that a reverse proxy may put the console under any prefix.
// It makes no request to another origin, and its content security policy permits none; nor does it
// permit scripts or styles inside of HTML. Clients' texts (paths, notes, data) become text nodes
// only: dom.js, through which every view draws, has no way to parse HTML.
package web
