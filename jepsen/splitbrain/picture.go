package splitbrain

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"lockkeeper/jepsen/report"
)

// A picture shows a case: circles for the members, in a box for each side, and one for the dead.
type picture struct {
	Width, Height int
	Boxes         []box
	Cuts          []int // x of the lines between the sides
}

// A box is a side, or the dead.
type box struct {
	X, Width int
	Class    string // goes, stops or dead
	Members  []circle
	Lines    []string // below it
}

// A circle is a member.
type circle struct {
	ID, X, Y int
	Class    string // observer, dead, or nothing
	// Crown is "now" for who leads at the end, "was" for who led before and does not any more.
	Crown string
}

// Sizes in a picture.
const (
	pitch      = 46 // from one circle to the next
	inARow     = 3  // circles, from top to bottom
	boxTop     = 14
	boxHeight  = inARow*pitch + 8
	leastWidth = 104
)

// draw makes the picture of a result.
func (r *Result) draw() picture {
	p := picture{Height: boxTop + boxHeight + 44}
	x := 2
	for i := range r.Sides {
		class, word := "stops", "stops"
		if r.Case.Quorum(i) {
			class, word = "goes", "goes on"
		}
		if i > 0 {
			p.Cuts = append(p.Cuts, x+20)
			x += 40
		}
		b := r.box(x, r.Sides[i].Members, class, leastWidth)
		b.Lines = []string{r.Case.Arithmetic(i), word}
		p.Boxes = append(p.Boxes, b)
		x += b.Width
	}
	if len(r.Dead) > 0 {
		x += 16
		b := r.box(x, r.Dead, "dead", pitch+20)
		b.Lines = []string{"", "dead"}
		p.Boxes = append(p.Boxes, b)
		x += b.Width
	}
	p.Width = x + 2
	return p
}

// box places members.
func (r *Result) box(x int, ids []int, class string, least int) box {
	columns := (len(ids) + inARow - 1) / inARow
	b := box{X: x, Width: max(columns*pitch+16, least), Class: class}
	left := x + (b.Width-(columns-1)*pitch)/2
	for i, id := range slices.Sorted(slices.Values(ids)) {
		column := i / inARow
		rows := min(inARow, len(ids)-column*inARow)
		top := boxTop + (boxHeight-(rows-1)*pitch)/2
		b.Members = append(b.Members, r.circle(id, left+column*pitch, top+i%inARow*pitch+3, class))
	}
	return b
}

func (r *Result) circle(id, x, y int, class string) circle {
	c := circle{ID: id, X: x, Y: y}
	if id > r.Case.Cluster.Voters {
		c.Class = "observer"
	}
	leads := slices.ContainsFunc(r.Sides, func(s Seen) bool { return s.Leading[id].Came() })
	switch {
	case leads && class == "goes":
		c.Crown = "now"
	case id == r.LeaderBefore:
		c.Crown = "was"
	}
	return c
}

// lanes are the timeline: who served when, and what became of the lock of the client that was left
// behind, of the one that was told last before its lock went.
func (r *Result) lanes() []report.Lane {
	at := func(i Instant) time.Duration {
		if !i.Came() {
			return r.Watched
		}
		return min(r.Watched, i.After())
	}
	var all []report.Lane
	for i, s := range r.Sides {
		bar := report.Bar{From: at(s.Wrote), To: r.Watched, Class: "goes"}
		if stopped, _ := r.stopped(i); !r.Case.Quorum(i) {
			bar = report.Bar{To: at(stopped), Class: "stops"}
		}
		all = append(all, report.Lane{Name: sideName(s.Members) + " served", Bars: []report.Bar{bar}})
	}
	id, ok := r.worst()
	if !ok {
		return all
	}
	told, given := at(r.toldAt(id)), at(r.Sides[r.Case.Goes()].Inherited[id])
	believed := report.Lane{Name: fmt.Sprintf("client of m%d believed", id), Bars: []report.Bar{{To: told, Class: "believes"}}}
	if given < told {
		believed.Bars = append(believed.Bars, report.Bar{From: given, To: told, Class: "both"})
	}
	return append(all, believed, report.Lane{Name: "another had its lock", Bars: []report.Bar{{From: given, To: r.Watched, Class: "given"}}})
}

// worst is the member whose client was told last, compared with when its lock was given away.
func (r *Result) worst() (worst int, ok bool) {
	goes := r.Case.Goes()
	if goes < 0 {
		return 0, false
	}
	var least time.Duration
	for _, id := range slices.Sorted(maps.Keys(r.Sides[goes].Inherited)) {
		if margin := r.margin(goes, id); !ok || margin < least {
			worst, least, ok = id, margin, true
		}
	}
	return worst, ok
}

// margin is how long before its lock was given away the client of a member was told; negative if it
// was told later.
func (r *Result) margin(goes, id int) time.Duration {
	given, told := r.Sides[goes].Inherited[id], r.toldAt(id)
	if !told.Came() {
		return given.After() - r.Watched // not for as long as was looked
	}
	return given.After() - told.After()
}

// Half is half the width of a box, for what stands in its middle.
func (b box) Half() int { return b.Width / 2 }
