package judge

import (
	"slices"
	"time"

	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/play"
)

// Figures are the figures of a case, over all its rounds.
type Figures struct {
	Rounds int `json:"rounds"`
	// Broken is the number of rounds that could not be played to their end. They count for nothing
	// else.
	Broken int `json:"broken,omitempty"`

	// Two is the number of rounds in which two clients held the lock at the same time, Longest for
	// how long at most.
	Two     int           `json:"two"`
	Longest time.Duration `json:"longestNs,omitempty"`
	// Early is the number of rounds in which that happened less than 0.9 leases after the first had
	// got the lock: not because it worked for longer than the lease.
	Early int `json:"early,omitempty"`
	// Bystanders is the number of rounds in which neither of the two was A, whom the fault hit.
	Bystanders int `json:"bystanders,omitempty"`
	// LostUpdates are the updates that were written over, by book.
	LostUpdates map[ledger.Rule]int `json:"lostUpdates,omitempty"`
	// RefusedWrites are the writes that the fenced book refused, RefusedInside those that the
	// system itself refused.
	RefusedWrites int `json:"refusedWrites,omitempty"`
	RefusedInside int `json:"refusedInside,omitempty"`
	// Places are the counters under a real fence, by the kind of their store.
	Places map[string]Place `json:"places,omitempty"`
	// Disorder is the number of grants with a token that was not larger than the token of an
	// earlier grant.
	Disorder int `json:"disorder,omitempty"`

	// Overtaken is the number of rounds in which another was let in before A gave the lock back or
	// died; Untold the number of those in which A did not know it when the other got the lock.
	Overtaken int `json:"overtaken"`
	Untold    int `json:"untold"`
	// Margin is by how much A was told before, the least of all; negative if it was told after.
	// Only if Overtaken.
	Margin time.Duration `json:"marginNs,omitempty"`

	// Free is how long after A's death another had the lock, sorted; Left the number of rounds in
	// which nobody had it as long as the lab waited.
	Free []time.Duration `json:"freeNs,omitempty"`
	Left int             `json:"left,omitempty"`

	// Of a story in which the network is cut between servers, sorted: how long after the cut A was
	// told, and another was let in; and the number of rounds in which A was given the lock anew.
	Told  []time.Duration `json:"toldNs,omitempty"`
	LetIn []time.Duration `json:"letInNs,omitempty"`
	Anew  int             `json:"anew,omitempty"`

	Cost *Cost `json:"cost,omitempty"`
	// Late is by how much the lab itself was late at most, because the machine was busy.
	Late time.Duration `json:"lateNs,omitempty"`
	// Worst is the round that shows most.
	Worst int `json:"worst"`
}

// Cost is the cost of a lock without a fault.
type Cost struct {
	Acquisitions int     `json:"acquisitions"` // all that were looked at
	LockP50Ms    float64 `json:"lockP50Ms"`    // alone
	LockP99Ms    float64 `json:"lockP99Ms"`
	UnlockP50Ms  float64 `json:"unlockP50Ms"`
	PerSecond    float64 `json:"perSecond"`  // of three clients that take turns, together
	HandoverMs   float64 `json:"handoverMs"` // from an unlock to the next holder, the median
	// Overtakes is the share of grants, 0 to 1, that went to a client while another had waited for
	// longer.
	Overtakes float64 `json:"overtakes"`
	// Requests is the number of requests of an acquisition with its release, alone, and InTurn with
	// three clients, who may be woken up in vain; negative if nothing counts them.
	Requests float64 `json:"requests"`
	InTurn   float64 `json:"requestsInTurn"`
}

// Place are the figures of the counters in one kind of store, behind its fence.
type Place struct {
	Rounds int `json:"rounds"`
	// Lost are the updates that the fence accepted and that are not in the counter at the end.
	Lost int `json:"lost,omitempty"`
	// Refused are the writes that the fence refused, by its rule.
	Refused int `json:"refused,omitempty"`
	// Doubt is the number of rounds in which a writer died within its write, or got an error that
	// leaves its outcome open. They count for nothing else.
	Doubt int `json:"doubt,omitempty"`
}

