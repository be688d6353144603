package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// chart is a picture: panels side by side with the same axes, a linear one to the right from 0 and
// a logarithmic one upwards.
type chart struct {
	Title, Subtitle string
	X, Y            string // the axes, with their units
	Panels          []panel
}

// panel is one plot.
type panel struct {
	Title  string
	Curves []curve
}

// curve is a series of points, by X. Curves with one name look alike in all panels.
type curve struct {
	Name   string
	Points []point
}

// point is a value above 0 at X.
type point struct{ X, Y float64 }

// Sizes in pixels.
const (
	plotWidth, plotHeight = 264, 260
	plotLeft, plotTop     = 64, 104 // of the first plot
	plotGap               = 44
	legendTop             = 62
	letterWidth           = 7 // about, of the legend
)

// looks are the markers of the curves, drawn around 0,0. The style sheet has the colour of each in
// the class with its number, as k0.
var looks = []string{
	"M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
	"M-3.5,-3.5h7v7h-7z",
	"M0,-4.5L4.5,3.5H-4.5z",
	"M0,-5L5,0L0,5L-5,0z",
	"M-4,-4L4,4M-4,4L4,-4",
}

// drawn is a chart with all its coordinates.
type drawn struct {
	*chart
	Width, Height  int
	PlotWidth      int
	Left           int // of the first plot
	Top, Bottom    int // of all plots
	MiddleX        int
	MiddleY        int
	XTicks, YTicks []tick
	Plots          []plot
	Legend         []mark
}

// tick is a grid line.
type tick struct {
	At    float64
	Label string
}

type plot struct {
	Left, Middle int
	Title        string
	Series       []series
}

type series struct {
	Look  int
	Path  string
	Marks []mark
}

// mark is a marker or an entry of the legend.
type mark struct {
	Look  int
	Path  string
	X, Y  float64
	Label string
}

var svg = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" ` +
	`viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" role="img" aria-labelledby="t">
<title id="t">{{html .Title}}</title>
<style>
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--grid:#d8dee4;font:12px system-ui,sans-serif}
.k0{--k:#0969da}.k1{--k:#bc4c00}.k2{--k:#1a7f37}.k3{--k:#8250df}.k4{--k:#59636e}
@media (prefers-color-scheme:dark){
svg{--paper:#0d1117;--ink:#e6edf3;--soft:#9198a1;--grid:#30363d}
.k0{--k:#58a6ff}.k1{--k:#f0883e}.k2{--k:#3fb950}.k3{--k:#bc8cff}.k4{--k:#9198a1}}
.paper{fill:var(--paper)}text{fill:var(--ink)}.soft{fill:var(--soft)}.grid{stroke:var(--grid)}
.title{font-size:15px;font-weight:600}.head{font-weight:600}
.line{fill:none;stroke:var(--k);stroke-width:2}.mark{fill:var(--k);stroke:var(--k);stroke-width:1.5}
</style>
<rect class="paper" width="{{.Width}}" height="{{.Height}}"/>
<text class="title" x="16" y="26">{{html .Title}}</text>
<text class="soft" x="16" y="45">{{html .Subtitle}}</text>
{{range .Legend}}<path class="mark k{{.Look}}" transform="translate({{.X}},{{.Y}})" d="{{.Path}}"/>` +
	`<text x="{{.X}}" dx="10" y="{{.Y}}" dy="4">{{html .Label}}</text>
{{end}}<text class="soft" transform="translate(16,{{.MiddleY}}) rotate(-90)" text-anchor="middle">{{html .Y}}</text>
<text class="soft" x="{{.MiddleX}}" y="{{.Height}}" dy="-10" text-anchor="middle">{{html .X}}</text>
{{range .YTicks}}<text class="soft" x="{{$.Left}}" dx="-6" y="{{.At}}" dy="4" ` +
	`text-anchor="end">{{.Label}}</text>
{{end}}{{range .Plots}}<g transform="translate({{.Left}},0)">
<text class="head" x="{{.Middle}}" y="{{$.Top}}" dy="-8" text-anchor="middle">{{html .Title}}</text>
{{range $.YTicks}}<path class="grid" d="M0,{{.At}}H{{$.PlotWidth}}"/>
{{end}}{{range $.XTicks}}<path class="grid" d="M{{.At}},{{$.Top}}V{{$.Bottom}}"/>` +
	`<text class="soft" x="{{.At}}" y="{{$.Bottom}}" dy="17" text-anchor="middle">{{.Label}}</text>
{{end}}{{range .Series}}<path class="line k{{.Look}}" d="{{.Path}}"/>
{{range .Marks}}<path class="mark k{{.Look}}" transform="translate({{.X}},{{.Y}})" d="{{.Path}}">` +
	`<title>{{html .Label}}</title></path>
{{end}}{{end}}</g>
{{end}}</svg>
`))

