package report

import (
	"html/template"
	"regexp"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// A Run is the input of a report. Fields that do not apply are zero; the page leaves out parts
// without data.
type Run struct {
	// Title is the run in one line, as "lock on 5 members under partition, kill".
	Title string `json:"title"`
	// Target is the server software, as "lockkeeper" or "zookeeper 3.8.0".
	Target string `json:"target"`
	// Began is when the history began, by the wall clock, as the logs have it; Took is the length
	// of the run, at least that of the history.
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"-"`
	// Seed decided the run's choices; Again the command line that makes them again.
	Seed  uint64 `json:"seed"`
	Again string `json:"again"`
	// Members are the members of the cluster; nil if the history names none.
	Members []Member `json:"members,omitempty"`
	// Settings are the configuration, in the order in which they are shown.
	Settings []Setting `json:"settings"`
	// Intro is shown below the title; empty for none.
	Intro []string `json:"-"`
	// Verdicts are the checkers'. Pictures, if there are any, are as many: each is shown with its
	// verdict.
	Verdicts []workload.Verdict `json:"verdicts"`
	Pictures []Picture          `json:"-"`
	// Complaints are the faults of the run itself: data races and panics of members, a client that
	// could not begin, a member that did not come back. A run that has any is not valid, whatever
	// the checkers say.
	Complaints []string `json:"complaints,omitempty"`
	// Ops is the history.
	Ops []jepsen.Op `json:"-"`
	// Faults are when something was broken.
	Faults []Fault `json:"-"`
	// Files are the files beside the page. Write adds those that it makes, and the sizes.
	Files []File `json:"-"`
	// Cases are the results case by case, for report.json; nil for none.
	Cases any `json:"cases,omitempty"`
}

// A Picture is shown with a verdict: a drawing, and below it lines of time.
type Picture struct {
	Drawn  template.HTML
	Length time.Duration // of the lanes
	Lanes  []Lane
}

// Scale is the scale of the lanes, for the template.
func (p Picture) Scale() scale { return scale{p.Length} }

// A Lane is a line of time.
type Lane struct {
	Name string
	Bars []Bar
}

// A Bar is a time in a Lane. Its class gives it its colour, in the style sheet.
type Bar struct {
	From, To time.Duration
	Class    string
}

// A Member is a server of the cluster.
type Member struct {
	Name string `json:"name"` // as in the faults and in the name of its log: m1
	Addr string `json:"addr"` // of its clients, as in the history
}

// A File is a file beside the page.
type File struct {
	Name      string // relative to the page
	SizeBytes int64
}

// About describes the content of the files that a run has.
func (f File) About() string {
	switch {
	case f.Name == historyName:
		return "each operation of the clients and each fault, one a line, in the order of time"
	case f.Name == "report.json":
		return "this page for programs"
	case strings.HasPrefix(f.Name, "traces"):
		return "the events of a member that the protocol was to explain"
	case memberLog.MatchString(f.Name):
		return "the log of a member"
	case strings.HasPrefix(f.Name, "client"):
		return "the log of a client's process and its library"
	}
	return ""
}

var memberLog = regexp.MustCompile(`^m\d+\.log$`)

// NoMajority is the Kind of the fault that no majority of the members can act.
const NoMajority = "no majority"

// A Fault is a time in which something was broken, or a moment at which something was done to the
// cluster.
type Fault struct {
	// Kind is its kind, in one word, as in the history: cut, kill, pause.
	Kind string `json:"kind"`
	// On is its target, as "m2" or "1 2 | 3 4 5".
	On string `json:"on,omitempty"`
	// From and To are since the start of the history. They are equal for a fault without length (a
	// transfer of leadership).
	From time.Duration `json:"fromNs"`
	To   time.Duration `json:"toNs"`
	// Open says that nothing ended it: it lasts until the end of the run, whatever To says.
	Open bool `json:"open,omitempty"`
}

// Lasted is how long it was.
func (f Fault) Lasted() time.Duration { return f.To - f.From }

// A Setting is one line of the configuration.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Valid is the verdict on the whole run: No if one checker says so or something was wrong with the
// run itself, else Unknown if one checker could not tell or there is none, else Yes.
func (r *Run) Valid() workload.Valid {
	valid := workload.Yes
	if len(r.Verdicts) == 0 {
		valid = workload.Unknown
	}
	for _, v := range r.Verdicts {
		switch {
		case v.Valid == workload.No:
			return workload.No
		case v.Valid != workload.Yes:
			valid = workload.Unknown
		}
	}
	if len(r.Complaints) > 0 {
		return workload.No
	}
	return valid
}

// faults are Faults, those that are open with their end.
func (r *Run) faults() []Fault {
	all := slices.Clone(r.Faults)
	for i := range all {
		if all[i].Open {
			all[i].To = r.length()
		}
	}
	return all
}

// length is how long the run was, at least to the end of the history, and never 0.
func (r *Run) length() time.Duration {
	length := max(r.Took, time.Millisecond)
	if n := len(r.Ops); n > 0 {
		length = max(length, r.Ops[n-1].Time)
	}
	for _, f := range r.Faults {
		length = max(length, f.To)
	}
	return length
}
