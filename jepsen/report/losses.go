package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// A Loss is a grant of a lock that ended against the will of its holder, mostly because the session
// of the holder could not be proved to live. Times are since the start of the history.
type Loss struct {
	Lock      string `json:"lock"`
	Mode      string `json:"mode"`
	Contender string `json:"contender"`
	Session   string `json:"session,omitempty"`
	Token     int64  `json:"token,omitempty"`
	// Member is the member with the connection of the holder, when it was lost.
	Member string `json:"member,omitempty"`
	// Reason are the words in which the holder was told.
	Reason string `json:"reason,omitempty"`
	// Causes say which faults were on, the likeliest first, each as a sentence.
	Causes []string `json:"causes"`
	// Granted is when it had the lock. Heard is when its client received the last byte of the
	// cluster; 0 if that is not known.
	Granted time.Duration `json:"grantedNs"`
	Heard   time.Duration `json:"heardNs,omitempty"`
	// Told is when the holder was told first that it may not have the lock any more: by its library
	// (no connection), or by the grant itself at Lost.
	Told time.Duration `json:"toldNs"`
	Lost time.Duration `json:"lostNs"`
	// Next is the next contender that the lock was granted to, at NextAt, and had asked for it at
	// NextAsked; empty if there was none.
	Next      string        `json:"next,omitempty"`
	NextAsked time.Duration `json:"nextAskedNs,omitempty"`
	NextAt    time.Duration `json:"nextAtNs,omitempty"`
	// LateAccepted and LateRefused count the writes with the lost token that the holder tried
	// afterwards, by the answer of the resource.
	LateAccepted int `json:"lateAccepted,omitempty"`
	LateRefused  int `json:"lateRefused,omitempty"`
	// Line is the line of history.jsonl with the loss.
	Line int `json:"line"`

	events []event
	faults []Fault
}

// Margin is how long after the holder was told the next one had the lock. It is negative for a
// holder that was told late, as one that was stopped.
func (l Loss) Margin() time.Duration { return l.NextAt - l.Told }

// An event is a line of the story of a loss.
type event struct {
	At   time.Duration
	Text string
}

// A clientEvents has the entries of each worker that say something about its connection, in order.
type clientEvents map[string][]jepsen.Op

func findClientEvents(ops []jepsen.Op) clientEvents {
	events := make(clientEvents)
	for _, op := range ops {
		switch op.F {
		case jepsen.FConnected, jepsen.FSuspended, jepsen.FExpired, jepsen.FPause, jepsen.FResume, jepsen.FCut,
			jepsen.FHeal, workload.FDark, workload.FLight:
			if worker := workerOf(op); worker != "" {
				events[worker] = append(events[worker], op)
			}
		}
	}
	return events
}

// during finds a time that begins with an entry of the one kind and ends with the other, and
// overlaps another time.
func during(events []jepsen.Op, begin, end string, from, to time.Duration) (span, bool) {
	var open *jepsen.Op
	for i, op := range events {
		switch {
		case op.F == begin:
			open = &events[i]
		case op.F == end && open != nil:
			if open.Time <= to && op.Time >= from {
				return span{open.Time, op.Time}, true
			}
			open = nil
		}
	}
	if open != nil && open.Time <= to {
		return span{open.Time, to}, true
	}
	return span{}, false
}

// findLosses finds the grants that were lost, and why, in the order in which they were.
func (r *Run) findLosses(holds []*hold) []Loss {
	clients := findClientEvents(r.Ops)
	faults := r.faults()
	byLock := make(map[string][]*hold)
	for _, h := range holds {
		byLock[h.grant.Lock] = append(byLock[h.grant.Lock], h)
	}
	var losses []Loss
	for _, h := range holds {
		if !h.lost() {
			continue
		}
		worker := workerOf(h.grant)
		l := Loss{
			Lock: h.grant.Lock, Mode: string(h.grant.Mode), Contender: cmp.Or(h.grant.Contender, worker),
			Session: h.grant.Session, Token: h.grant.Token, Granted: h.grant.Time, Lost: h.to, Told: h.to,
			Reason: h.released.Note, LateAccepted: h.late[0], LateRefused: h.late[1], Line: h.line,
		}
		r.tell(&l, h, clients[worker])
		for _, next := range byLock[h.grant.Lock] {
			after := h.grant.Time
			if h.grant.Mode == jepsen.Lease {
				after = l.Told // the other leases are somebody's all the time
			}
			if next != h && next.grant.Time > after && next.excludes(h) {
				l.Next, l.NextAsked, l.NextAt = cmp.Or(next.grant.Contender, workerOf(next.grant)), next.asked, next.grant.Time
				break
			}
		}
		r.explain(&l, clients[worker], faults)
		l.story(h, clients[worker])
		losses = append(losses, l)
	}
	slices.SortStableFunc(losses, func(a, b Loss) int { return cmp.Compare(a.Lost, b.Lost) })
	return losses
}

// belated is how long after the loss the library may say that it is without a connection, so that
// it says it of the same silence.
const belated = 10 * time.Millisecond

