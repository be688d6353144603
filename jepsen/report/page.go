package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// Bounds of what a page shows, so that it stays one that a browser opens at once. page.html bounds
// its lists, too. The page names the omitted parts, and the files beside it have them.
const (
	maxTextBytes = 2000
	maxLatencies = 6    // pictures of latency, of the most frequent operations
	maxFaults    = 2000 // that the script knows
)

//go:embed style.css
var styleText string

// Style is the style sheet of the pages, for pages of other programs.
func Style() template.CSS { return template.CSS(styleText) }

//go:embed page.html
var pageText string

//go:embed script.js
var scriptText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"clip": clip, "figure": figure, "ms": milliseconds, "first": first, "beyond": beyond, "op": opText,
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) },
	"next":    func(i int) int { return i + 1 },
	"count":   count,
	"check":   func(checker string) string { return checks[checker] },
	"size":    size,
	"head":    func(s string) string { head, _, _ := strings.Cut(s, "\n"); return clip(head) },
	"tail":    func(s string) string { _, tail, _ := strings.Cut(s, "\n"); return tail },
}).Parse(pageText))

// first are the first n of a list, beyond the number of the others.
func first(n int, list any) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, min(n, v.Len())).Interface()
}

func beyond(n int, list any) int { return max(0, reflect.ValueOf(list).Len()-n) }

// WriteHTML writes the page of a run.
func WriteHTML(w io.Writer, r *Run) error {
	if err := pageTemplate.Execute(w, newPage(r)); err != nil {
		return fmt.Errorf("report: write HTML: %w", err)
	}
	return nil
}

// A page has the data of the template, beside the run itself.
type page struct {
	*Run
	Style      template.CSS
	Script     template.JS
	Word       string // the verdict for people
	Facts      []Setting
	Scale      scale
	Kinds      []kindView
	Shades     []shade
	Hits       string // path: when promises were broken
	Promises   []promiseView
	Rows       timeline
	Locks      lockTimeline
	Grants     int
	Losses     []lossView
	Throughput chart
	Latencies  []latencyChart
	Figures    Figures
	Acts       []Fault
}

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
	figures := measure(calls, length)
	holds := findHolds(r.Ops, length)
	losses := r.findLosses(holds)
	p := &page{
		Run: r, Style: template.CSS(styleText), Script: template.JS(scriptText), Word: verdictWords[r.Valid()],
		Facts: facts(r, length), Scale: s, Rows: lay(r.Ops, calls, holds, length),
		Promises: viewPromises(r.Verdicts), Locks: layLocks(holds, losses, length), Grants: len(holds),
		Throughput: drawThroughput(s, figures), Figures: figures, Acts: r.faults(),
	}
	p.Kinds, p.Shades = drawFaults(s, p.Acts)
	for i, l := range losses {
		p.Losses = append(p.Losses, r.viewLoss(i+1, l))
	}
	var hits []span
	for _, v := range r.Verdicts {
		for _, violation := range v.Violations {
			if n := len(violation.Ops); n > 0 {
				hits = append(hits, span{violation.Ops[0].Time, violation.Ops[n-1].Time})
			}
		}
	}
	p.Hits = s.spansPath(hits, 5)
	for _, o := range figures.Ops[:min(len(figures.Ops), maxLatencies)] {
		if o.OK > 0 {
			p.Latencies = append(p.Latencies, drawLatency(s, figures.SliceMs, o))
		}
	}
	return p
}

// Data is the data of the script.
func (p *page) Data() any {
	type data struct {
		LengthMs int64       `json:"lengthMs"`
		SliceMs  int64       `json:"sliceMs"`
		Ops      []OpFigures `json:"ops"`
		Faults   []Fault     `json:"faults"`
	}
	ops, acts := p.Figures.Ops[:min(len(p.Figures.Ops), maxLatencies)], p.Acts[:min(len(p.Acts), maxFaults)]
	return data{p.Scale.length.Milliseconds(), p.Figures.SliceMs, ops, acts}
}

// Picture is the picture of verdict number i.
func (p *page) Picture(i int) Picture {
	if i < len(p.Pictures) {
		return p.Pictures[i]
	}
	return Picture{}
}

// CheckedOn says how much a promise was checked on.
func (p *page) CheckedOn(verdicts []workload.Verdict) string { return checkedOn(verdicts) }

// HasHistory says whether the history is a file beside the page.
func (p *page) HasHistory() bool {
	return slices.ContainsFunc(p.Files, func(f File) bool { return f.Name == historyName })
}

// LogZero is when the history began, for who compares the page with the logs; empty if that is not
// known.
func (p *page) LogZero() string {
	if p.Began.IsZero() || p.Members == nil {
		return ""
	}
	return p.Began.UTC().Format("15:04:05.000 UTC")
}

// Closest says which of the losses had the smallest margin.
func (p *page) Closest() string {
	var closest *lossView
	told := 0
	for i := range p.Losses {
		switch l := &p.Losses[i]; {
		case l.Next == "":
		case l.Margin() < 0:
			told++
		case closest == nil || l.Margin() < closest.Margin():
			closest = l
		}
	}
	var text string
	if closest != nil {
		text = fmt.Sprintf("The smallest margin was %s, at %s.", at(closest.Margin()), at(closest.Lost))
	}
	if told > 0 {
		text += fmt.Sprintf(" %d were told after the next holder had the lock; each says why.", told)
	}
	return strings.TrimSpace(text)
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

// opText is Op.String without its first two words, which have columns of their own.
func opText(op jepsen.Op) string {
	text := strings.TrimSpace(op.String())
	for range 2 {
		_, text, _ = strings.Cut(text, " ")
		text = strings.TrimLeft(text, " ")
	}
	return clip(text)
}

// size is a number of bytes as people read it.
func size(bytes int64) string {
	switch {
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.0f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// figure is a measure with as many digits as mean something.
func figure(f float64) string {
	if f == float64(int64(f)) {
		return fmt.Sprint(int64(f))
	}
	return fmt.Sprintf("%.4g", f)
}

// clip bounds a text of others.
func clip(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxTextBytes], "") + fmt.Sprintf(" … (%d bytes)", len(s))
}
