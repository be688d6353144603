package splitbrain

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"
)

// WriteMarkdown writes the document as a table, under a line that says how it was measured.
func (d *Document) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: `%s`, on %d cores (%s afterwards); tickTime %d ms, sessions of %d ms. %d of %d cases came as predicted, in %v.\n\n",
		d.Began.UTC().Format("2006-01-02 15:04 MST"), d.Again, runtime.NumCPU(), loadText(), d.TickMs, d.SessionMs,
		d.Right, d.Played, (time.Duration(d.TookMs) * time.Millisecond).Round(time.Second))
	b.WriteString("| voters | case | predicted | " + d.Target + " |\n|---|---|---|---|\n")
	for _, c := range d.Cases {
		cells := []string{c.Case.Cluster.String(), c.Name, c.predictedText(), c.happenedText()}
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("splitbrain: write table: %w", err)
	}
	return nil
}

// predictedText says which side goes on, or why none does.
func (r *Result) predictedText() string {
	if goes := r.Case.Goes(); goes >= 0 {
		return r.Case.Arithmetic(goes) + " goes on"
	}
	var sides []string
	for i := range r.Case.Sides {
		sides = append(sides, r.Case.Arithmetic(i))
	}
	return "nobody: " + strings.Join(sides, ", ")
}

// happenedText says what became of the side that goes on, when the others stopped, and who knew it when.
func (c CaseSummary) happenedText() string {
	var parts []string
	for i, seen := range c.Sides {
		_, kept := seen.Leading[c.LeaderBefore]
		switch stopped, _ := c.stopped(i); {
		case i != c.Case.Goes():
			parts = append(parts, "stopped after "+stopped.String())
		case kept:
			parts = append(parts, "keeps its leader")
		default:
			parts = append(parts, "writes again after "+seen.Wrote.String())
		}
	}
	switch {
	case c.Window > 0:
		parts = append(parts, "**two holders for "+seconds(c.Window)+"**")
	case c.Margin > 0:
		parts = append(parts, "told "+seconds(c.Margin)+" before")
	}
	if !c.OK {
		parts = append(parts, "**not as predicted**")
	}
	return strings.Join(parts, ", ")
}

// loadText is how busy the machine is, as far as the system says it.
func loadText() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return "load unknown"
	}
	return "load average " + strings.Join(fields[:3], " ")
}

// WriteInto puts the table into a page, between the lines "<!-- split-brain TARGET: begin -->" and "... end -->", which have
// to be there. Without such a file the table becomes one.
func (d *Document) WriteInto(file string) error {
	var table strings.Builder
	if err := d.WriteMarkdown(&table); err != nil {
		return err
	}
	begin, end := "<!-- split-brain "+d.Target+": begin -->\n", "<!-- split-brain "+d.Target+": end -->"
	page, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = []byte(begin+end+"\n"), nil
	}
	if err != nil {
		return fmt.Errorf("splitbrain: read page: %w", err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return fmt.Errorf("splitbrain: %s has no place for the table: the lines %q and %q", file, strings.TrimSpace(begin), end)
	}
	if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		return fmt.Errorf("splitbrain: write page: %w", err)
	}
	return nil
}
