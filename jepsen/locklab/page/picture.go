package page

import (
	"fmt"
	"html"
	"strings"
	"time"

	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/play"
)

// Sizes of a picture.
const (
	pictureWidth  = 860
	pictureLeft   = 90
	laneHeight    = 30
	pictureHeight = 5*laneHeight + 62
)

const pictureStyle = `text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#1d2430}.soft{fill:#5b6575}` +
	`.paper{fill:#fbfaf7}.lane{fill:#efede6}.wait{fill:#c9dcf2}.hold{fill:#2f9e6b}.two{fill:#c62a2f}` +
	`.stop{fill:none;stroke:#1d2430;stroke-width:1.5;stroke-dasharray:3 3}.fault{fill:#e08a00;opacity:.45}` +
	`.dead{stroke:#1d2430;stroke-width:2.5}.ok{fill:#2f7dd1}.lost{fill:#c62a2f}.refused{fill:none;stroke:#5b6575;` +
	`stroke-width:2}.told{stroke:#6b4fbb;stroke-width:2.5}.axis{stroke:#8a93a1}`

// A drawing is a picture under way.
type drawing struct {
	strings.Builder
	from, length time.Duration
}

func (d *drawing) x(at time.Duration) float64 {
	share := float64(at-d.from) / float64(d.length)
	return pictureLeft + min(1, max(0, share))*(pictureWidth-pictureLeft-10)
}

func (d *drawing) bar(class string, lane int, from, to time.Duration) {
	x := d.x(from)
	fmt.Fprintf(d, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, class, x, laneY(lane)+5,
		max(1, d.x(to)-x), laneHeight-10)
}

func (d *drawing) text(class string, x float64, y int, text string) {
	fmt.Fprintf(d, `<text class="%s" x="%.1f" y="%d">%s</text>`, class, x, y, html.EscapeString(text))
}

func laneY(lane int) int { return 24 + lane*laneHeight }

// The lanes.
const (
	laneServers  = 3
	laneResource = 4
)

var laneNames = []string{"client A", "client B", "client C", "servers", "resource"}

// Picture draws a round as SVG: a lane for each client, for the faults of the servers, and for the
// resource.
func Picture(c *play.Case, r play.Round) string {
	d := &drawing{from: start(r)}
	end := d.from
	for _, e := range r.Events {
		end = max(end, e.At)
	}
	d.length = max(end-d.from, time.Millisecond)
	title := fmt.Sprintf("%s, lease %v", c.Name(), c.Lease)
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s"><style>%s</style>`,
		pictureWidth, pictureHeight, html.EscapeString(title), pictureStyle)
	fmt.Fprintf(d, `<rect class="paper" width="%d" height="%d"/>`, pictureWidth, pictureHeight)
	d.text("", 8, 16, title)
	for i, name := range laneNames {
		d.text("soft", 8, laneY(i)+19, name)
		fmt.Fprintf(d, `<rect class="lane" x="%d" y="%d" width="%d" height="%d"/>`, pictureLeft, laneY(i)+14,
			pictureWidth-pictureLeft-10, 2)
	}
	d.clients(r, end)
	d.faults(r, end)
	d.writes(r)
	d.axis()
	d.WriteString("</svg>\n")
	return d.String()
}

// laneOf is the lane of a client, or -1.
func laneOf(who string) int { return strings.Index("ABC", who) }

