// Package page shows what the lock lab has measured: as tables in Markdown and for a terminal, as
// an HTML page and JSON, as pictures of single runs, and as stories.
package page