// add takes another's figures.
func (p Place) add(o Place) Place {
	return Place{p.Rounds + o.Rounds, p.Lost + o.Lost, p.Refused + o.Refused, p.Doubt + o.Doubt}
}

// AllPlaces are the figures of a case over all stores.
func (f Figures) AllPlaces() (sum Place) {
	for _, p := range f.Places {
		sum = sum.add(p)
	}
	return sum
}

// AddPlaces adds the figures of another case.
func (f *Figures) AddPlaces(o Figures) {
	for kind, p := range o.Places {
		if f.Places == nil {
			f.Places = make(map[string]Place)
		}
		f.Places[kind] = f.Places[kind].add(p)
	}
}

// Merge adds the figures of other rounds of the same case.
func (f *Figures) Merge(o Figures) {
	switch {
	case f.Overtaken == 0:
		f.Margin = o.Margin
	case o.Overtaken > 0:
		f.Margin = min(f.Margin, o.Margin)
	}
	f.Rounds, f.Broken, f.Two = f.Rounds+o.Rounds, f.Broken+o.Broken, f.Two+o.Two
	f.Longest, f.Late = max(f.Longest, o.Longest), max(f.Late, o.Late)
	f.Early, f.Bystanders, f.Disorder = f.Early+o.Early, f.Bystanders+o.Bystanders, f.Disorder+o.Disorder
	for rule, n := range o.LostUpdates {
		if f.LostUpdates == nil {
			f.LostUpdates = make(map[ledger.Rule]int)
		}
		f.LostUpdates[rule] += n
	}
	f.RefusedWrites, f.RefusedInside = f.RefusedWrites+o.RefusedWrites, f.RefusedInside+o.RefusedInside
	f.AddPlaces(o)
	f.Overtaken, f.Untold, f.Left, f.Anew = f.Overtaken+o.Overtaken, f.Untold+o.Untold, f.Left+o.Left, f.Anew+o.Anew
	for _, both := range []struct{ to, from *[]time.Duration }{{&f.Free, &o.Free}, {&f.Told, &o.Told}, {&f.LetIn, &o.LetIn}} {
		*both.to = append(*both.to, *both.from...)
		slices.Sort(*both.to)
	}
	if f.Cost == nil {
		f.Cost = o.Cost
	}
}

// place looks at the counter of a round. Each accepted write adds one, so that the counter says how
// many of them are in it.
func place(r play.Round) (p Place) {
	p.Rounds = 1
	accepted := int64(0)
	began := make(map[string]bool)
	for _, e := range r.Events {
		switch e.What {
		case play.Write:
			began[e.Who] = true
		case play.Sent: // to the ledger only
			delete(began, e.Who)
		case play.Counted:
			delete(began, e.Who)
			switch {
			case e.Entry.Doubt:
				p.Doubt = 1
			case e.Entry.Refused != "":
				p.Refused++
			default:
				accepted++
			}
		}
	}
	if p.Doubt > 0 || len(began) > 0 {
		return Place{Rounds: 1, Doubt: 1}
	}
	p.Lost = int(accepted - r.Count)
	return p
}

// Judge measures a case.
func Judge(c *play.Case) Figures {
	f := Figures{Rounds: len(c.Rounds), LostUpdates: make(map[ledger.Rule]int)}
	var worst time.Duration
	first := true
	for i, r := range c.Rounds {
		if r.Broken != "" {
			f.Broken++
			continue
		}
		weight := f.add(c, r)
		if first || weight > worst {
			f.Worst, worst, first = i, weight, false
		}
	}
	slices.Sort(f.Free)
	slices.Sort(f.Told)
	slices.Sort(f.LetIn)
	if c.Fault == play.None && len(c.Rounds) == 1 && f.Broken == 0 {
		f.Cost = cost(c.Rounds[0].Events)
		f.Cost.Requests, f.Cost.InTurn = c.Requests, c.InTurn
	}
	return f
}

