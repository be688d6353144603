package splitbrain

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"lockkeeper/jepsen/report"
)

// A circle is a member in the picture of a case.
type circle struct {
	ID    int
	Class string // the state of its side, and observer if it is one
	Crown string // "now" if it leads in the end, "was" if it led only before
}

// State is the fate of a side: goes or stops.
func (r *Result) State(side int) string {
	if r.Case.Quorum(side) {
		return "goes"
	}
	return "stops"
}

// Circles are members of a side in that state, or dead.
func (r *Result) Circles(ids []int, state string) []circle {
	var all []circle
	for _, id := range slices.Sorted(slices.Values(ids)) {
		c := circle{ID: id, Class: state}
		if id > r.Case.Cluster.Voters {
			c.Class += " observer"
		}
		leads := slices.ContainsFunc(r.Sides, func(s Seen) bool { return s.Leading[id].Came() })
		switch {
		case leads && state == "goes":
			c.Crown = "now"
		case id == r.LeaderBefore:
			c.Crown = "was"
		}
		all = append(all, c)
	}
	return all
}

// at is when an instant came, the end of the watch at the latest.
func (r *Result) at(i Instant) time.Duration {
	if !i.Came() {
		return r.Watched
	}
	return min(r.Watched, i.After())
}

// lanes are the timeline: who served when, and the fate of the lock of the client that was left
// behind: the one that was told last before its lock went.
func (r *Result) lanes() []report.Lane {
	var all []report.Lane
	for i, s := range r.Sides {
		bar := report.Bar{From: r.at(s.Wrote), To: r.Watched, Class: "goes"}
		if stopped, _ := r.stopped(i); !r.Case.Quorum(i) {
			bar = report.Bar{To: r.at(stopped), Class: "stops"}
		}
		all = append(all, report.Lane{Name: sideName(s.Members) + " served", Bars: []report.Bar{bar}})
	}
	id, ok := r.worst()
	if !ok {
		return all
	}
	told, given := r.at(r.Told[id]), r.at(r.Sides[r.Case.Goes()].Inherited[id])
	believed := report.Lane{Name: fmt.Sprintf("client of m%d believed", id),
		Bars: []report.Bar{{To: told, Class: "believes"}}}
	if given < told {
		believed.Bars = append(believed.Bars, report.Bar{From: given, To: told, Class: "both"})
	}
	return append(all, believed, report.Lane{Name: "another had its lock",
		Bars: []report.Bar{{From: given, To: r.Watched, Class: "given"}}})
}

// worst is the member with the client that was told last, compared with when its lock was given
// away.
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
	given, told := r.Sides[goes].Inherited[id], r.Told[id]
	if !told.Came() {
		return given.After() - r.Watched // not for as long as was looked
	}
	return given.After() - told.After()
}