// tell fills in what the holder heard, from whom, and when it was told.
func (r *Run) tell(l *Loss, h *hold, events []jepsen.Op) {
	heard := func(op jepsen.Op) {
		if silent, ok := silence(op); ok {
			l.Heard = max(0, op.Time-silent)
		}
	}
	heard(h.released)
	for _, op := range events {
		if op.Time > l.Lost+belated {
			break
		}
		if op.Member != "" {
			l.Member = r.memberName(op.Member)
		}
		switch {
		case op.Time < l.Granted:
		case op.F == jepsen.FConnected:
			l.Told = l.Lost // it knew that it was connected again
		case op.F == jepsen.FSuspended || op.F == jepsen.FExpired:
			l.Told = min(l.Told, op.Time)
			if l.Heard == 0 {
				heard(op)
			}
		}
	}
}

// memberName is the name of the member with a client address, or else the address.
func (r *Run) memberName(addr string) string {
	for _, m := range r.Members {
		if m.Addr == addr {
			return m.Name
		}
	}
	return addr
}

// reach is how long before the last byte a fault that is over may have mattered: its last effects
// are on their way.
const reach = 200 * time.Millisecond

// maxOtherFaults bounds the faults that a loss names though they name neither its member nor its
// client.
const maxOtherFaults = 6

// memberNames are the members that a fault names.
var memberNames = regexp.MustCompile(`\bm\d+\b`)

// A cause is a fault that was on, or another reason of a loss.
type cause struct {
	rank  int // how likely it is the reason: the smallest first
	text  string
	fault *Fault // nil for a reason of the client itself
}

// rankOf is how likely a fault of its member costs a holder its lock. A member that stands still or
// hears nobody does; a clock that jumps must not.
func rankOf(kind string) int {
	switch kind {
	case "partition", "kill", "power", "pause", "suspend", "lone-leader":
		return 1
	case NoMajority:
		return 2
	case "slow", "lossy":
		return 4
	case "transfer":
		return 5
	case "clock":
		return 6
	}
	return 3 // disks, addresses, membership
}

// explain finds the faults that were on between the last byte that the holder heard and the moment
// at which it was told.
func (r *Run) explain(l *Loss, events []jepsen.Op, faults []Fault) {
	from := max(cmp.Or(l.Heard, l.Granted)-reach, 0)
	var causes []cause
	own := func(begin, end, format string) {
		if s, ok := during(events, begin, end, from, l.Told); ok {
			causes = append(causes, cause{text: fmt.Sprintf(format, at(s.from), at(s.to))})
		}
	}
	if l.Reason == workload.NoteDeleted {
		causes = append(causes, cause{text: "Another client deleted the node of the lock."})
	}
	own(jepsen.FPause, jepsen.FResume, "The process of the holder was stopped from %s to %s: it could neither hear "+
		"nor be told.")
	own(jepsen.FCut, jepsen.FHeal, "The link between the holder and its member was cut from %s to %s.")
	own(workload.FDark, workload.FLight, "The client of the holder lost every byte, in both directions, from %s to "+
		"%s: the workload does that, to see if the library notices in time.")
	var others []string
	for i, f := range faults {
		switch {
		case f.From > l.Told || f.To < from || f.Kind == "pause-client":
		case f.Kind == NoMajority:
			causes = append(causes, cause{rankOf(f.Kind), fmt.Sprintf("No majority of the members could act from %s to %s.",
				at(f.From), at(f.To)), &faults[i]})
		case slices.Contains(memberNames.FindAllString(f.On, -1), l.Member):
			causes = append(causes, cause{rankOf(f.Kind), "Its member " + l.Member + ": " + f.text() + ".", &faults[i]})
		default:
			others = append(others, f.text())
		}
	}
	slices.SortStableFunc(causes, func(a, b cause) int { return cmp.Compare(a.rank, b.rank) })
	for _, c := range causes {
		l.Causes = append(l.Causes, c.text)
		if c.fault != nil {
			l.faults = append(l.faults, *c.fault)
		}
	}
	if n := len(others); n > maxOtherFaults {
		others = append(others[:maxOtherFaults], fmt.Sprintf("%d more", n-maxOtherFaults))
	}
	switch {
	case len(others) > 0:
		l.Causes = append(l.Causes, "On other members at that time: "+strings.Join(others, "; ")+".")
	case len(causes) == 0:
		l.Causes = append(l.Causes, "No fault was on.")
	}
}

// name is a fault without its times.
func (f Fault) name() string {
	if f.On == "" {
		return f.Kind
	}
	return f.Kind + " (" + clip(f.On) + ")"
}

// text is a fault in words.
func (f Fault) text() string {
	if f.Lasted() == 0 {
		return f.name() + " at " + at(f.From)
	}
	return f.name() + " from " + at(f.From) + " to " + at(f.To)
}