// add takes a round into the figures, and says how much it shows.
func (f *Figures) add(c *play.Case, r play.Round) (weight time.Duration) {
	grants := Grants(r.Events)
	early, bystanders := false, false
	overlaps := Overlaps(grants)
	for _, o := range overlaps {
		f.Longest = max(f.Longest, o.To-o.From)
		weight = max(weight, o.To-o.From)
		early = early || o.Second.From-o.First.From < 9*c.Lease/10
		bystanders = bystanders || o.First.Who != "A" && o.Second.Who != "A"
	}
	f.Two += one(len(overlaps) > 0)
	f.Early += one(early)
	f.Bystanders += one(bystanders)
	for _, e := range r.Ledger {
		if e.Lost() {
			f.LostUpdates[e.Rule]++
			if e.Rule == ledger.Open {
				weight += time.Minute
			}
		}
		if e.Write && e.Rule == ledger.Fenced && e.Refused != "" && e.Token > 0 {
			f.RefusedWrites++
		}
		f.RefusedInside += one(e.Rule == ledger.Inside && e.Refused != "")
	}
	if r.Place != "" {
		p := place(r)
		if f.Places == nil {
			f.Places = make(map[string]Place)
		}
		f.Places[r.Place] = f.Places[r.Place].add(p)
		if p.Lost != 0 {
			weight += time.Hour
		}
	}
	f.Disorder += disorder(grants)
	if c.Fault == play.None {
		return weight
	}
	f.addFate(r, grants)
	f.addApart(r, grants)
	return weight + f.addFree(r, grants)
}

