package splitbrain

import (
	"fmt"
	"maps"
	"slices"
	"time"
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

// A lane is a line of the small timeline of a case.
type lane struct {
	Name, Class string
	Bars        []bar
}

// A bar is a time in a lane, in per mille of the time that was watched.
type bar struct {
	X, Width int
	Class    string
}

// lanes are the timeline: who served when, and what became of the lock of the client that was left behind, of the one that
// was told last before its lock went.
func (r *Result) lanes() []lane {
	at := func(i Instant) int {
		if !i.Came() {
			return 1000
		}
		return int(min(1000, i.After()*1000/max(1, r.Watched)))
	}
	var all []lane
	for i, s := range r.Sides {
		l := lane{Name: sideName(s.Members) + " served"}
		if stopped, _ := r.stopped(i); !r.Case.Quorum(i) {
			l.Class = "stops"
			l.Bars = []bar{{0, at(stopped), "stops"}}
		} else {
			from := at(s.Wrote)
			l.Class = "goes"
			l.Bars = []bar{{from, 1000 - from, "goes"}}
		}
		all = append(all, l)
	}
	id, ok := r.worst()
	if !ok {
		return all
	}
	told, given := at(r.toldAt(id)), at(r.Sides[r.Case.Goes()].Inherited[id])
	believed := lane{Name: fmt.Sprintf("client of m%d believed", id), Bars: []bar{{0, told, "believes"}}}
	if given < told {
		believed.Bars = append(believed.Bars, bar{given, told - given, "both"})
	}
	return append(all, believed, lane{Name: "another had its lock", Bars: []bar{{given, 1000 - given, "given"}}})
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

// margin is how long before its lock was given away the client of a member was told; negative if it was told later.
func (r *Result) margin(goes, id int) time.Duration {
	given, told := r.Sides[goes].Inherited[id], r.toldAt(id)
	if !told.Came() {
		return given.After() - r.Watched // not for as long as was looked
	}
	return given.After() - told.After()
}

// seconds are the marks of the time axis: full seconds, in per mille, not too many.
func (r *Result) axis() []mark {
	step := time.Second
	for r.Watched/step > 8 {
		step *= 2
	}
	var marks []mark
	for at := time.Duration(0); at < r.Watched; at += step {
		marks = append(marks, mark{fmt.Sprintf("%.1f%%", float64(at)/float64(r.Watched)*100), fmt.Sprintf("%d s", int(at.Seconds()))})
	}
	return marks
}

// A mark stands on the time axis.
type mark struct{ At, Text string }

// Half is half the width of a box, for what stands in its middle.
func (b box) Half() int { return b.Width / 2 }
