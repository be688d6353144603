package splitbrain

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// Sizes of the pictures, in pixels.
const (
	svgWidth   = 860
	svgLeft    = 186 // the left edge of the lanes
	svgRight   = 16  // from the lanes to the right edge
	laneHeight = 32
	boxHeight  = 84
	boxGap     = 36 // between the sides
)

// svgStyle has light and dark colours, with a background: the page around a picture may be either.
const svgStyle = `text{font:13px system-ui,"DejaVu Sans",sans-serif;fill:#1d2430}.head{font-weight:600}` +
	`.soft{fill:#5b6575}.paper{fill:#fbfaf7}.lane{fill:#e2e0d9}.axis{stroke:#8a93a1}.in{fill:#fff}` +
	`.cut{fill:none;stroke:#c77800;stroke-width:2.5;stroke-dasharray:6 4}.crown{fill:#c77800}` +
	`.goes{fill:#18794e}.stops{fill:#5b6575}.two{fill:#c62a2f}.wait{fill:#c9dcf2}` +
	`.box{fill:none;stroke:#18794e;stroke-width:1.5}.halt{stroke:#5b6575;stroke-dasharray:4 4}` +
	`@media(prefers-color-scheme:dark){text{fill:#e6e9ee}.soft{fill:#a3adba}.paper{fill:#12161c}.in{fill:#fff}` +
	`.lane{fill:#2b333e}.wait{fill:#26415f}.cut{stroke:#f5a623}.crown{fill:#f5a623}.box{stroke:#4cc38a}` +
	`.halt{stroke:#a3adba}}`

// A stretch is a time in a lane of a drawing, with a class of svgStyle and a text in it, or
// behind it if it is the only one; otherwise a text that does not fit is left out.
type stretch struct {
	from, to    time.Duration
	class, text string
}

// A drawing is an SVG picture under construction. Its lanes show the time from -before to after,
// with the break at 0.
type drawing struct {
	strings.Builder
	before, after time.Duration
	y             int // the top of the next part
}

// done is the picture. People who do not see it get the title.
func (d *drawing) done(title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"><title>%s</title>`+
		"<style>%s</style>\n"+`<rect class="paper" width="%[1]d" height="%[2]d" rx="6"/>`+"\n%[5]s</svg>\n",
		svgWidth, d.y+6, html.EscapeString(title), svgStyle, d.String())
}

