package page

import (
	"fmt"
	"slices"

	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/play"
	"lockkeeper/jepsen/locklab/store"
)

// Fences is the table of the fences in real stores, over all stories: without a fence, and with
// those of the stores. It has no rows if there were none.
func (d *Document) Fences() Table {
	t := Table{Head: []string{"lock", "stories", "rounds", "two holders", "lost without a fence", "lost with one", "refused",
		"in doubt"}}
	kinds := slices.DeleteFunc(slices.Clone(store.Kinds), func(kind string) bool {
		return !slices.ContainsFunc(d.Results, func(r judge.Result) bool { return r.Figures.Places[kind].Rounds > 0 })
	})
	t.Head = append(t.Head, kinds...)
	for _, w := range d.ways() {
		var f judge.Figures
		stories := 0
		for _, r := range d.Results {
			if r.Way.Name == w.Name && len(r.Figures.Places) > 0 {
				stories++
				f.Merge(r.Figures)
			}
		}
		if stories == 0 {
			continue
		}
		all := f.AllPlaces()
		row := []string{wayName(w), fmt.Sprint(stories), fmt.Sprint(f.Rounds - f.Broken), fmt.Sprint(f.Two),
			mark(f.LostUpdates[ledger.Open]), mark(all.Lost), fmt.Sprint(all.Refused), fmt.Sprint(all.Doubt)}
		for _, kind := range kinds {
			row = append(row, fmt.Sprintf("%s of %d", mark(f.Places[kind].Lost), f.Places[kind].Rounds))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// FencesByStory is the same, with a row for each story and a column for each lock.
func (d *Document) FencesByStory() Table {
	t := Table{Head: []string{"story"}}
	rows := make([][]string, len(d.faults()))
	for i, f := range d.faults() {
		rows[i] = []string{f.Name}
	}
	for _, w := range d.ways() {
		t.Head = append(t.Head, wayName(w))
		for i, f := range d.faults() {
			cell := ""
			if r := d.find(w.Name, f.Name); r != nil && len(r.Figures.Places) > 0 {
				cell = fmt.Sprintf("%s, %s of %d", mark(r.Figures.LostUpdates[ledger.Open]), mark(r.Figures.AllPlaces().Lost),
					r.Figures.Rounds-r.Figures.Broken)
			}
			rows[i] = append(rows[i], cell)
		}
	}
	t.Rows = rows
	return t.played()
}

// FencesMarkdown are the fences as Markdown.
func (d *Document) FencesMarkdown() string {
	t := d.Fences()
	return wrap(d.about(), "") + "\n" + t.Markdown() + "\n" + list(explain(t)) +
		"\nUpdates lost without a fence, and with one, of the rounds of each story:\n\n" + d.FencesByStory().Markdown()
}

// Brief is the table of the short form. A lock and its twin with a fence share a row.
func (d *Document) Brief() Table {
	t := Table{Head: []string{"lock", "rounds", "two holders", "lost without a fence", "lost with a fence", "free after",
		"left behind"}}
	for _, w := range d.ways() {
		if w.Twin != "" && slices.ContainsFunc(d.ways(), func(o lock.Way) bool { return o.Name == w.Twin }) {
			continue // its row is the other one's
		}
		all := d.together(w.Name)
		if all.Rounds == all.Broken {
			continue
		}
		fenced := all
		for _, twin := range d.ways() {
			if twin.Twin == w.Name {
				fenced = d.together(twin.Name)
			}
		}
		free := ""
		if len(all.Free) > 0 {
			free = seconds(judge.Median(all.Free))
		}
		t.Rows = append(t.Rows, []string{wayName(w), fmt.Sprint(all.Rounds - all.Broken), mark(all.Two),
			mark(all.LostUpdates[ledger.Open]), fencedCell(fenced), free, mark(all.Left)})
	}
	return t.played()
}

// together are the figures of a way over all stories with a fault.
func (d *Document) together(way string) (f judge.Figures) {
	for _, r := range d.Results {
		if r.Way.Name == way && r.Case.Fault != play.None {
			f.Merge(r.Figures)
		}
	}
	return f
}

// noFence is the cell of a way without tokens, or that uses none.
const noFence = "no fence"

// fencedCell are the updates that were lost with a fence: of a store, or of the system that locks.
func fencedCell(f judge.Figures) string {
	switch {
	case len(f.Places) > 0:
		return storedCell(f)
	case f.RefusedInside > 0:
		return mark(f.LostUpdates[ledger.Inside])
	}
	return noFence
}

// BriefMarkdown is the short form as Markdown.
func (d *Document) BriefMarkdown() string {
	t := d.Brief()
	return wrap(d.about(), "") + "\n" + t.Markdown() + "\n" + list(explain(t))
}
