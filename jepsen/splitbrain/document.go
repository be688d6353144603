package splitbrain

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
	"lockkeeper/quorum"
)

// A Document has the results of Play, for a page, for JSON and for a table.
type Document struct {
	Config  Config
	Began   time.Time
	Took    time.Duration
	Results []*Result
}

// right is the number of cases that came as predicted.
func (d *Document) right() (n int) {
	for _, r := range d.Results {
		if r.OK() {
			n++
		}
	}
	return n
}

// OK says whether every case came as predicted.
func (d *Document) OK() bool { return len(d.Results) > 0 && d.right() == len(d.Results) }

// windows is the number of cases in which two clients held one lock, both told that they are
// connected, and the longest time for which they did.
func (d *Document) windows() (n int, longest time.Duration) {
	for _, r := range d.Results {
		if r.Window > 0 {
			n, longest = n+1, max(longest, r.Window)
		}
	}
	return n, longest
}

// Summary has the number of cases that came as predicted.
func (d *Document) Summary() string {
	text := fmt.Sprintf("%d of %d cases came as predicted, in %v.", d.right(), len(d.Results),
		d.Took.Round(time.Second))
	if n, longest := d.windows(); n > 0 {
		text += fmt.Sprintf(" In %d of them two clients held one lock, both told that they are connected, "+
			"for up to %s.", n, seconds(longest))
	}
	return text
}

//go:embed case.html
var caseText string

var caseTemplate = template.Must(template.New("case").Parse(caseText))

// intro is the page's text about the rule.
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
	cfg := d.Config.WithDefaults()
	r := &report.Run{
		Title:  fmt.Sprintf("Split brain: %d of %d cases came as predicted", d.right(), len(d.Results)),
		Target: cfg.Target.Name, Began: d.Began, Took: d.Took, Again: cfg.Again, Intro: intro, Cases: d.Results,
		Settings: []report.Setting{{Name: "tickTime", Value: cfg.Tick.String()},
			{Name: "session timeout", Value: cfg.Session.String()}},
	}
	for n := 3; n <= 7; n++ {
		maj := quorum.NewMaj(n)
		r.Settings = append(r.Settings, report.Setting{
			Name:  plural(n, "voter"),
			Value: fmt.Sprintf("a majority is %d, %d may fail", maj.Size(), maj.Tolerates()),
		})
	}
	if n, longest := d.windows(); n > 0 {
		r.Intro = append(r.Intro[:len(r.Intro):len(r.Intro)],
			fmt.Sprintf("In %d of the cases a client that was cut off still held its lock, and was told that it is "+
				"connected, when somebody else had been given it: for up to %s. That does not depend on majorities: "+
				"a member that loses its leader has to tell its clients in time.", n, seconds(longest)))
	}
	for _, c := range d.Results {
		v := workload.Verdict{
			Checker: c.Case.Cluster.String() + " voters: " + c.Name, Valid: workload.Yes,
			Text: strings.Join(append(c.Sentences(), c.Notes...), " "),
		}
		for _, check := range c.Checks {
			if !check.OK {
				v.Valid = workload.No
				v.Violations = append(v.Violations, workload.Violation{Text: check.What + ": " + check.Got})
			}
		}
		r.Verdicts = append(r.Verdicts, v)
		var drawn strings.Builder
		if err := caseTemplate.Execute(&drawn, c); err != nil {
			return nil, fmt.Errorf("splitbrain: draw %s: %w", c.Name, err)
		}
		r.Pictures = append(r.Pictures, report.Picture{Drawn: template.HTML(drawn.String()), Lanes: c.lanes(),
			Length: c.Watched})
	}
	return r, nil
}

// Table is the document as a table in Markdown, under a line that says how it was measured.
func (d *Document) Table() string {
	cfg := d.Config.WithDefaults()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: `%s`, on %d cores (%s afterwards); tickTime %d ms, sessions of %d ms. "+
		"%d of %d cases came as predicted, in %v.\n\n",
		d.Began.UTC().Format("2006-01-02 15:04 MST"), cfg.Again, runtime.NumCPU(), loadText(), cfg.Tick.Milliseconds(),
		cfg.Session.Milliseconds(), d.right(), len(d.Results), d.Took.Round(time.Second))
	b.WriteString("| voters | case | predicted | " + cfg.Target.Name + " |\n|---|---|---|---|\n")
	for _, r := range d.Results {
		cells := []string{r.Case.Cluster.String(), r.Name, r.predictedText(), r.happenedText()}
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// storyPlace is the place for StoryCase in a page.
func storyPlace(voters int) string { return fmt.Sprintf("split-brain story %d", voters) }

// WritePage puts the table into its place in a page. The cuts of StoryCase that were played with
// lockkeeper are drawn in the directory with the page's name, and told in the page where it has a
// place for them.
func (d *Document) WritePage(page string) error {
	err := report.ReplaceTable(page, "split-brain "+d.Config.Target.Name, d.Table())
	if err != nil || !d.Config.Promises {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("splitbrain: %w", err)
	}
	for _, r := range d.Results {
		place := storyPlace(r.Case.Cluster.Voters)
		if r.Name != StoryCase(r.Case.Cluster.Voters).String() || !strings.Contains(string(text), place) {
			continue
		}
		file := filepath.Join(strings.TrimSuffix(page, ".md"), fmt.Sprintf("%d.svg", r.Case.Cluster.Voters))
		err = errors.Join(err, writePicture(file, StoryPicture(r)), report.ReplaceTable(page, place, r.story(page, file)))
	}
	return err
}

// story tells a case in Markdown, with its picture.
func (r *Result) story(page, picture string) string {
	text := pictureLine(r.storyTitle(), page, picture)
	for _, sentence := range r.Sentences() {
		text += "- " + sentence + "\n"
	}
	return text
}

// pictureLine is a picture in a page, followed by an empty line.
func pictureLine(text, page, picture string) string {
	to, err := filepath.Rel(filepath.Dir(page), picture)
	if err != nil {
		to = picture
	}
	return fmt.Sprintf("![%s](%s)\n\n", text, filepath.ToSlash(to))
}

// writePicture writes a file and makes its directory.
func writePicture(file, picture string) error {
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(picture), 0o644)
	}
	if err != nil {
		return fmt.Errorf("splitbrain: %w", err)
	}
	return nil
}

// WriteBeside draws CutOff as played with some systems. If page is not empty, the picture is put
// into its place there, with the command that drew it.
func WriteBeside(systems []System, cfg Config, picture, page string) error {
	drawn, text := Beside(systems, fmt.Sprintf("three members, tickTime %v, syncLimit 5, sessions of %v, seconds after "+
		"the cut", cfg.Tick, cfg.Session))
	err := writePicture(picture, drawn)
	if err != nil || page == "" {
		return err
	}
	return report.ReplaceTable(page, "cut-off", pictureLine(text, page, picture)+
		fmt.Sprintf("(%s: `%s`)\n", time.Now().UTC().Format(time.DateOnly), cfg.Again))
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