// shape adds an element.
func (d *drawing) shape(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// x is the place of a time in the lanes.
func (d *drawing) x(at time.Duration) float64 {
	share := float64(at+d.before) / float64(d.before+d.after)
	return svgLeft + min(1, max(0, share))*(svgWidth-svgLeft-svgRight)
}

func (d *drawing) text(class string, x, y int, text string) {
	d.shape(`<text class="%s" x="%d" y="%d">%s</text>`, class, x, y, html.EscapeString(text))
}

// middle writes a text around x.
func (d *drawing) middle(class string, x float64, y int, text string) {
	d.shape(`<text class="%s" text-anchor="middle" x="%.1f" y="%d">%s</text>`, class, x, y, html.EscapeString(text))
}

// line writes a line of text.
func (d *drawing) line(class, text string) {
	d.text(class, 14, d.y+20, text)
	d.y += 28
}

func (d *drawing) lane(name string, stretches ...stretch) {
	d.text("soft", 14, d.y+laneHeight/2+4, name)
	d.shape(`<rect class="lane" x="%d" y="%d" width="%d" height="2"/>`, svgLeft, d.y+laneHeight/2-1,
		svgWidth-svgLeft-svgRight)
	for _, s := range stretches {
		if s.to <= s.from {
			continue
		}
		x, width := d.x(s.from), max(1, d.x(s.to)-d.x(s.from))
		d.shape(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, s.class, x, d.y+4, width, laneHeight-8)
		switch needs := 7.2 * float64(len(s.text)); {
		case width >= needs && s.class == "wait":
			d.middle("on", x+width/2, d.y+laneHeight/2+5, s.text)
		case width >= needs:
			d.middle("in", x+width/2, d.y+laneHeight/2+5, s.text)
		case len(stretches) == 1:
			d.text("soft", int(x+width)+6, d.y+laneHeight/2-4, s.text)
		}
	}
	d.y += laneHeight
}

// locks draws the client that lost its lock, and the one that got it.
func (d *drawing) locks(r *Result) {
	id, ok := r.worst()
	if !ok {
		return
	}
	told, given := r.at(r.Told[id]), r.at(r.Sides[r.Case.Goes()].Inherited[id])
	both := stretch{from: given, to: told, class: "two", text: "two holders for " + seconds(told-given)}
	y := d.y
	d.lane(fmt.Sprintf("A, client of m%d", id),
		stretch{-d.before, min(told, given), "goes", "holds it, as it believes"}, both)
	d.text("soft", int(d.x(told))+6, y+laneHeight/2-4, "told after "+r.Told[id].String())
	d.lane("B, client of another", stretch{-d.before, given, "wait", "waits for it"}, both,
		stretch{max(told, given), r.Watched, "goes", "holds it"})
}

// end draws the moment of the break from top down to here, and the seconds after it.
func (d *drawing) end(top int) {
	d.shape(`<path class="cut" d="M%.1f %dV%d"/>`, d.x(0), top, d.y)
	step := 250 * time.Millisecond
	for d.after/step > 12 {
		step *= 2
	}
	for at := time.Duration(0); at <= d.after; at += step {
		d.shape(`<path class="axis" d="M%.1f %dv5"/>`, d.x(at), d.y+2)
		d.middle("soft", min(d.x(at), svgWidth-24), d.y+20, fmt.Sprintf("%g s", at.Seconds()))
	}
	d.y += 28
}

// boxes draws the members of each side, with a crown on the leader of before, the rule for each
// side, and the cut.
func (d *drawing) boxes(r *Result) {
	each := float64(svgWidth-28-boxGap*(len(r.Sides)-1)) / float64(r.Case.Cluster.size()-len(r.Dead))
	x := 14.0
	for i, side := range r.Sides {
		if i > 0 {
			d.shape(`<path class="cut" d="M%.1f %dv%d"/>`, x-boxGap/2, d.y-2, boxHeight+4)
		}
		box, fate, width := "box", "goes on", each*float64(len(side.Members))
		if !r.Case.Quorum(i) {
			box, fate = "box halt", "stops"
		}
		d.shape(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="8"/>`, box, x, d.y, width, boxHeight)
		for k, c := range r.Circles(side.Members, r.State(i)) {
			cx := x + (float64(k)+0.5)*each
			d.shape(`<circle class="%s" cx="%.1f" cy="%d" r="16"/>`, r.State(i), cx, d.y+36)
			d.middle("in", cx, d.y+41, fmt.Sprintf("m%d", c.ID))
			if c.ID == r.LeaderBefore {
				d.shape(`<path class="crown" d="M%.1f %dl-2 -10l6 5l5 -8l5 8l6 -5l-2 10z"/>`, cx-9, d.y+18)
			}
		}
		d.middle("on", x+width/2, d.y+boxHeight-10, r.Case.Arithmetic(i)+": "+fate)
		x += width + boxGap
	}
	d.y += boxHeight + 10
}

// StoryPicture draws a case: its sides, when they served clients or took writes, and a lock of a
// client that was left behind, if it went to another one.
func StoryPicture(r *Result) string {
	d := &drawing{before: r.Watched / 10, after: r.Watched}
	d.line("head", r.storyTitle())
	d.boxes(r)
	top := d.y
	for i, s := range r.Sides {
		if !r.Case.Quorum(i) {
			stopped, _ := r.stopped(i)
			d.lane("clients of "+sideName(s.Members), stretch{-d.before, r.at(stopped), "stops",
				"served until " + stopped.String()})
			continue
		}
		d.lane("writes at "+sideName(s.Members), stretch{-d.before, 0, "goes", ""},
			stretch{r.at(s.Wrote), d.after, "goes", "acknowledged, the first one after " + s.Wrote.String()})
	}
	d.locks(r)
	d.end(top)
	return d.done(r.storyTitle())
}

// storyTitle names a case in one line.
func (r *Result) storyTitle() string {
	text := plural(r.Case.Cluster.Voters, "voter")
	if len(r.Sides) == 2 {
		text += fmt.Sprintf(" are cut into %s and %s", r.Case.Sides[0], r.Case.Sides[1])
	}
	if r.Case.Goes() < 0 {
		return text + ": neither side goes on"
	}
	return text + fmt.Sprintf(": %s go on", sideName(r.Sides[r.Case.Goes()].Members))
}

// A System is one of those that Beside shows.
type System struct {
	Name   string // as lockkeeper
	Result *Result
}

// Beside draws the lock of a client with a server that is cut off from the majority, the same case
// with each system, in one picture. settings are shown in its last line. The text is for people
// who do not see the picture.
func Beside(systems []System, settings string) (picture, text string) {
	var longest time.Duration
	for _, s := range systems {
		longest = max(longest, s.Result.Watched)
	}
	d := &drawing{before: longest / 8, after: longest}
	d.line("head", "A holds a lock. Its server is cut off from the two others; A's own network is whole.")
	top := d.y
	var parts []string
	for _, s := range systems {
		r := s.Result
		d.line("head", s.Name)
		d.locks(r)
		id, _ := r.worst()
		given, told := r.Sides[r.Case.Goes()].Inherited[id], r.Told[id]
		if r.Window > 0 {
			parts = append(parts, fmt.Sprintf("with %s B gets the lock after %s, and A believes that it holds it until %s: "+
				"two holders for %s", s.Name, given, told, seconds(r.Window)))
		} else {
			parts = append(parts, fmt.Sprintf("with %s A is told after %s that it is cut off, and B gets the lock after %s",
				s.Name, told, given))
		}
	}
	d.end(top)
	d.line("soft", settings)
	text = "A's server is cut off from the majority: " + strings.Join(parts, "; ")
	return d.done(text), text
}
