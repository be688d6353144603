package splitbrain

import (
	_ "embed"
	"fmt"
	"html/template"
	"strings"
	"time"

	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
	"lockkeeper/quorum"
)

//go:embed case.html
var caseText string

var caseTemplate = template.Must(template.New("case").Parse(caseText))

// intro is what the page says of the rule.
var intro = []string{
	"A split brain is a cluster in two pieces that both go on: two leaders, one lock with " +
		"two holders. One rule prevents it. Of n voters, a set may act only if it has more than " +
		"half of them: set.size > n/2. Two such sets have a member in common, so there is only " +
		"ever one. It also means that a set which is not more than half must stop, though all " +
		"its members are well: it cannot tell whether the others are dead or just cut off. Dead " +
		"voters count in n. Observers do not count at all.",
	"Every case below was played by real processes, each with a network of its own: cut " +
		"apart or killed, looked at through real clients, and healed. Green members go on, grey " +
		"ones stop, crossed ones are dead, those with a broken edge are observers; a crown is " +
		"on who leads, an empty one on who led before.",
}

// Report is the document as jepsen/report shows it: a verdict with a picture for each case.
func (d *Document) Report() (*report.Run, error) {
	r := &report.Run{
		Title:  fmt.Sprintf("Split brain: %d of %d cases came as predicted", d.Right, d.Played),
		Target: d.Target, Began: d.Began, Took: time.Duration(d.TookMs) * time.Millisecond, Again: d.Again, Intro: intro,
		Settings: []report.Setting{
			{Name: "tickTime", Value: fmt.Sprintf("%d ms", d.TickMs)},
			{Name: "session timeout", Value: fmt.Sprintf("%d ms", d.SessionMs)},
		},
	}
	for n := 3; n <= 7; n++ {
		maj := quorum.NewMaj(n)
		r.Settings = append(r.Settings, report.Setting{
			Name:  plural(n, "voter"),
			Value: fmt.Sprintf("a majority is %d, %d may fail", maj.Size(), maj.Tolerates()),
		})
	}
	if d.Windows() > 0 {
		r.Intro = append(r.Intro[:len(r.Intro):len(r.Intro)], fmt.Sprintf("In %d of the cases a client that was cut off still "+
			"held its lock, and was told that it is connected, when somebody else had been given it: for up to %s. That does "+
			"not depend on majorities: a member that loses its leader has to tell its clients in time.", d.Windows(), seconds(d.Window())))
	}
	for _, c := range d.Cases {
		v := workload.Verdict{
			Checker: c.Case.Cluster.String() + " voters: " + c.Name, Valid: workload.Yes,
			Text: strings.Join(append(c.Sentences, c.Notes...), " "),
		}
		if !c.OK {
			v.Valid = workload.No
		}
		for _, check := range c.Checks {
			if !check.OK {
				v.Violations = append(v.Violations, workload.Violation{Text: check.What + ": " + check.Got})
			}
		}
		r.Verdicts = append(r.Verdicts, v)
		var drawn strings.Builder
		err := caseTemplate.Execute(&drawn, struct {
			Picture picture
			Lanes   []lane
			Axis    []mark
		}{c.draw(), c.lanes(), c.axis()})
		if err != nil {
			return nil, fmt.Errorf("splitbrain: draw %s: %w", c.Name, err)
		}
		r.Pictures = append(r.Pictures, template.HTML(drawn.String()))
	}
	return r, nil
}
