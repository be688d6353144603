package page

import (
	"fmt"
	"slices"
	"strings"
)

// A Table is one for Markdown and for HTML. A cell may have parts in bold, between two stars.
type Table struct {
	Head []string
	Rows [][]string
}

// Markdown is the table as Markdown.
func (t Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
	for _, row := range t.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// noToken is the cell of a way without tokens, in columns of fences.
const noToken = "no token"

// played is the table without the columns that nobody has played.
func (t Table) played() (p Table) {
	rows := make([][]string, len(t.Rows))
	for i, head := range t.Head {
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != "" && row[i] != noToken }) {
			continue
		}
		p.Head = append(p.Head, head)
		for n, row := range t.Rows {
			rows[n] = append(rows[n], row[i])
		}
	}
	p.Rows = rows
	return p
}

// Text is the table for a terminal.
func (t Table) Text() string {
	rows := append([][]string{t.Head}, t.Rows...)
	widths := make([]int, len(t.Head))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(strings.ReplaceAll(cell, "**", "")))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", widths[i], strings.ReplaceAll(cell, "**", ""))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// A fact is a term with its explanation, or a figure of the run.
type fact struct{ Name, Value string }

// columns explains the columns of tables, a line each, in the order of the explanations.
var columns = []fact{
	{"rounds", "rounds that were played to their end; the other columns are about these"},
	{"two holders", "rounds with two holders for more than 5 ms, as their libraries said"},
	{"longest", "for how long at most"},
	{"updates lost", "updates that another write undid, in a counter that takes every write"},
	{"lost without a fence", "updates that another write undid, in a counter that takes every write"},
	{"lost with a fence", "updates that a fence, or a check of the system's own data, accepted and lost"},
	{"lost with one", "updates that the fence of a store accepted, and that its counter does not have"},
	{"fence on writes", "lost updates, where a write with a smaller token than an earlier write's is refused"},
	{"full fence", "lost updates, where reads show their tokens too"},
	{"fence in a store", "updates that the fence of a real store accepted, and that its counter does not have"},
	{"asked", "lost updates, where the counter asks the servers whether the token is the holder's"},
	{"versions", "lost updates, where a write names the value that it was made of, and this is compared"},
	{"refused", "late writes, which the fences of the stores refused"},
	{"in doubt", "rounds in which a write failed, or its writer died: nobody knows, they do not count"},
	{"file", "lost updates, of the rounds with a counter in this store; the columns after it likewise"},
	{"not told", "rounds with another holder before the first one knew that its lock was lost"},
	{"free after", "the time from the death of a holder to the next holder, the median"},
	{"left behind", "rounds in which nobody got the lock"},
}

// explain are the explanations of the tables' columns.
func explain(tables ...Table) []fact {
	return slices.DeleteFunc(slices.Clone(columns), func(c fact) bool {
		return !slices.ContainsFunc(tables, func(t Table) bool { return slices.Contains(t.Head, c.Name) })
	})
}

// Explain explains the columns for a terminal, a line each.
func (t Table) Explain() string {
	var b strings.Builder
	width := 0
	for _, c := range explain(t) {
		width = max(width, len(c.Name))
	}
	for _, c := range explain(t) {
		fmt.Fprintf(&b, "%-*s  %s\n", width, c.Name, c.Value)
	}
	return b.String()
}

// list are facts as a list in Markdown.
func list(facts []fact) string {
	var b strings.Builder
	for _, f := range facts {
		b.WriteString(wrap(fmt.Sprintf("- *%s*: %s", f.Name, f.Value), "  "))
	}
	return b.String()
}

// wrap breaks a text into lines of 100 columns. All but the first begin with indent.
func wrap(text, indent string) string {
	const width = 100
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		switch length := len([]rune(word)); {
		case i == 0:
			b.WriteString(word)
			n = length
		case n+1+length > width:
			b.WriteString("\n" + indent + word)
			n = len(indent) + length
		default:
			b.WriteString(" " + word)
			n += 1 + length
		}
	}
	return b.String() + "\n"
}
