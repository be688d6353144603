package splitbrain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Check is one thing that was predicted of a case.
type Check struct {
	// The prediction, as a sentence.
	What string `json:"what"`
	// OK says whether it came so; Got is the other result, or a figure.
	OK  bool   `json:"ok"`
	Got string `json:"got"`
}

// A Result is the result of a case.
type Result struct {
	Case Case   `json:"case"`
	Name string `json:"name"`
	// LeaderBefore is the member that led before the break.
	LeaderBefore int    `json:"leaderBefore"`
	Sides        []Seen `json:"sides"`
	Dead         []int  `json:"dead"`
	// Told is, by member, since when the client that held a lock, and knows this member only, has
	// been told by its library that it is not connected, without having been connected again.
	// Dropped is when it was told so for the first time.
	Told    map[int]Instant `json:"toldMs"`
	Dropped map[int]Instant `json:"droppedMs"`
	// Replicas are all members' replicas after the healing; Differ says how they differ, if they
	// do.
	Replicas []Replica `json:"replicas"`
	Differ   string    `json:"differ,omitempty"`
	// Checks are the predictions. Notes are further observations.
	Checks []Check  `json:"checks"`
	Notes  []string `json:"notes,omitempty"`
	// Window is the worst time in which the client of a member that was cut off took itself for
	// connected, and for the holder of its lock, while somebody else had the lock already; 0 if
	// there was none. Margin is the shortest time by which a client was told before. Both only if a
	// lock changed hands so.
	Window time.Duration `json:"windowNs"`
	Margin time.Duration `json:"marginNs"`
	// Watched is how long the case was watched, from the break to the beginning of the healing.
	Watched time.Duration `json:"watchedNs"`
}

// OK says whether everything was as predicted.
func (r *Result) OK() bool {
	for _, c := range r.Checks {
		if !c.OK {
			return false
		}
	}
	return len(r.Checks) > 0
}

// judge compares the observations with the predictions. leases says whether the target promises
// that a client is told before its lock is given away (C6); if not, that is a note.
func judge(r *Result, leases bool) {
	for i := range r.Sides {
		if r.Case.Quorum(i) {
			r.judgeGoing(i)
		} else {
			r.judgeStopped(i)
		}
	}
	r.judgeLeases(leases)
	r.check("after healing, all replicas have one history, with every acknowledged write in it",
		r.Differ == "" && len(r.Replicas) > 0, r.Differ)
}

func (r *Result) check(what string, ok bool, got string) {
	r.Checks = append(r.Checks, Check{what, ok, got})
}

// judgeGoing checks a side that has the majority.
func (r *Result) judgeGoing(side int) {
	seen, name := r.Sides[side], sideName(r.Sides[side].Members)
	leaders := slices.Sorted(maps.Keys(seen.Leading))
	r.check(name+" has one leader", len(leaders) == 1, leaderText(seen))
	r.check(name+" accepts writes", seen.Writes > 0, fmt.Sprintf("%d, the first after %s", seen.Writes, seen.Wrote))
	r.check(name+" grants the lock that both sides want", seen.Lock.Came(), seen.Lock.String())
	for _, id := range r.outsiders(side) {
		got, took := seen.Inherited[id]
		r.check(fmt.Sprintf("%s gives away the lock that a client of m%d held", name, id), took, got.String())
	}
	dropped := slices.DeleteFunc(slices.Clone(seen.Members), func(id int) bool { return !r.Dropped[id].Came() })
	if len(dropped) > 0 {
		r.Notes = append(r.Notes, "On the side that goes on, clients were disconnected for a while: those of "+
			sideName(dropped)+".")
	}
}

// judgeStopped checks a side that has no majority.
func (r *Result) judgeStopped(side int) {
	seen, name := r.Sides[side], sideName(r.Sides[side].Members)
	r.check(name+" acknowledges no write", seen.Writes == 0, plural(seen.Writes, "write"))
	r.check(name+" grants no lock", !seen.Lock.Came() && len(seen.Inherited) == 0, granted(seen))
	stopped, told := r.stopped(side)
	r.check(name+" has no leader in the end", len(seen.Leading) == 0, leaderText(seen))
	r.check(name+" stops serving", stopped.Came(), stopped.String())
	r.check(name+" disconnects its clients", told.Came(), told.String())
}

// judgeLeases checks, where a lock was given away, that its holder had been told before.
func (r *Result) judgeLeases(promised bool) {
	goes := r.Case.Goes()
	if goes < 0 {
		return
	}
	worst, measured := r.worst()
	if !measured {
		return
	}
	r.Margin = r.margin(goes, worst)
	r.Window = max(0, -r.Margin)
	text := fmt.Sprintf("told %s before", seconds(r.Margin))
	if r.Window > 0 {
		text = fmt.Sprintf("for %s two clients held one lock", seconds(r.Window))
	}
	switch {
	case promised:
		r.check("every holder is told before its lock is given away", r.Window == 0, text)
	case r.Window > 0:
		r.Notes = append(r.Notes, text+", and the library of the first one said that it is connected")
	}
}

// outsiders are all members that are not on a side, in order.
func (r *Result) outsiders(side int) []int {
	ids := slices.Clone(r.Dead)
	for i, s := range r.Sides {
		if i != side {
			ids = append(ids, s.Members...)
		}
	}
	slices.Sort(ids)
	return ids
}

// sideName is some members, as m1 m4 m5.
func sideName(ids []int) string {
	names := make([]string, len(ids))
	for i, id := range slices.Sorted(slices.Values(ids)) {
		names[i] = fmt.Sprintf("m%d", id)
	}
	return strings.Join(names, " ")
}

// leaderText says who leads.
func leaderText(s Seen) string {
	leaders := slices.Sorted(maps.Keys(s.Leading))
	switch len(leaders) {
	case 0:
		return "nobody leads"
	case 1:
		return fmt.Sprintf("m%d leads, seen after %s", leaders[0], s.Leading[leaders[0]])
	}
	return "they all say that they lead: " + sideName(leaders)
}

// granted lists the locks that a side granted.
func granted(s Seen) string {
	var all []string
	if s.Lock.Came() {
		all = append(all, "the lock that both want, after "+s.Lock.String())
	}
	for _, id := range slices.Sorted(maps.Keys(s.Inherited)) {
		all = append(all, fmt.Sprintf("that of the client of m%d, after %s", id, s.Inherited[id]))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ")
}

// String is the instant in seconds, or never.
func (i Instant) String() string {
	if !i.came {
		return "never"
	}
	return seconds(i.after)
}

// seconds is a duration as people read it here.
func seconds(d time.Duration) string {
	if d > -100*time.Millisecond && d < 100*time.Millisecond {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// plural is a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