// addApart looks at the sides of a network that is cut between servers.
func (f *Figures) addApart(r play.Round, grants []Grant) {
	i := slices.IndexFunc(r.Events, func(e play.Event) bool { return e.What == play.Apart })
	if i < 0 {
		return
	}
	cut := r.Events[i].At
	other := slices.IndexFunc(grants, func(g Grant) bool { return g.Who != "A" && g.From > cut })
	if other >= 0 {
		f.LetIn = append(f.LetIn, grants[other].From-cut)
	}
	told := slices.IndexFunc(grants, func(g Grant) bool { return g.Who == "A" && g.Told > cut })
	if told >= 0 {
		f.Told = append(f.Told, grants[told].Told-cut)
	}
	f.Anew += one(slices.ContainsFunc(grants, func(g Grant) bool { return g.Who == "A" && g.From > cut }))
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// disorder counts grants with tokens that do not grow.
func disorder(grants []Grant) (n int) {
	largest := uint64(0)
	for _, g := range grants {
		n += one(g.Token > 0 && g.Token <= largest)
		largest = max(largest, g.Token)
	}
	return n
}

// addFate looks at the fate of A's lock while A lived.
func (f *Figures) addFate(r play.Round, grants []Grant) {
	for i, a := range grants {
		if a.Who != "A" {
			continue
		}
		for _, next := range grants[i+1:] {
			if next.Who == "A" || a.Over > 0 && next.From >= a.Over {
				continue
			}
			margin := next.From - a.Until // told, or never and still at work
			if f.Overtaken == 0 || margin < f.Margin {
				f.Margin = margin
			}
			f.Overtaken++
			f.Untold += one(margin < -Slack)
			return
		}
	}
}

// addFree looks at how long the lock outlived A.
func (f *Figures) addFree(r play.Round, grants []Grant) (took time.Duration) {
	var died time.Duration
	for _, e := range r.Events {
		if e.Who == "A" && e.What == play.Killed {
			died = e.At
		}
	}
	others := slices.DeleteFunc(slices.Clone(grants), func(g Grant) bool { return g.Who == "A" })
	if len(others) == 0 {
		f.Left++
		return time.Hour
	}
	if died == 0 || others[0].From < died {
		return 0
	}
	f.Free = append(f.Free, others[0].From-died)
	return others[0].From - died
}

// cost measures the story without a fault.
func cost(events []play.Event) *Cost {
	var c Cost
	turns := len(events) // where they begin
	for i, e := range events {
		if e.Who == "lab" && e.Text == play.TurnsText {
			turns = i
		}
	}
	var lock, unlock []time.Duration
	began := make(map[string]time.Duration)
	for _, e := range events[:turns] {
		switch e.What {
		case play.Lock, play.Unlock:
			began[e.Who] = e.At
		case play.Locked:
			c.Acquisitions++
			lock = append(lock, e.At-began[e.Who])
		case play.Unlocked:
			unlock = append(unlock, e.At-began[e.Who])
		}
	}
	slices.Sort(lock)
	slices.Sort(unlock)
	c.LockP50Ms, c.LockP99Ms, c.UnlockP50Ms = ms(at(lock, 0.5)), ms(at(lock, 0.99)), ms(at(unlock, 0.5))
	c.addTurns(events[turns:])
	return &c
}

// addTurns measures the part in which all clients take turns.
func (c *Cost) addTurns(events []play.Event) {
	waiting := make(map[string]time.Duration)
	n, overtakes := 0, 0
	var handovers []time.Duration
	var first, last, unlocked time.Duration
	for _, e := range events {
		switch e.What {
		case play.Lock:
			waiting[e.Who] = e.At
		case play.Unlock:
			unlocked = e.At
		case play.Locked:
			n++
			for who, since := range waiting {
				// Events within a millisecond are at the same time.
				if who != e.Who && since < waiting[e.Who]-time.Millisecond {
					overtakes++
					break
				}
			}
			if since := waiting[e.Who]; unlocked > since { // it waited for that
				handovers = append(handovers, e.At-unlocked)
			}
			delete(waiting, e.Who)
			if first == 0 {
				first = e.At
			}
			last = e.At
		}
	}
	c.Acquisitions += n
	if n > 1 && last > first {
		c.PerSecond = float64(n-1) / (last - first).Seconds()
		c.Overtakes = float64(overtakes) / float64(n)
	}
	slices.Sort(handovers)
	c.HandoverMs = ms(at(handovers, 0.5))
}

// at is a quantile of sorted durations; 0 of none.
func at(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Median and Last return an element of sorted durations.
func Median(sorted []time.Duration) time.Duration { return at(sorted, 0.5) }
func Last(sorted []time.Duration) time.Duration   { return at(sorted, 1) }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Violations are, in words, outcomes that no lock may have in this case, except by its nature: for
// the planted bugs, and for the exit status of runs without a fault. A lease that ends while its
// holder is stopped or cut off is no such thing, and who locks nothing has holders side by side.
func (f Figures) Violations(way lock.Way, fault string) (found []string) {
	add := func(is bool, text string) {
		if is {
			found = append(found, text)
		}
	}
	add(f.Two > 0 && fault == play.None && !way.Optimistic, "two holders without any fault")
	add(f.LostUpdates[ledger.Open] > 0 && fault == play.None && !way.Optimistic, "lost updates without any fault")
	add(f.Bystanders > 0 && !way.Optimistic, "two holders whom no fault hit")
	add(f.Disorder > 0, "tokens that do not grow")
	add(f.LostUpdates[ledger.Fenced] > 0, "lost updates in spite of the fence")
	for kind, p := range f.Places {
		add(p.Lost != 0, "lost updates in spite of the fence in "+kind)
	}
	add(f.LostUpdates[ledger.Inside] > 0, "lost updates of data that the system itself keeps")
	apart, _ := play.FindFault(fault)
	majority := apart.Left > 0 && apart.Left+apart.Right > 2
	add(majority && f.Anew > 0, "a side without a majority gives the lock away")
	add(majority && apart.Left == apart.Right && len(f.LetIn) > 0, "a half gives the lock away")
	add(f.Left > 0 && apart.Left == 0, "a lock that is left behind")
	return found
}
