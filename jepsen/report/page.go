package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// Bounds of what a page shows, so that it stays one that a browser opens at once. What is left out
// is said, and stands in the files beside the page.
const (
	maxViolations   = 20  // of one checker
	maxViolationOps = 200 // of one violation
	maxActs         = 500 // rows in the table of the nemesis
	maxTextBytes    = 2000
	maxLatencies    = 6 // pictures of latency, the most frequent operations
)

//go:embed style.css
var styleText string

//go:embed page.html
var pageText string

//go:embed script.js
var scriptText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// WriteHTML writes the page of a run.
func WriteHTML(w io.Writer, r *Run) error {
	if err := pageTemplate.Execute(w, newPage(r)); err != nil {
		return fmt.Errorf("report: write HTML: %w", err)
	}
	return nil
}

// A page is what the template shows.
type page struct {
	Style      template.CSS
	Script     template.JS
	Title      string
	Valid      workload.Valid
	Word       string // the verdict for people
	Facts      []Setting
	Intro      []string
	Again      string
	Complaints []string
	Verdicts   []verdictView
	Ticks      []tick
	Kinds      []kindView
	Shades     []shade
	Hits       string // path: when promises were broken
	Rows       rowsView
	Throughput chart
	Latencies  []latencyChart
	Others     int // operations without a picture of their own
	Ops        []opView
	Acts       []actView
	MoreActs   int
	Settings   []Setting
	HistoryOps int
	Readout    readout
}

// verdictView is a checker's verdict.
type verdictView struct {
	workload.Verdict
	Picture    Picture
	Scale      scale // of the picture's lanes
	Figures    []Setting
	Violations []violationView
	More       int
}

type violationView struct {
	Number int
	Text   string
	Lines  []lineView
	More   int
}

// lineView is one entry of the history.
type lineView struct{ Time, Kind, Text string }

// opView is a row in the table of operations.
type opView struct {
	F              string
	OK, Fail, Info int
	P50, P99, Max  string
}

// actView is a row in the table of the nemesis.
type actView struct{ Time, Kind, On, Until, Lasted string }

// verdictWords say a verdict in words.
var verdictWords = map[workload.Valid]string{
	workload.Yes:     "Valid: every promise that was checked was kept.",
	workload.No:      "Not valid.",
	workload.Unknown: "Unknown: nothing is broken, but too little happened to tell.",
}

func newPage(r *Run) *page {
	length := r.length()
	s := scale{length}
	calls := findCalls(r.Ops, length)
	faults := r.faults()
	p := &page{
		Style: template.CSS(styleText), Script: template.JS(scriptText), Title: r.Title, Valid: r.Valid(), Again: r.Again, Settings: r.Settings,
		Word: verdictWords[r.Valid()], HistoryOps: len(r.Ops), Ticks: s.timeTicks(),
	}
	p.Facts, p.Intro = facts(r, length), r.Intro
	for _, c := range r.Complaints {
		p.Complaints = append(p.Complaints, clip(c))
	}
	var hits []span
	for i, v := range r.Verdicts {
		view := viewVerdict(v)
		if r.Pictures != nil {
			view.Picture, view.Scale = r.Pictures[i], scale{r.Pictures[i].Length}
		}
		p.Verdicts = append(p.Verdicts, view)
		for _, violation := range v.Violations {
			if n := len(violation.Ops); n > 0 {
				hits = append(hits, span{violation.Ops[0].Time, violation.Ops[n-1].Time})
			}
		}
	}
	p.Hits = s.spansPath(hits, 5)
	p.Kinds, p.Shades = drawFaults(s, faults)
	p.Rows = drawRows(s, lay(r.Ops, calls, length))
	figures := measure(calls, length)
	p.Throughput = drawThroughput(s, figures)
	for i, o := range figures.Ops {
		if i < maxLatencies && o.OK > 0 {
			p.Latencies = append(p.Latencies, drawLatency(s, figures.SliceMs, o))
		} else {
			p.Others++
		}
		p.Ops = append(p.Ops, opView{o.F, o.OK, o.Fail, o.Info, milliseconds(o.Latency.P50Ms), milliseconds(o.Latency.P99Ms), milliseconds(o.Latency.MaxMs)})
	}
	p.Readout = newReadout(length, figures, faults)
	for i, f := range faults {
		if i == maxActs {
			p.MoreActs = len(faults) - i
			break
		}
		p.Acts = append(p.Acts, viewAct(f))
	}
	return p
}

// facts are the line below the title.
func facts(r *Run, length time.Duration) []Setting {
	all := []Setting{
		{"target", r.Target},
		{"began", ""},
		{"took", length.Round(time.Millisecond).String()},
		{"history", ""},
		{"seed", ""},
	}
	if len(r.Ops) > 0 { // of a run without a history the seed says nothing either
		all[3].Value, all[4].Value = fmt.Sprint(len(r.Ops))+" entries", fmt.Sprint(r.Seed)
	}
	if !r.Began.IsZero() {
		all[1].Value = r.Began.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return slices.DeleteFunc(all, func(s Setting) bool { return s.Value == "" })
}

func viewVerdict(v workload.Verdict) verdictView {
	view := verdictView{Verdict: v}
	view.Text = clip(v.Text)
	for _, name := range slices.Sorted(maps.Keys(v.Figures)) {
		view.Figures = append(view.Figures, Setting{name, figure(v.Figures[name])})
	}
	for i, violation := range v.Violations {
		if i == maxViolations {
			view.More = len(v.Violations) - i
			break
		}
		shown := violationView{Number: i + 1, Text: clip(violation.Text)}
		for j, op := range violation.Ops {
			if j == maxViolationOps {
				shown.More = len(violation.Ops) - j
				break
			}
			shown.Lines = append(shown.Lines, viewOp(op))
		}
		view.Violations = append(view.Violations, shown)
	}
	return view
}

// viewOp is Op.String without its first two words, which have columns of their own.
func viewOp(op jepsen.Op) lineView {
	text := strings.TrimSpace(op.String())
	for range 2 {
		_, text, _ = strings.Cut(text, " ")
		text = strings.TrimLeft(text, " ")
	}
	return lineView{fmt.Sprintf("%.3f", op.Time.Seconds()), string(op.Kind), clip(text)}
}

func viewAct(f Fault) actView {
	view := actView{Time: fmt.Sprintf("%.3f s", f.From.Seconds()), Kind: f.Kind, On: clip(f.On)}
	switch {
	case f.Open:
		view.Until = "the end"
	case f.To > f.From:
		view.Until = fmt.Sprintf("%.3f s", f.To.Seconds())
	}
	if f.To > f.From {
		view.Lasted = fmt.Sprintf("%.3f s", (f.To - f.From).Seconds())
	}
	return view
}

// figure is a measure with as many digits as mean something.
func figure(f float64) string {
	if f == float64(int64(f)) {
		return fmt.Sprint(int64(f))
	}
	return fmt.Sprintf("%.4g", f)
}

// clip bounds a text of others.
func clip(s string) string { return clipTo(s, maxTextBytes) }

func clipTo(s string, sizeBytes int) string {
	if len(s) <= sizeBytes {
		return s
	}
	return strings.ToValidUTF8(s[:sizeBytes], "") + fmt.Sprintf(" … (%d bytes)", len(s))
}
