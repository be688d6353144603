// Package page shows the measurements of the lock lab: as tables in Markdown and for a terminal, as
// an HTML page and JSON, as pictures of single runs, and as stories.
package page
