package page

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/play"
	"lockkeeper/jepsen/report"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"bold": bold}).Parse(pageText))

// bold makes HTML of a text with parts in bold.
func bold(text string) template.HTML {
	parts := strings.Split(text, "**")
	for i := range parts {
		parts[i] = template.HTMLEscapeString(parts[i])
		if i%2 == 1 {
			parts[i] = "<b>" + parts[i] + "</b>"
		}
	}
	return template.HTML(strings.Join(parts, ""))
}

// A drawn is the picture of a case, with its story.
type drawn struct {
	Name  string
	Drawn template.HTML
	Story string
}

// A story is the page's part about a fault.
type story struct {
	Fault    play.Fault
	Table    Table
	Pictures []drawn
}

// shows says whether a case is worth a picture: something else came than that the lock was kept.
func shows(r judge.Result) bool {
	f := r.Figures
	return r.Case.Fault != play.None && len(r.Case.Rounds) > 0 && f.Broken < f.Rounds && f.Two+f.Overtaken+f.Left > 0
}

// stories are the faults with their tables and pictures.
func (d *Document) stories() (all []story) {
	for _, f := range d.faults() {
		s := story{Fault: f, Table: d.Story(f)}
		for _, w := range d.ways() {
			r := d.find(w.Name, f.Name)
			if r == nil || !shows(*r) {
				continue
			}
			worst := r.Case.Rounds[r.Figures.Worst]
			var text strings.Builder
			Story(&text, r.Case, worst)
			s.Pictures = append(s.Pictures, drawn{r.Case.Name(), template.HTML(strings.Replace(Picture(r.Case, worst), "<svg ",
				`<svg class="run" `, 1)), text.String()})
		}
		all = append(all, s)
	}
	return all
}

// WriteHTML writes the page.
func (d *Document) WriteHTML(w io.Writer) error {
	var claims []string
	for _, o := range d.outcomes() {
		claims = append(claims, claimText(o))
	}
	err := pageTemplate.Execute(w, map[string]any{
		"Style": report.Style(), "Ways": d.ways(), "Again": d.Again, "Missing": d.Missing, "Totals": d.Totals(),
		"Columns": explain(d.Totals(), d.Fences()), "Fences": d.Fences(),
		"Claims": claims, "Costs": d.Costs(), "Stories": d.stories(), "Legend": Legend,
		"Facts": []fact{{"began", d.Began.UTC().Format("2006-01-02 15:04 MST")}, {"took", d.Took.Round(time.Second).String()},
			{"lease", d.Config.Lease.String()}, {"rounds", fmt.Sprint(d.Config.Rounds)}, {"seed", fmt.Sprint(d.Config.Seed)},
			{"on", d.Machine}},
	})
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// WriteJSON writes all figures, and of each case that shows something the history of the round that
// shows most.
func (d *Document) WriteJSON(w io.Writer) error {
	type result struct {
		Way     string        `json:"way"`
		System  string        `json:"system"`
		Fault   string        `json:"fault"`
		Broken  bool          `json:"plantedBug,omitempty"`
		Lease   time.Duration `json:"leaseNs"`
		Skipped string        `json:"skipped,omitempty"`
		Figures judge.Figures `json:"figures"`
		History *play.Round   `json:"history,omitempty"`
		Failed  []string      `json:"couldNotBePlayed,omitempty"`
	}
	type outcome struct {
		ID      string   `json:"id"`
		Says    string   `json:"says"`
		Source  string   `json:"source"`
		Verdict string   `json:"verdict"`
		Held    []string `json:"held,omitempty"`
		Not     []string `json:"not,omitempty"`
	}
	all := struct {
		Began    time.Time `json:"began"`
		TookMs   int64     `json:"tookMs"`
		Again    string    `json:"again"`
		Machine  string    `json:"machine"`
		Seed     uint64    `json:"seed"`
		Missing  []string  `json:"missing,omitempty"`
		Results  []result  `json:"results"`
		Outcomes []outcome `json:"outcomes"`
	}{d.Began, d.Took.Milliseconds(), d.Again, d.Machine, d.Config.Seed, d.Missing, nil, nil}
	for _, r := range d.Results {
		one := result{r.Way.Name, r.Case.System, r.Case.Fault, r.Way.Broken, r.Case.Lease, r.Case.Skipped, r.Figures, nil, nil}
		if shows(r) {
			one.History = &r.Case.Rounds[r.Figures.Worst]
		}
		for _, round := range r.Case.Rounds {
			if round.Broken != "" {
				one.Failed = append(one.Failed, round.Broken)
			}
		}
		all.Results = append(all.Results, one)
	}
	for _, o := range judge.Outcomes(d.Results) {
		all.Outcomes = append(all.Outcomes, outcome{o.ID, o.Says, o.Source, o.Verdict(), o.Held, o.Not})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// Write leaves the page and the JSON in a directory.
func (d *Document) Write(dir string) error {
	return errors.Join(os.MkdirAll(dir, 0o755), writeFile(filepath.Join(dir, "index.html"), d.WriteHTML),
		writeFile(filepath.Join(dir, "report.json"), d.WriteJSON))
}

// Illustrate writes the pictures of some cases, WAY/FAULT, as SVG files, WAY-FAULT.svg, into a
// directory. Cases that show nothing have no picture.
func (d *Document) Illustrate(dir string, cases []string) error {
	errs := []error{os.MkdirAll(dir, 0o755)}
	for _, name := range cases {
		way, fault, _ := strings.Cut(name, "/")
		r := d.find(way, fault)
		if r == nil || len(r.Case.Rounds) == 0 {
			continue
		}
		errs = append(errs, os.WriteFile(filepath.Join(dir, way+"-"+fault+".svg"),
			[]byte(Picture(r.Case, r.Case.Rounds[r.Figures.Worst])), 0o644))
	}
	return errors.Join(errs...)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return errors.Join(write(f), f.Close())
}