// clients draws who waited, held, was told, was stopped and died.
func (d *drawing) clients(r play.Round, end time.Duration) {
	asked := make(map[string]time.Duration)
	stopped := make(map[string]time.Duration)
	for _, e := range r.Events {
		switch e.What {
		case play.Lock:
			asked[e.Who] = e.At
		case play.Locked, play.Refused, play.Killed:
			if from, ok := asked[e.Who]; ok {
				d.bar("wait", laneOf(e.Who), from, e.At)
				delete(asked, e.Who)
			}
		}
	}
	for who, from := range asked {
		d.bar("wait", laneOf(who), from, end)
	}
	grants := judge.Grants(r.Events)
	for _, g := range grants {
		d.bar("hold", laneOf(g.Who), g.From, g.Until)
	}
	for _, o := range judge.Overlaps(grants) {
		d.bar("two", laneOf(o.First.Who), o.From, o.To)
		d.bar("two", laneOf(o.Second.Who), o.From, o.To)
	}
	for _, e := range r.Events {
		x, lane := d.x(e.At), laneOf(e.Who)
		switch e.What {
		case play.Paused:
			stopped[e.Who] = e.At
		case play.Resumed:
			fmt.Fprintf(d, `<rect class="stop" x="%.1f" y="%d" width="%.1f" height="%d"/>`, d.x(stopped[e.Who]), laneY(lane)+2,
				x-d.x(stopped[e.Who]), laneHeight-4)
		case play.Lost:
			fmt.Fprintf(d, `<path class="told" d="M%.1f %dv%d"/>`, x, laneY(lane)+1, laneHeight-2)
		case play.Killed:
			fmt.Fprintf(d, `<path class="dead" d="M%.1f %dl12 16m0 -16l-12 16"/>`, x-6, laneY(lane)+7)
		}
	}
}

// faults draws the faults of the servers, and of A's network.
func (d *drawing) faults(r play.Round, end time.Duration) {
	type fault struct {
		lane int
		from time.Duration
		text string
	}
	var open *fault
	finish := func(to time.Duration) {
		if open != nil {
			d.bar("fault", open.lane, open.from, to)
			if open.lane == laneServers {
				d.text("soft", min(d.x(open.from)+4, pictureWidth-300), laneY(laneServers)+19, open.text)
			}
			open = nil
		}
	}
	for _, e := range r.Events {
		if e.At < d.from || e.What != play.Broke && e.What != play.Healed {
			continue
		}
		finish(e.At)
		if e.What == play.Broke {
			open = &fault{laneServers, e.At, e.Text}
			if e.Who != "lab" {
				open.text = "A: " + e.Text
			}
		}
	}
	finish(end)
}

// writes draws the writes as they arrived.
func (d *drawing) writes(r play.Round) {
	refused := make(map[string]bool)
	for _, e := range r.Ledger {
		if e.Write && e.Rule == ledger.Fenced && e.Refused != "" && e.Token > 0 {
			refused[fmt.Sprint(e.At, e.Holder)] = true
		}
	}
	for _, e := range r.Ledger {
		if !e.Write || e.Rule != ledger.Open {
			continue
		}
		class := "ok"
		if e.Lost() {
			class = "lost"
		}
		x, y := d.x(e.At), laneY(laneResource)+15
		fmt.Fprintf(d, `<circle class="%s" cx="%.1f" cy="%d" r="6"/>`, class, x, y)
		if refused[fmt.Sprint(e.At, e.Holder)] {
			fmt.Fprintf(d, `<circle class="refused" cx="%.1f" cy="%d" r="10"/>`, x, y)
		}
		d.text("soft", min(x+12, pictureWidth-20), y+5, e.Holder)
	}
}

func (d *drawing) axis() {
	step := 100 * time.Millisecond
	for d.length/step > 10 {
		step *= 2
	}
	y := laneY(len(laneNames))
	for at := time.Duration(0); at <= d.length; at += step {
		x := d.x(d.from + at)
		fmt.Fprintf(d, `<path class="axis" d="M%.1f %dv5"/>`, x, y)
		d.text("soft", x-8, y+18, fmt.Sprintf("%.1f s", at.Seconds()))
	}
}

// Legend explains the pictures, as HTML.
const Legend = `Blue: it waits. Green: it holds the lock, as it believes. Red: so does another. Dashed: it is stopped.
Violet: its library tells it that the lock is lost. A cross: it dies. Dots are writes, where they arrive: a red one
undoes an update; a ring means that a fence would refuse it. Orange: the fault.`