// write writes the picture as SVG. It follows the reader's choice of a light or dark page.
func (c *chart) write(w io.Writer) error {
	bottom := plotTop + plotHeight
	right := plotLeft + len(c.Panels)*(plotWidth+plotGap) - plotGap
	d := &drawn{chart: c, Width: right + plotGap, Height: bottom + 54, PlotWidth: plotWidth, Left: plotLeft, Top: plotTop,
		Bottom: bottom, MiddleX: (plotLeft + right) / 2, MiddleY: plotTop + plotHeight/2}
	most, low, high := c.extent()
	names, x, y := c.names(), linear(most), logarithmic(low, high)
	d.XTicks, d.YTicks = x.ticks, y.ticks
	legend := float64(plotLeft)
	for i, name := range names {
		d.Legend = append(d.Legend, mark{Look: i % len(looks), Path: looks[i%len(looks)], X: legend, Y: legendTop + 8,
			Label: name})
		legend += float64(40 + letterWidth*len(name))
	}
	for i, p := range c.Panels {
		one := plot{Left: plotLeft + i*(plotWidth+plotGap), Middle: plotWidth / 2, Title: p.Title}
		for _, l := range p.Curves {
			one.Series = append(one.Series, l.draw(slices.Index(names, l.Name)%len(looks), x, y))
		}
		d.Plots = append(d.Plots, one)
	}
	return svg.Execute(w, d)
}

// names are the names of all curves.
func (c *chart) names() (names []string) {
	for _, p := range c.Panels {
		for _, l := range p.Curves {
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}

// extent is the largest X, and the least and the largest Y, of all points.
func (c *chart) extent() (x, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range c.Panels {
		for _, l := range p.Curves {
			for _, at := range l.Points {
				x, low, high = max(x, at.X), min(low, at.Y), max(high, at.Y)
			}
		}
	}
	return x, low, high
}

// draw places a curve in a plot.
func (l curve) draw(look int, x, y scale) series {
	s := series{Look: look}
	var path strings.Builder
	for i, p := range l.Points {
		to := mark{Look: look, Path: looks[look], X: x.place(p.X), Y: y.place(p.Y),
			Label: fmt.Sprintf("%s: %s at %s", l.Name, number(p.Y), number(p.X))}
		s.Marks = append(s.Marks, to)
		fmt.Fprintf(&path, "%c%.1f,%.1f", "ML"[min(i, 1)], to.X, to.Y)
	}
	s.Path = path.String()
	return s
}

// scale places values on an axis, in pixels.
type scale struct {
	place func(float64) float64
	ticks []tick
}

// linear is a scale from 0 to a round number, at least most.
func linear(most float64) scale {
	most = max(most, 1)
	step := rounded(most/5, false)
	end := math.Ceil(most/step) * step
	s := scale{place: func(v float64) float64 { return tenths(plotWidth * v / end) }}
	for i := range int(math.Round(end/step)) + 1 {
		v := float64(i) * step
		s.ticks = append(s.ticks, tick{s.place(v), number(v)})
	}
	return s
}

// logarithmic is a scale from a round number, at most low, to another, at least high.
func logarithmic(low, high float64) scale {
	if low > high { // there is no value
		low, high = 1, 1
	}
	from, to := rounded(low, true), rounded(high, false)
	if from == to {
		to = rounded(1.5*from, false)
	}
	s := scale{place: func(v float64) float64 {
		return tenths(plotTop + plotHeight*(1-math.Log(v/from)/math.Log(to/from)))
	}}
	for v := from; v <= to*1.01; v = rounded(1.5*v, false) {
		s.ticks = append(s.ticks, tick{s.place(v), fmt.Sprintf("%g", v)})
	}
	return s
}

// rounded is 1, 2 or 5 times a power of ten: the next one to v, down or up.
func rounded(v float64, down bool) float64 {
	exponent := int(math.Floor(math.Log10(v)))
	var last float64
	for e := exponent - 1; ; e++ {
		for _, digit := range []string{"1", "2", "5"} {
			// Parsed, not multiplied: 0.2 has to be 0.2.
			next, _ := strconv.ParseFloat(fmt.Sprintf("%se%d", digit, e), 64)
			switch {
			case next >= v && !down || next == v:
				return next
			case next > v:
				return last
			}
			last = next
		}
	}
}

func tenths(v float64) float64 { return math.Round(v*10) / 10 }
