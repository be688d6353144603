package attack

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
)

// Bounds for bystanders of an attack.
const (
	// userP99Ms is the value that the 99th percentile of the lock users' operations may have in any
	// case.
	userP99Ms = 100
	// memoryBytes bounds the memory of a member under attack (docs/operations.md).
	memoryBytes = 1 << 30
)

// A Result is the result of one attack.
type Result struct {
	Attack string `json:"attack"`
	Port   Port   `json:"port"`
	Sends  string `json:"sends"`
	// Member is who was attacked.
	Member string `json:"member"`
	// SentBytes counts the attacker's bytes, Seen how often it saw each outcome.
	SentBytes int64          `json:"sentBytes"`
	Seen      map[string]int `json:"seen"`
	// BeforeMs and P99Ms are the 99th percentile of the lock users' operations just before and
	// during the attack.
	BeforeMs float64 `json:"beforeMs"`
	P99Ms    float64 `json:"p99Ms"`
	// PeakBytes is the most memory that a member took, AfterBytes the memory of the largest one
	// after the attack.
	PeakBytes  int64 `json:"peakBytes"`
	AfterBytes int64 `json:"afterBytes"`
	// TookMs is how long the attack lasted, RestartMs how long all members took to serve again from
	// their disks, 0 if they were not restarted.
	TookMs    int64 `json:"tookMs"`
	RestartMs int64 `json:"restartMs,omitempty"`
	// Failures lists the violated criteria.
	Failures []string `json:"failures,omitempty"`
	slow     bool     // one of them is about BeforeMs and P99Ms
}

// OK says whether the attack did no harm, and was one.
func (r *Result) OK() bool { return len(r.Failures) == 0 }

func (r *Result) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// onlySlow says whether nothing was wrong but the time that the lock users' operations took.
func (r *Result) onlySlow() bool { return r.slow && len(r.Failures) == 1 }

// undecided says whether another try, for longer, may tell more: nothing was wrong but the time
// that the lock users' operations took, and that the attack saw too little. On a busy machine both
// happen to an attack that does no harm.
func (r *Result) undecided() bool {
	harms := 0
	for _, f := range r.Failures {
		if isHarm(f) {
			harms++
		}
	}
	return len(r.Failures) > 0 && (harms == 0 || r.slow && harms == 1)
}

// percentile is the 99th percentile, in milliseconds.
func percentile(all []time.Duration) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[len(all)*99/100].Microseconds()) / 1000
}

// A Document is the results of all attacks on one target.
type Document struct {
	Target  string
	Results []*Result

	cfg     Config
	began   time.Time
	history *jepsen.History
	faults  []report.Fault
}

// Stood counts the attacks without harm.
func (d *Document) Stood() (n int) {
	for _, r := range d.Results {
		if r.OK() {
			n++
		}
	}
	return n
}

// Report is the run as jepsen/report shows it: the lock users' operations, with the attacks as
// faults.
func (d *Document) Report() *report.Run {
	run := &report.Run{
		Title: fmt.Sprintf("%d attacks on %s", len(d.Results), d.Target), Target: d.Target, Began: d.began,
		Took: time.Since(d.began),
		Seed: d.cfg.Seed, Again: d.cfg.Again, Ops: d.history.Ops(), Faults: d.faults, Cases: d.Results,
		Settings: []report.Setting{{Name: "time of each attack", Value: d.cfg.Each.String()}},
	}
	for _, r := range d.Results {
		v := workload.Verdict{Checker: r.Attack, Promise: "C9", Valid: workload.Yes, Text: r.Text()}
		for _, f := range r.Failures {
			v.Valid = workload.No
			v.Violations = append(v.Violations, workload.Violation{Text: f})
		}
		run.Verdicts = append(run.Verdicts, v)
	}
	return run
}

// Text is the result as one sentence.
func (r *Result) Text() string {
	text := fmt.Sprintf("%s: %.1f MB sent, the attacker saw %s; p99 of the lock users %.0f ms (before: %.0f), a "+
		"member took %d MB",
		r.Sends, float64(r.SentBytes)/1e6, outcomes(r.Seen), r.P99Ms, r.BeforeMs, r.PeakBytes>>20)
	if r.RestartMs > 0 {
		text += fmt.Sprintf(", restart in %d ms", r.RestartMs)
	}
	return text
}

// Heading writes the head of the table on a terminal.
func Heading(w io.Writer) {
	fmt.Fprintf(w, "%-20s %-8s %-8s %16s %15s %9s %8s  %s\n", "attack", "port", "verdict", "p99 before, in it",
		"most MB, after", "sent MB", "restart", "the attacker saw")
}

// Row writes one result as a row, and its failures below it.
func (r *Result) Row(w io.Writer) {
	restart := ""
	if r.RestartMs > 0 {
		restart = fmt.Sprintf("%d ms", r.RestartMs)
	}
	fmt.Fprintf(w, "%-20s %-8s %-8s %7.0f %6.0f ms %8d %6d %9.1f %8s  %s\n", r.Attack, r.Port, r.verdict(), r.BeforeMs,
		r.P99Ms,
		r.PeakBytes>>20, r.AfterBytes>>20, float64(r.SentBytes)/1e6, restart, outcomes(r.Seen))
	for _, f := range r.Failures {
		first, rest, _ := strings.Cut(f, "\n")
		if fmt.Fprintf(w, "    %s\n", first); rest != "" {
			fmt.Fprintf(w, "      (%d lines more, in the report)\n", strings.Count(rest, "\n")+1)
		}
	}
}

// verdict is the result in one word.
func (r *Result) verdict() string {
	switch {
	case r.OK():
		return "stands"
	case !slices.ContainsFunc(r.Failures, isHarm):
		return "unplayed" // so nobody knows
	}
	return "harmed"
}

// tooLittle begins a failure of the attack itself.
const tooLittle = "saw too little: "

// isHarm says whether a failure is one of the member.
func isHarm(failure string) bool { return !strings.HasPrefix(failure, tooLittle) }

// Table is the results as a table in Markdown, with columns for each target.
func Table(all []*Document) string {
	var b strings.Builder
	b.WriteString("\n| attack | sends |")
	for _, d := range all {
		fmt.Fprintf(&b, " %s | p99, ms | most MB |", d.Target)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|---:|---:|", len(all)))
	for _, a := range All() {
		row, played := fmt.Sprintf("| %s | %s |", a.Name, a.Sends), false
		for _, d := range all {
			r := d.find(a.Name)
			if r == nil {
				row += " not played | | |"
				continue
			}
			played = true
			row += fmt.Sprintf(" %s | %.0f (%.0f) | %d |", r.short(), r.P99Ms, r.BeforeMs, r.PeakBytes>>20)
		}
		if played {
			fmt.Fprintln(&b, row)
		}
	}
	return b.String() + "\n"
}

// short is the verdict with the first failure.
func (r *Result) short() string {
	if r.OK() {
		return r.verdict()
	}
	// Harm to others comes before attacks that were not played.
	first := max(0, slices.IndexFunc(r.Failures, isHarm))
	text, _, _ := strings.Cut(r.Failures[first], "\n")
	if more := len(r.Failures) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return r.verdict() + ": " + strings.ReplaceAll(text, "|", "\\|")
}

// find is the result of an attack, nil if it was not played.
func (d *Document) find(name string) *Result {
	for _, r := range d.Results {
		if r.Attack == name {
			return r
		}
	}
	return nil
}
