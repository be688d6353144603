package report

import (
	"cmp"
	"slices"
	"time"

	"lockkeeper/jepsen"
)

// A shade is a time in which something was broken, as a path over the whole height of a picture.
type shade struct {
	Class  string
	Areas  string
	Points string
}

// A kindView is one kind of fault, in a lane of its own above the pictures.
type kindView struct {
	Kind   string
	Class  string
	Lasts  string // path
	Points string // path
	Count  int
}

// kindClasses is the number of colours that the style sheet has for faults.
const kindClasses = 6

// drawFaults makes a lane and a shade for each kind of fault.
func drawFaults(s scale, faults []Fault) ([]kindView, []shade) {
	byKind := make(map[string][]Fault)
	var kinds []string
	for _, f := range faults {
		if byKind[f.Kind] == nil {
			kinds = append(kinds, f.Kind)
		}
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	var lanes []kindView
	var shades []shade
	var broken []span
	for i, kind := range kinds {
		class := "k" + num(float64(i%kindClasses))
		var lasting, points []span
		for _, f := range byKind[kind] {
			if f.To > f.From {
				lasting = append(lasting, span{f.From, f.To})
			} else {
				points = append(points, span{f.From, f.From})
			}
		}
		sortSpans(lasting)
		lanes = append(lanes, kindView{kind, class, s.spansPath(lasting, 5), s.spansPath(points, 5), len(byKind[kind])})
		shades = append(shades, shade{class, s.areas(lasting), s.uprights(points)})
		broken = append(broken, lasting...)
	}
	if len(kinds) > mostShades {
		sortSpans(broken)
		shades = []shade{{Class: "broken", Areas: s.areas(broken)}}
	}
	return lanes, shades
}

// mostShades bounds the colours that lie upon each other. With more kinds of faults there is one
// colour for all of them: the lanes say which it was.
const mostShades = 3

// sortSpans sorts by the beginnings.
func sortSpans(spans []span) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
}

// areas draws spans over the whole height.
func (s scale) areas(spans []span) string {
	var p path
	for _, sp := range s.join(spans) {
		x := s.x(sp.from)
		p.rect(x, 0, max(s.x(sp.to)-x, 0.5), 100)
	}
	return p.String()
}

// uprights draws moments as lines over the whole height.
func (s scale) uprights(spans []span) string {
	var p path
	for _, sp := range s.join(spans) {
		p.WriteString("M" + num(s.x(sp.from)) + " 0v100")
	}
	return p.String()
}

// rowHeight is the height of a row of the timeline, in pixels; the style sheet has it too.
const rowHeight = 16

// draw fills in the paths of row number i.
func (r *row) draw(s scale, i int) {
	r.Y = i * rowHeight
	y := float64(r.Y)
	r.Wait, r.OK = s.spansPath(r.waited, y+6), s.spansPath(r.ended[jepsen.OK], y+6)
	r.Fail, r.Info = s.spansPath(r.ended[jepsen.Fail], y+6), s.spansPath(r.ended[jepsen.Info], y+6)
	r.Held, r.Apart = s.spansPath(r.held, y+13), s.spansPath(r.apart, y+8)
}

// A chart has an axis upwards and some paths.
type chart struct {
	Ticks          []tick
	OK, Fail, Info string
}

// drawThroughput draws the number of operations that ended in each second, by outcome, one upon the
// other.
func drawThroughput(s scale, figures Figures) chart {
	length := time.Duration(figures.SliceMs) * time.Millisecond
	var sums []Slice
	for _, o := range figures.Ops {
		sums = append(sums, make([]Slice, len(o.Slices)-len(sums))...)
		for i, slice := range o.Slices {
			sums[i].OK, sums[i].Fail, sums[i].Info = sums[i].OK+slice.OK, sums[i].Fail+slice.Fail,
				sums[i].Info+slice.Info
		}
	}
	highest := 0.0
	// The rest of the last slice counts as a fifth at least: a rate over a moment means nothing.
	perSecond := func(i, n int) float64 { return float64(n) / max(s.sliceAt(i, length), length/5).Seconds() }
	for i, sum := range sums {
		highest = max(highest, perSecond(i, sum.OK+sum.Fail+sum.Info))
	}
	top := roundUp(highest)
	var ok, fail, info path
	for i, sum := range sums {
		x := s.x(time.Duration(i) * length)
		width := s.x(s.sliceAt(i, length)) * 0.92
		y := 100.0
		for _, part := range []struct {
			path  *path
			count int
		}{{&ok, sum.OK}, {&fail, sum.Fail}, {&info, sum.Info}} {
			if part.count > 0 {
				height := perSecond(i, part.count) / top * 100
				y -= height
				part.path.rect(x, y, width, height)
			}
		}
	}
	return chart{
		Ticks: []tick{{"0%", thousands(top)}, {"50%", thousands(top / 2)}, {"100%", "0"}},
		OK:    ok.String(), Fail: fail.String(), Info: info.String(),
	}
}

// sliceAt is how much of slice i lies within the run.
func (s scale) sliceAt(i int, length time.Duration) time.Duration {
	return min(length, s.length-time.Duration(i)*length)
}

// thousands is a rate as people read it.
func thousands(f float64) string {
	if f >= 1000 {
		return num(f/1000) + "k"
	}
	return num(f)
}

// A latencyChart is how long the operations of one name took.
type latencyChart struct {
	F              string
	Ticks          []tick
	Band, P50, P99 string
	Max            string
}

func drawLatency(s scale, sliceMs int64, o OpFigures) latencyChart {
	length := time.Duration(sliceMs) * time.Millisecond
	const least = 0.01 // ms; shorter operations are drawn there
	lowest, highest := o.Latency.MaxMs, o.Latency.MaxMs
	for _, slice := range o.Slices {
		if slice.OK > 0 {
			lowest = min(lowest, slice.Latency.P50Ms)
		}
	}
	axis := decadesFor(max(lowest, least), max(highest, least))
	c := latencyChart{F: o.F, Ticks: axis.ticks()}
	var p50, p99, peaks, band path
	for i := 0; i < len(o.Slices); i++ {
		first := i
		for i < len(o.Slices) && o.Slices[i].OK > 0 {
			i++
		}
		part := o.Slices[first:i]
		if len(part) == 0 {
			continue
		}
		var xs, low, high []float64
		for j, slice := range part {
			xs = append(xs, s.x(time.Duration(first+j)*length+s.sliceAt(first+j, length)/2))
			low = append(low, axis.y(max(slice.Latency.P50Ms, least)))
			high = append(high, axis.y(max(slice.Latency.P99Ms, least)))
			peaks.hline(xs[j]-1.5, axis.y(max(slice.Latency.MaxMs, least)), 3)
		}
		p50.line(xs, low)
		p99.line(xs, high)
		band.between(xs, high, low)
	}
	c.P50, c.P99, c.Max, c.Band = p50.String(), p99.String(), peaks.String(), band.String()
	return c
}

// line adds a line through points; one point becomes a dot.
func (p *path) line(xs, ys []float64) {
	for i, x := range xs {
		p.WriteString(map[bool]string{true: "M", false: "L"}[i == 0] + num(x) + " " + num(ys[i]))
	}
	if len(xs) == 1 {
		p.WriteString("h.1")
	}
}

// between adds the area between two lines.
func (p *path) between(xs, above, below []float64) {
	if len(xs) < 2 {
		return
	}
	p.line(xs, above)
	for i, x := range slices.Backward(xs) {
		p.WriteString("L" + num(x) + " " + num(below[i]))
	}
	p.WriteString("z")
}
