package trace

// Action is the kind of an event as the protocol sees it. The names are for people.
type Action string

// Actions are all of them, the rare ones among them: those that are known to be hard on a protocol.
var Actions = []Action{
	"start", "start during a change", "start after a set back", "adopt a term", "stand", "vote",
	"append as leader", "append as follower", "append a change", "cut", "cut own entries", "compact",
	"asked to append", "asked to append, older than its vote", "asked to vote", "asked to vote, older than its vote",
	"asked to install", "accept", "refuse", "grant a vote", "refuse a vote", "install", "refuse to install", "apply",
}

// Pair is two actions of one disk, one right after the other.
type Pair [2]Action

// note counts an event that is about to be added, and the pair that ends with it.
func (c *Checker) note(d *disk, e Event) {
	a := c.action(d, e)
	if a == "" {
		return
	}
	c.Seen[a]++
	if d.action != "" {
		c.Pairs[Pair{d.action, a}]++
	}
	d.action = a
}

func (c *Checker) action(d *disk, e Event) Action {
	switch e.Kind {
	case Started:
		return c.startAction(d)
	case SavedTerm:
		return "adopt a term"
	case SavedVote:
		if e.Of == d.id {
			return "stand"
		}
		return "vote"
	case Stored:
		return d.storeAction(e)
	case Removed:
		return d.removeAction(e)
	case Asked:
		return d.askAction(e)
	case Answered:
		return d.answerAction(e)
	case Applied:
		return "apply"
	}
	return ""
}

func (c *Checker) startAction(d *disk) Action {
	if d.setBack {
		return "start after a set back"
	}
	for _, w := range c.worlds { // a blank disk is in none yet
		if (d.world == nil || d.world == w) && w.newest != nil && !w.has(w.committed, w.newest) {
			return "start during a change"
		}
	}
	return "start"
}

func (d *disk) storeAction(e Event) Action {
	for _, x := range e.Entries {
		if x.Voters != nil {
			return "append a change"
		}
	}
	if n := len(e.Entries); n > 0 && d.leads(e.Entries[n-1].Term) {
		return "append as leader"
	}
	return "append as follower"
}

func (d *disk) removeAction(e Event) Action {
	switch {
	case e.First <= d.first:
		return "compact"
	case d.end != nil && d.leads(d.end.Term):
		return "cut own entries"
	}
	return "cut"
}

func (d *disk) askAction(e Event) Action {
	a := map[Request]Action{Append: "asked to append", Vote: "asked to vote", Install: "asked to install"}[e.Request]
	if e.Term < d.voteTerm && e.Request != Install {
		a += ", older than its vote"
	}
	return a
}

func (d *disk) answerAction(e Event) Action {
	yes, no := Action("accept"), Action("refuse")
	switch d.asks[e.Number].Request {
	case Vote:
		yes, no = "grant a vote", "refuse a vote"
	case Install:
		yes, no = "install", "refuse to install"
	case "":
		return "" // of a process before this one
	}
	if e.OK {
		return yes
	}
	return no
}

// leads reports whether the disk has been elected in a term.
func (d *disk) leads(n uint64) bool {
	return d.world != nil && d.world.terms[n] != nil && d.world.terms[n].leader == d.id
}
