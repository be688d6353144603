package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// All pictures of a page share the axis of time: 0 to pictureWidth, stretched to the screen.
const pictureWidth = 1000

// A scale puts times onto the axis.
type scale struct{ length time.Duration }

// x is the position of a time.
func (s scale) x(d time.Duration) float64 { return float64(d) / float64(s.length) * pictureWidth }

// X, Width and Ticks are for the template.
func (s scale) X(d time.Duration) string            { return num(s.x(d)) }
func (s scale) Width(from, to time.Duration) string { return num(s.x(to - from)) }
func (s scale) Ticks() []tick                       { return s.timeTicks() }

// percent is the position of a time in HTML.
func (s scale) percent(d time.Duration) string { return num(s.x(d)/pictureWidth*100) + "%" }

// num is a number for SVG, short.
func num(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// A path is the data of an SVG path.
type path struct{ strings.Builder }

// hline adds a line to the right.
func (p *path) hline(x, y, width float64) {
	fmt.Fprintf(p, "M%s %sh%s", num(x), num(y), num(max(width, 0.1)))
}

// rect adds a rectangle.
func (p *path) rect(x, y, width, height float64) {
	fmt.Fprintf(p, "M%s %sh%sv%sh-%sz", num(x), num(y), num(width), num(height), num(width))
}

// tooLittle is how much of an x cannot be seen.
const tooLittle = 0.6

// spansPath draws spans as lines at y. Those that touch at this size become one.
func (s scale) spansPath(spans []span, y float64) string {
	var p path
	for _, sp := range s.join(spans) {
		p.hline(s.x(sp.from), y, max(s.x(sp.to-sp.from), tooLittle))
	}
	return p.String()
}

// join makes one of spans, sorted by their beginnings, that overlap or lie too close together.
func (s scale) join(spans []span) []span {
	var joined []span
	for _, sp := range spans {
		if n := len(joined); n > 0 && s.x(sp.from-joined[n-1].to) < tooLittle {
			joined[n-1].to = max(joined[n-1].to, sp.to)
			continue
		}
		joined = append(joined, sp)
	}
	return joined
}

// A tick is a mark on an axis, at a percentage of it.
type tick struct{ At, Text string }

// timeTicks are about eight round times.
func (s scale) timeTicks() []tick {
	var ticks []tick
	step := roundStep(s.length, 8)
	for d := time.Duration(0); d <= s.length; d += step {
		ticks = append(ticks, tick{s.percent(d), clock(d, step)})
	}
	return ticks
}

// roundStep is the smallest round length of which at most n fit.
func roundStep(length time.Duration, n int) time.Duration {
	for unit := time.Millisecond; ; unit *= 10 {
		for _, k := range []time.Duration{1, 2, 5} {
			step := k * unit
			if step > time.Minute { // 60 is rounder than 50 and 100
				step = step / (50 * time.Second) * time.Minute
			}
			if step > 0 && length/step <= time.Duration(n) {
				return step
			}
		}
	}
}

// clock is a time of the run as people read it.
func clock(d, precision time.Duration) string {
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%d:%02d h", int(d.Hours()), int(d.Minutes())%60)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d:%02d min", int(d.Minutes()), int(d.Seconds())%60)
	case precision >= time.Second:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// roundUp is the next number above f of the form 1, 2 or 5 times a power of ten, at least 1.
func roundUp(f float64) float64 {
	for unit := 1.0; ; unit *= 10 {
		for _, k := range []float64{1, 2, 5} {
			if k*unit >= f {
				return k * unit
			}
		}
	}
}

// milliseconds is a latency as people read it.
func milliseconds(ms float64) string {
	switch {
	case ms == 0:
		return "–"
	case ms >= 10_000:
		return fmt.Sprintf("%.0f s", ms/1000)
	case ms >= 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

// A decades is a logarithmic axis of latencies, upwards, in whole powers of ten.
type decades struct{ low, high int } // exponents, of ms

// decadesFor is the axis for latencies from lowest to highest, in ms.
func decadesFor(lowest, highest float64) decades {
	d := decades{int(math.Floor(math.Log10(lowest))), int(math.Ceil(math.Log10(highest)))}
	d.high = max(d.high, d.low+1)
	return d
}

// y is the position of a latency, 0 at the top and 100 at the bottom.
func (d decades) y(ms float64) float64 {
	at := (math.Log10(ms) - float64(d.low)) / float64(d.high-d.low)
	return 100 * (1 - min(1, max(0, at)))
}

// ticks are the powers of ten.
func (d decades) ticks() []tick {
	var ticks []tick
	for e := d.low; e <= d.high; e++ {
		ms := math.Pow10(e)
		text := strconv.FormatFloat(ms, 'f', -1, 64) + " ms"
		if ms >= 1000 {
			text = strconv.FormatFloat(ms/1000, 'f', -1, 64) + " s"
		}
		ticks = append(ticks, tick{num(d.y(ms)) + "%", text})
	}
	return ticks
}
