package attack

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Heading writes the head of the table on a terminal.
func Heading(w io.Writer) {
	fmt.Fprintf(w, "%-20s %-8s %-8s %16s %15s %9s %8s  %s\n", "attack", "port", "verdict", "p99 before, in it", "most MB, after", "sent MB", "restart", "the attacker saw")
}

// Row writes one result as a row, and what failed below it.
func (r *Result) Row(w io.Writer) {
	restart := ""
	if r.RestartMs > 0 {
		restart = fmt.Sprintf("%d ms", r.RestartMs)
	}
	fmt.Fprintf(w, "%-20s %-8s %-8s %7.0f %6.0f ms %8d %6d %9.1f %8s  %s\n", r.Attack, r.Port, r.verdict(), r.BeforeMs, r.P99Ms,
		r.PeakBytes>>20, r.AfterBytes>>20, float64(r.SentBytes)/1e6, restart, outcomes(r.Seen))
	for _, f := range r.Failures {
		first, rest, _ := strings.Cut(f, "\n")
		if fmt.Fprintf(w, "    %s\n", first); rest != "" {
			fmt.Fprintf(w, "      (%d lines more, in the report)\n", strings.Count(rest, "\n")+1)
		}
	}
}

// verdict is the result in one word.
func (r *Result) verdict() string {
	switch {
	case r.OK():
		return "stands"
	case !slices.ContainsFunc(r.Failures, isHarm):
		return "unplayed" // so nobody knows
	}
	return "harmed"
}

// tooLittle begins a failure of the attack itself.
const tooLittle = "saw too little: "

// isHarm says whether a failure is one of the member.
func isHarm(failure string) bool { return !strings.HasPrefix(failure, tooLittle) }

// Table is the results as a table in Markdown, with columns for each target.
func Table(all []*Document) string {
	var b strings.Builder
	b.WriteString("\n| attack | sends |")
	for _, d := range all {
		fmt.Fprintf(&b, " %s | p99, ms | most MB |", d.Target)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|---:|---:|", len(all)))
	for _, a := range All() {
		row, played := fmt.Sprintf("| %s | %s |", a.Name, a.Sends), false
		for _, d := range all {
			r := d.find(a.Name)
			if r == nil {
				row += " not played | | |"
				continue
			}
			played = true
			row += fmt.Sprintf(" %s | %.0f (%.0f) | %d |", r.short(), r.P99Ms, r.BeforeMs, r.PeakBytes>>20)
		}
		if played {
			fmt.Fprintln(&b, row)
		}
	}
	return b.String() + "\n"
}

// short is the verdict with the first failure.
func (r *Result) short() string {
	if r.OK() {
		return r.verdict()
	}
	// What was done to others comes before what was not done.
	first := max(0, slices.IndexFunc(r.Failures, isHarm))
	text, _, _ := strings.Cut(r.Failures[first], "\n")
	if more := len(r.Failures) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return r.verdict() + ": " + strings.ReplaceAll(text, "|", "\\|")
}

// find is the result of an attack, nil if it was not played.
func (d *Document) find(name string) *Result {
	for _, r := range d.Results {
		if r.Attack == name {
			return r
		}
	}
	return nil
}
