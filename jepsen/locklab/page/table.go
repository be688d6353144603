package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/play"
)

// A Document is all that was played.
type Document struct {
	Began time.Time
	Took  time.Duration
	// Again is the command line that plays it again, Machine the machine that it was played on.
	Again, Machine string
	Config         play.Config
	Results        []judge.Result
	// Missing are the systems that could not be started, with the reason.
	Missing []string
}

// find is the result of a case, or nil if it was not played.
func (d *Document) find(way, fault string) *judge.Result {
	for i, r := range d.Results {
		if r.Way.Name == way && r.Case.Fault == fault {
			return &d.Results[i]
		}
	}
	return nil
}

// ways are those that were played, in their order; twins last.
func (d *Document) ways() (all []lock.Way) {
	for _, r := range d.Results {
		if !slices.ContainsFunc(all, func(w lock.Way) bool { return w.Name == r.Way.Name }) {
			all = append(all, r.Way)
		}
	}
	slices.SortStableFunc(all, func(a, b lock.Way) int { return cmp.Compare(order(a), order(b)) })
	return all
}

func order(w lock.Way) int {
	if w.Broken {
		return 1
	}
	return 0
}

// faults are those that were played, but for none, in their order.
func (d *Document) faults() (all []play.Fault) {
	for _, f := range play.All() {
		if f.Name != play.None && slices.ContainsFunc(d.Results, func(r judge.Result) bool { return r.Case.Fault == f.Name }) {
			all = append(all, f)
		}
	}
	return all
}

// Cell is a case in few words.
func Cell(r *judge.Result) string {
	switch {
	case r == nil:
		return ""
	case r.Case.Skipped != "":
		return "not possible"
	}
	f := r.Figures
	n := f.Rounds - f.Broken
	if n == 0 {
		return "not played to its end"
	}
	var words []string
	if f.Two > 0 {
		words = append(words, fmt.Sprintf("**two in %d of %d**, %s", f.Two, n, seconds(f.Longest)))
	}
	if lost := f.LostUpdates[ledger.Open]; lost > 0 {
		words = append(words, fmt.Sprintf("%d lost", lost))
	}
	if f.Left > 0 {
		words = append(words, fmt.Sprintf("**left behind in %d of %d**", f.Left, n))
	}
	if f.Overtaken > 0 && f.Two == 0 {
		words = append(words, fmt.Sprintf("told %s before", seconds(f.Margin)))
	}
	if len(f.Free) > 0 && f.Two == 0 {
		words = append(words, "free after "+seconds(judge.Median(f.Free)))
	}
	if len(words) == 0 {
		return "kept"
	}
	return strings.Join(words, "; ")
}

