// Package docs has the pages of this directory, for the console, which serves them.
package docs

import "embed"

// Files are the pages and their drawings. The photographs of the console are not among them.
//
//go:embed *.md decisions/*.md split-brain/*.svg lock-lab/*.svg
var Files embed.FS
