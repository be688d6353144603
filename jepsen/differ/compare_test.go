package differ

import (
	"fmt"
	"slices"
	"strings"

	"lockkeeper/wire"
)

// comparer decides whether two servers gave the same answers. It remembers which zxids correspond.
type comparer struct {
	// a and b are the zxids of updates, sorted. Those at the same place are of the same update.
	a, b []wire.Zxid

	explained map[string]int    // how often each explanation was needed
	watchers  map[string]uint64 // the slots, as bits, that have ever asked to watch a path
}

func newComparer() *comparer {
	return &comparer{a: []wire.Zxid{0}, b: []wire.Zxid{0}, explained: make(map[string]int),
		watchers: make(map[string]uint64)}
}

// note records the watches that a step may set.
func (c *comparer) note(step *Step) {
	for i := range step.Requests {
		for _, path := range step.Requests[i].watched() {
			c.watchers[asDecoded(path)] |= 1 << step.Slot
		}
	}
}

// watch says whether a slot may watch a path, and whether others may.
func (c *comparer) watch(path string, slot int) (itself, others bool) {
	slots := c.watchers[asDecoded(path)]
	return slots&(1<<slot) != 0, slots&^(1<<slot) != 0
}

// asDecoded is a path as a server has it, about: all bytes that are no UTF-8 become the same.
func asDecoded(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }

// difference is the first thing about which the servers do not agree.
type difference struct {
	step *Step
	what string
}

func (d *difference) String() string {
	return fmt.Sprintf("step %d: %v\n%s", d.step.ID, d.step, d.what)
}

// aftermath is the follow-up of a step, for both servers, on one slot.
type aftermath struct {
	slot    int
	confirm []Request // must be refused with NoAuth
	mend    []Request // bring the servers into the same state again
}

// streams compares the items that came over all connections because of a step.
func (c *comparer) streams(step *Step, a, b *side, from, to []stream) (after []aftermath, diff *difference) {
	c.note(step)
	names := func(list []stream) (text string) {
		for _, s := range list {
			text += " " + s.name()
		}
		return text
	}
	if names(from) != names(to) {
		return nil, &difference{step, fmt.Sprintf("  %s answers on%s\n  %s answers on%s", a.name, names(from), b.name,
			names(to))}
	}
	for i := range from {
		p := &pairing{c: c, step: step, a: a, b: b, slot: from[i].slot, after: aftermath{slot: from[i].slot}}
		if what := p.items(from[i].items, to[i].items); what != "" {
			return nil, &difference{step, "on " + from[i].name() + ":\n" + what}
		}
		if len(p.after.confirm)+len(p.after.mend) > 0 {
			after = append(after, p.after)
		}
	}
	return after, nil
}

// pairing compares two streams.
type pairing struct {
	c    *comparer
	step *Step
	a, b *side
	slot int

	authFailed bool // the last pair were two AuthFailed
	after      aftermath
}

// items compares two streams and returns "" or the difference.
func (p *pairing) items(from, to []item) string {
	if p.step.unordered() {
		from, to = p.sortEvents(from), p.sortEvents(to)
	}
	for len(from) > 0 || len(to) > 0 {
		x, y, what := first(from), first(to), "one of them sends no more"
		if x != nil && y != nil {
			if what = p.pair(x, y); what == "" {
				p.authFailed = x.kind == reply && x.header.Err == wire.CodeAuthFailed
				from, to = from[1:], to[1:]
				continue
			}
		}
		e := p.explain(x, y)
		if e == nil {
			return fmt.Sprintf("  %s\n%s\n  %s\n%s\n  (%s)", p.a.name, p.list(p.a, from), p.b.name, p.list(p.b, to),
				what)
		}
		p.c.explained[e.name]++
		from = from[1:]
		if !e.onlyA {
			to = to[1:]
		}
		if e.mend != nil {
			p.after.mend = append(p.after.mend, e.mend(x)...)
		}
		// A request behind it in the same step can have changed the node that confirm looks at.
		if last := len(p.step.Requests) - 1; e.confirm != nil && x.request == &p.step.Requests[last] {
			p.after.confirm = append(p.after.confirm, e.confirm(x))
		}
	}
	return ""
}

func first(items []item) *item {
	if len(items) == 0 {
		return nil
	}
	return &items[0]
}

// list is the rest of a stream, for a report.
func (p *pairing) list(s *side, items []item) string {
	if len(items) == 0 {
		return "    nothing"
	}
	var b strings.Builder
	for i := range min(len(items), 6) {
		l := s.describe(&items[i])
		fmt.Fprintf(&b, "    %s", l.text)
		for _, z := range l.zxids {
			fmt.Fprintf(&b, " %d", z.zxid)
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// pair compares two items and returns "" or the difference.
func (p *pairing) pair(x, y *item) string {
	l, m := p.a.describe(x), p.b.describe(y)
	if l.text != m.text {
		return "text"
	}
	if len(l.zxids) != len(m.zxids) {
		return "number of zxids"
	}
	for i := range l.zxids {
		if what := p.zxids(l.zxids[i], m.zxids[i]); what != "" {
			return what
		}
	}
	return ""
}

// zxids compares two zxids by their role.
func (p *pairing) zxids(x, y zref) string {
	switch x.role {
	case update:
		return p.c.update(x.zxid, y.zxid)
	case position:
		return p.c.position(x.zxid, y.zxid)
	}
	// Whether a notification is about an update is the same in both. Which one, the older server
	// does not say.
	if y.zxid != wire.ZxidNone && (y.zxid <= p.b.before || y.zxid > p.b.zxid) {
		return fmt.Sprintf("the notification's zxid %d is of no update of this step", y.zxid)
	}
	if x.zxid == wire.ZxidNone {
		if y.zxid == wire.ZxidNone && !p.setsWatches() {
			return "a notification without a zxid, though an update caused it"
		}
		return ""
	}
	return p.c.update(x.zxid, y.zxid)
}

// setsWatches says whether the step can cause notifications without an update on this slot.
func (p *pairing) setsWatches() bool {
	return p.slot == p.step.Slot && slices.ContainsFunc(p.step.Requests, func(r Request) bool {
		return r.Op == wire.OpSetWatches || r.Op == wire.OpSetWatches2
	})
}

// update takes two zxids for the same update.
func (c *comparer) update(x, y wire.Zxid) string {
	i, known := slices.BinarySearch(c.a, x)
	j, alsoKnown := slices.BinarySearch(c.b, y)
	if i != j || known != alsoKnown {
		return fmt.Sprintf("zxids %d and %d are of different updates", x, y)
	}
	if !known {
		c.a = slices.Insert(c.a, i, x)
		c.b = slices.Insert(c.b, j, y)
	}
	return ""
}

// position compares the numbers of updates.
func (c *comparer) position(x, y wire.Zxid) string {
	i, known := slices.BinarySearch(c.a, x)
	j, alsoKnown := slices.BinarySearch(c.b, y)
	if known {
		i++
	}
	if alsoKnown {
		j++
	}
	if i != j {
		return fmt.Sprintf("the header's zxids %d and %d are those of different states", x, y)
	}
	return ""
}

// sortEvents sorts every run of events.
func (p *pairing) sortEvents(items []item) []item {
	items = slices.Clone(items)
	for i := 0; i < len(items); {
		j := i
		for j < len(items) && items[j].kind == event {
			j++
		}
		slices.SortStableFunc(items[i:j], func(x, y item) int {
			return strings.Compare(p.a.describe(&x).text, p.b.describe(&y).text)
		})
		i = max(j, i+1)
	}
	return items
}