// Cuts is the table of the stories in which the network is cut between servers, a column each.
func (d *Document) Cuts() Table {
	t := Table{Head: []string{"lock"}}
	for _, f := range d.faults() {
		t.Head = append(t.Head, fmt.Sprintf("%d = %d \\| %d", f.Left+f.Right, f.Left, f.Right))
	}
	for _, w := range d.ways() {
		row := []string{wayName(w)}
		for _, f := range d.faults() {
			row = append(row, cutCell(d.find(w.Name, f.Name)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// cutCell describes the fate of the lock of a holder that was cut off with less than a majority.
func cutCell(r *judge.Result) string {
	if r == nil || r.Case.Skipped != "" || r.Figures.Rounds == r.Figures.Broken {
		return ""
	}
	f := r.Figures
	var words []string
	if len(f.Told) > 0 && f.Two == 0 {
		words = append(words, fmt.Sprintf("told after %.1f s", judge.Median(f.Told).Seconds()))
	}
	if len(f.LetIn) > 0 {
		words = append(words, fmt.Sprintf("next after %.1f s", judge.Median(f.LetIn).Seconds()))
	} else {
		words = append(words, "next: nobody")
	}
	if f.Two > 0 {
		words = append(words, fmt.Sprintf("**two, %.1f s**", f.Longest.Seconds()))
	}
	if f.Anew > 0 {
		words = append(words, "**anew**")
	}
	return strings.Join(words, ", ")
}

// CutsMarkdown are the cuts as Markdown.
func (d *Document) CutsMarkdown() string { return wrap(d.about(), "") + "\n" + d.Cuts().Markdown() }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// mark is a number, in bold if it is not 0.
func mark(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("**%d**", n)
}

// Markdown is everything as tables.
func (d *Document) Markdown() string {
	var b strings.Builder
	b.WriteString(wrap(d.about(), ""))
	totals := d.Totals()
	b.WriteString("\n### All stories together\n\n" + totals.Markdown() + "\n" + list(explain(totals)))
	b.WriteString("\n### Story by story\n")
	for _, f := range d.faults() {
		fmt.Fprintf(&b, "\n%s\n%s", wrap(fmt.Sprintf("**%s.** %s", f.Name, f.Text), ""), d.ends(f))
	}
	b.WriteString("\n### What a lock costs\n\n" + d.Costs().Markdown())
	b.WriteString("\n### What was argued, and what came\n\n")
	b.WriteString(d.claims())
	return b.String()
}

// claims are the expectations with the outcomes, as a list.
func (d *Document) claims() string {
	var b strings.Builder
	for _, o := range d.outcomes() {
		b.WriteString(wrap("- "+claimText(o), "  "))
	}
	var unplayed []string
	for _, o := range judge.Outcomes(d.Results) {
		if o.Verdict() == judge.NotPlayed {
			unplayed = append(unplayed, o.ID)
		}
	}
	if len(unplayed) > 0 {
		b.WriteString(wrap("- "+judge.NotPlayed+": "+strings.Join(unplayed, ", "), "  "))
	}
	return b.String()
}

// outcomes are those of the expectations that were played.
func (d *Document) outcomes() []judge.Outcome {
	return slices.DeleteFunc(judge.Outcomes(d.Results), func(o judge.Outcome) bool { return o.Verdict() == judge.NotPlayed })
}

// about says when and how it was played.
func (d *Document) about() string {
	most := ""
	if slices.ContainsFunc(d.Results, func(r judge.Result) bool {
		return r.Case.Fault != play.None && r.Case.Skipped == "" && r.Figures.Rounds < d.Config.Rounds
	}) {
		most = "at most "
	}
	about := fmt.Sprintf("%s: `%s`, %s. Leases of %v, rounds of each story: %s%d, seed %d; it took %v.",
		d.Began.UTC().Format("2006-01-02 15:04 MST"), d.Again, d.Machine, d.Config.Lease, most, d.Config.Rounds, d.Config.Seed,
		d.Took.Round(time.Second))
	var late time.Duration
	for _, r := range d.Results {
		late = max(late, r.Figures.Late)
	}
	if late > d.Config.Lease/4 {
		about += fmt.Sprintf(" The machine was busy: the lab ran up to %.1f s late.", late.Seconds())
	}
	for _, missing := range d.Missing {
		about += fmt.Sprintf(" Not played: %s.", missing)
	}
	return about
}

// The ways in which a case can end, the worst first.
const (
	endTwo      = "**two holders**"
	endLeft     = "**left behind**"
	endTold     = "told before another was let in"
	endFree     = "free again after its death"
	endKept     = "kept"
	endNot      = "not possible"
	endUnplayed = "not played to its end"
)

// end is the end of a case, with remarks.
func end(r *judge.Result) (class, text string) {
	switch f := r.Figures; {
	case r.Case.Skipped != "":
		return endNot, ""
	case f.Rounds == f.Broken:
		return endUnplayed, ""
	case f.Two > 0:
		class, text = endTwo, "for "+seconds(f.Longest)
	case f.Left > 0:
		class, text = endLeft, fmt.Sprintf("in %d of %d", f.Left, f.Rounds-f.Broken)
	case f.Overtaken > 0:
		class, text = endTold, "by "+seconds(f.Margin)
	case len(f.Free) > 0:
		class, text = endFree, "in "+seconds(judge.Median(f.Free))
	default:
		class = endKept
	}
	if lost := r.Figures.LostUpdates[ledger.Open]; lost > 0 {
		text += fmt.Sprintf(", %d lost", lost)
	}
	return class, strings.TrimPrefix(text, ", ")
}

// ends are a story as a list of ends, with the ways that ended so.
func (d *Document) ends(f play.Fault) string {
	ways := make(map[string][]string)
	for _, w := range d.ways() {
		r := d.find(w.Name, f.Name)
		if r == nil {
			continue
		}
		class, text := end(r)
		if text != "" {
			text = " (" + text + ")"
		}
		ways[class] = append(ways[class], wayName(w)+text)
	}
	var b strings.Builder
	for _, class := range []string{endTwo, endLeft, endTold, endFree, endKept, endUnplayed, endNot} {
		if len(ways[class]) > 0 {
			b.WriteString(wrap(fmt.Sprintf("- %s: %s", class, strings.Join(ways[class], "; ")), "  "))
		}
	}
	return b.String()
}

// Totals is the table of all ways, over all stories.
func (d *Document) Totals() Table {
	t := Table{Head: []string{"lock", "system", "rounds", "two holders", "longest", "updates lost", "fence on writes",
		"full fence", "fence in a store", "asked", "versions", "not told", "left behind"}}
	for _, w := range d.ways() {
		var f judge.Figures
		lost := make(map[ledger.Rule]int)
		for _, r := range d.Results {
			if r.Way.Name != w.Name || r.Case.Fault == play.None {
				continue
			}
			f.Rounds += r.Figures.Rounds - r.Figures.Broken
			f.Two += r.Figures.Two
			f.Longest = max(f.Longest, r.Figures.Longest)
			f.Untold += r.Figures.Untold
			f.Left += r.Figures.Left
			f.AddPlaces(r.Figures)
			for rule, n := range r.Figures.LostUpdates {
				lost[rule] += n
			}
		}
		if f.Rounds == 0 {
			continue
		}
		writes, full, stored, asked := noToken, noToken, noToken, noToken
		if w.Fenced {
			stored = storedCell(f)
			writes, full, asked = mark(lost[ledger.WritesOnly]), mark(lost[ledger.Fenced]), mark(lost[ledger.Asked])
		}
		t.Rows = append(t.Rows, []string{wayName(w), w.System, fmt.Sprint(f.Rounds), mark(f.Two), seconds(f.Longest),
			mark(lost[ledger.Open]), writes, full, stored, asked, mark(lost[ledger.Versions]), mark(f.Untold), mark(f.Left)})
	}
	return t.played()
}

// storedCell are the updates that were lost behind the fence of a store; empty if there was none.
func storedCell(f judge.Figures) string {
	if len(f.Places) == 0 {
		return ""
	}
	return mark(f.AllPlaces().Lost)
}

func wayName(w lock.Way) string {
	if w.Broken {
		return w.Name + " (planted bug)"
	}
	return w.Name
}

// Story is the table of one story.
func (d *Document) Story(f play.Fault) Table {
	t := Table{Head: []string{"lock", "system", "what came"}}
	for _, w := range d.ways() {
		if r := d.find(w.Name, f.Name); r != nil {
			t.Rows = append(t.Rows, []string{wayName(w), w.System, Cell(r)})
		}
	}
	return t
}

// Costs is the table of the story without a fault.
func (d *Document) Costs() Table {
	t := Table{Head: []string{"lock", "system", "acquired", "lock p50", "lock p99", "unlock p50", "requests",
		"three in turn", "handover", "overtakes"}}
	for _, w := range d.ways() {
		r := d.find(w.Name, play.None)
		if r == nil || r.Figures.Cost == nil || w.Broken {
			continue
		}
		c := r.Figures.Cost
		requests := "not counted"
		if c.Requests >= 0 {
			requests = fmt.Sprintf("%.1f, in turn %.1f", c.Requests, c.InTurn)
		}
		millis := func(ms float64) string { return fmt.Sprintf("%.2f ms", ms) }
		t.Rows = append(t.Rows, []string{w.Name, w.System, fmt.Sprint(c.Acquisitions), millis(c.LockP50Ms),
			millis(c.LockP99Ms), millis(c.UnlockP50Ms), requests, fmt.Sprintf("%.0f/s", c.PerSecond), millis(c.HandoverMs),
			fmt.Sprintf("%.0f %%", 100*c.Overtakes)})
	}
	return t
}

// claimText is an expectation with the outcome.
func claimText(o judge.Outcome) string {
	return fmt.Sprintf("**%s**, %s: %s (%s)", o.Verdict(), o.Text(), o.Says, o.Source)
}