// at is a time of the run in a sentence.
func at(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// maxStory bounds the lines of one story.
const maxStory = 24

// story makes the lines of a loss, in the order of time.
func (l *Loss) story(h *hold, events []jepsen.Op) {
	add := func(at time.Duration, format string, args ...any) {
		l.events = append(l.events, event{at, fmt.Sprintf(format, args...)})
	}
	granted := l.Contender + " gets the lock"
	if l.Token != 0 {
		granted += fmt.Sprintf(", token %#x", l.Token)
	}
	if l.Session != "" {
		granted += ", session " + l.Session
	}
	add(l.Granted, "%s", granted)
	if l.Heard > 0 {
		add(l.Heard, "its client receives its last byte before the loss")
	}
	until := max(l.Lost+belated, l.NextAt)
	for _, op := range events {
		if op.Time >= l.Granted && op.Time <= until && len(l.events) < maxStory {
			text := clientStory[op.F]
			if silent, ok := silence(op); ok {
				text += ", after " + at(silent) + " of silence"
			}
			add(op.Time, "%s", text)
		}
	}
	for _, f := range l.faults {
		if len(l.events) < maxStory {
			add(f.From, "fault: %s", f.name())
			if f.Lasted() > 0 && f.To <= until {
				add(f.To, "over: %s", f.name())
			}
		}
	}
	if h.released.F == jepsen.FLost {
		add(l.Lost, "its grant says: lost%s", parenthesis(l.Reason))
	}
	if l.Next != "" {
		if l.NextAsked > l.Granted {
			add(l.NextAsked, "%s asks for the lock", l.Next)
		}
		add(l.NextAt, "%s has the lock, %s", l.Next, l.MarginText())
	}
	slices.SortStableFunc(l.events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
}

// clientStory has the entries of a client in words.
var clientStory = map[string]string{
	jepsen.FConnected: "its library says: connected",
	jepsen.FSuspended: "its library says: no connection",
	jepsen.FExpired:   "its library says: the session is over",
	jepsen.FPause:     "its process is stopped",
	jepsen.FResume:    "its process goes on",
	jepsen.FCut:       "its link is cut",
	jepsen.FHeal:      "its link is whole again",
	workload.FDark:    "its client begins to throw away every byte",
	workload.FLight:   "its client lets bytes through again",
}

func parenthesis(s string) string {
	if s == "" {
		return ""
	}
	return " (" + clip(s) + ")"
}

// MarginText is the margin in words.
func (l Loss) MarginText() string {
	switch {
	case l.Next == "":
		return "nobody had it afterwards"
	case l.Margin() < 0:
		return at(-l.Margin()) + " before the first one was told"
	}
	return at(l.Margin()) + " after the first one was told"
}

// A lossView is a loss as the page shows it: a heading, the story, and a strip of time.
type lossView struct {
	Loss
	N        int
	Headline string // its likeliest cause
	LogTime  string // of the loss in the logs; empty if unknown
	Log      string // the log of its member; empty if there is none
	Lanes    []lossLane
	Ticks    []tick
}

// Story are the lines of the story.
func (l lossView) Story() []event { return l.events }

// A lossLane is a line of the strip.
type lossLane struct {
	Name string
	Bars []lossBar
}

// A lossBar is a time in a lossLane, as SVG has it.
type lossBar struct{ Class, X, Width string }

// maxLossFaults bounds the faults in the strip.
const maxLossFaults = 3

// viewLoss is loss number n.
func (r *Run) viewLoss(n int, l Loss) lossView {
	v := lossView{Loss: l, N: n, Headline: l.Causes[0]}
	if !r.Began.IsZero() && r.Members != nil {
		v.LogTime = r.Began.Add(l.Lost).UTC().Format("15:04:05.000")
	}
	if name := l.Member + ".log"; slices.ContainsFunc(r.Files, func(f File) bool { return f.Name == name }) {
		v.Log = name
	}
	// From the last sign of life, or the grant, to the next holder; a little more on both sides.
	from, to := cmp.Or(l.Heard, l.Granted), max(l.Lost, l.NextAt)
	room := (to - from) / 10
	from, to = max(0, from-room), to+room
	s := scale{max(to-from, time.Millisecond)}
	bar := func(class string, begin, end time.Duration) lossBar {
		begin, end = min(max(begin, from), to), min(max(end, from), to)
		return lossBar{class, s.X(begin - from), num(max(s.x(end-begin), 1))}
	}
	for i, f := range l.faults[:min(len(l.faults), maxLossFaults)] {
		v.Lanes = append(v.Lanes, lossLane{f.Kind, []lossBar{bar("k"+num(float64(i)), f.From, f.To)}})
	}
	holder := lossLane{Name: l.Contender}
	if heard := cmp.Or(l.Heard, l.Told); heard >= l.Granted {
		holder.Bars = []lossBar{bar("heard", l.Granted, heard), bar("silent", heard, max(l.Told, heard))}
	} else {
		holder.Bars = []lossBar{bar("silent", l.Granted, l.Told)}
	}
	v.Lanes = append(v.Lanes, holder)
	if l.Next != "" {
		v.Lanes = append(v.Lanes, lossLane{l.Next, []lossBar{bar("next", l.NextAt, to)}})
	}
	step := roundStep(s.length, 5)
	for d := (from + step - 1).Truncate(step); d <= to; d += step {
		v.Ticks = append(v.Ticks, tick{s.percent(d - from), clock(d, step)})
	}
	return v
}
