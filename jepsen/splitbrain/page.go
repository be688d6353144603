package splitbrain

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"lockkeeper/jepsen/report"
	"lockkeeper/quorum"
)

//go:embed page.html
var pageText string

//go:embed style.css
var style string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// WriteHTML writes the document as one page that needs nothing beside itself.
func (d *Document) WriteHTML(w io.Writer) error {
	if err := pageTemplate.Execute(w, d.page()); err != nil {
		return fmt.Errorf("splitbrain: write HTML: %w", err)
	}
	return nil
}

// page is what the template shows.
type page struct {
	Style    template.CSS
	Document *Document
	Class    string
	Word     string
	Window   string // the longest time with two holders of one lock
	Facts    []report.Setting
	Rule     []ruleView
	Clusters []clusterView
}

// ruleView is a row of the table of the rule.
type ruleView struct{ Voters, Size, Tolerates int }

// clusterView are the cases of one shape of cluster.
type clusterView struct {
	Title, Text string
	Cases       []caseView
}

type caseView struct {
	Name, Class, Badge string
	Picture            picture
	Lanes              []lane
	Axis               []mark
	Sentences          []string
	Wrong              []Check
	Notes              []string
}

func (d *Document) page() page {
	p := page{
		Style: template.CSS(report.Style + style), Document: d, Class: "true", Window: seconds(d.Window()),
		Word: fmt.Sprintf("✓ All %d cases came as predicted.", d.Played),
		Facts: []report.Setting{
			{Name: "target", Value: d.Target},
			{Name: "began", Value: d.Began.UTC().Format("2006-01-02 15:04:05 UTC")},
			{Name: "took", Value: (time.Duration(d.TookMs) * time.Millisecond).Round(time.Second).String()},
			{Name: "tickTime", Value: fmt.Sprintf("%d ms", d.TickMs)},
			{Name: "session timeout", Value: fmt.Sprintf("%d ms", d.SessionMs)},
		},
	}
	if !d.OK() {
		p.Class, p.Word = "false", fmt.Sprintf("✗ %d of %d cases did not come as predicted.", d.Played-d.Right, d.Played)
	}
	for n := 3; n <= 7; n++ {
		maj := quorum.NewMaj(n)
		p.Rule = append(p.Rule, ruleView{n, maj.Size(), maj.Tolerates()})
	}
	var last Group
	for _, c := range d.Cases {
		if c.Case.Cluster != last {
			last = c.Case.Cluster
			p.Clusters = append(p.Clusters, viewCluster(last))
		}
		into := &p.Clusters[len(p.Clusters)-1]
		into.Cases = append(into.Cases, viewCase(c))
	}
	return p
}

func viewCluster(g Group) clusterView {
	maj := quorum.NewMaj(g.Voters)
	v := clusterView{
		Title: plural(g.Voters, "voter"),
		Text: fmt.Sprintf("A side may go on if set.size > %d/2: with %d or more. So %s may fail, and never do two sides go on: %d + %d are more than %d.",
			g.Voters, maj.Size(), plural(maj.Tolerates(), "voter"), maj.Size(), maj.Size(), g.Voters),
	}
	if g.Observers > 0 {
		v.Title += " and " + plural(g.Observers, "observer")
		v.Text += " Observers have the data and serve clients, and count neither in the set nor in n."
	}
	return v
}

func viewCase(c CaseSummary) caseView {
	v := caseView{
		Name: c.Name, Class: "true", Badge: "✓ as predicted", Picture: c.draw(), Lanes: c.lanes(), Axis: c.axis(),
		Sentences: c.Sentences, Notes: c.Notes,
	}
	if !c.OK {
		v.Class, v.Badge = "false", "✗ not as predicted"
	}
	for _, check := range c.Checks {
		if !check.OK {
			v.Wrong = append(v.Wrong, check)
		}
	}
	return v
}
