package page

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/play"
)

// sentences are the sentences of a story for the clients' events.
var sentences = map[string]string{
	play.Lock:     "asks for the lock",
	play.Refused:  "does not get the lock",
	play.Lost:     "is told by its library that the lock is lost",
	play.Checked:  "looks at the lock: it holds it, says its library",
	play.GaveUp:   "looks at the lock: it is lost; so it does not write",
	play.Write:    "writes",
	play.Sent:     "has sent its write, and does not wait for the answer",
	play.Stored:   "writes the data that the system itself has",
	play.Counted:  "writes the counter in a store, behind its fence",
	play.Unlock:   "gives the lock back",
	play.Unlocked: "has given the lock back",
	play.Failed:   "cannot go on",
	play.Paused:   "is stopped (SIGSTOP)",
	play.Resumed:  "wakes up (SIGCONT)",
	play.Killed:   "dies (SIGKILL)",
}

// A line is one line of a story.
type line struct {
	at        time.Duration
	who, text string
}

// Start is the time from which a story counts: the first request for the lock.
func start(r play.Round) time.Duration {
	for _, e := range r.Events {
		if e.What == play.Lock {
			return e.At
		}
	}
	return 0
}

// lines are a round as a story.
func lines(r play.Round) []line {
	var all []line
	for _, e := range r.Events {
		l := line{e.At, e.Who, sentences[e.What]}
		switch e.What {
		case play.Ready, play.Written, play.Looped:
			continue
		case play.Locked:
			l.text = "has the lock"
			if e.Token > 0 {
				l.text += fmt.Sprintf(", with token %d", e.Token)
			}
		case play.Stored, play.Counted:
			if e.Entry.Refused != "" {
				l.text += ", and is refused: " + e.Entry.Refused
			}
		case play.Read:
			l.text = fmt.Sprintf("reads the counter: %d", e.Books[ledger.Open])
		case play.Apart, play.Broke, play.Healed:
			l.text = e.Text
		default:
			if e.Text != "" {
				l.text += ": " + e.Text
			}
		}
		if l.who != "lab" {
			l.who = "client " + l.who
		}
		all = append(all, l)
	}
	for _, e := range r.Ledger {
		if e.Write && e.Rule == ledger.Open {
			all = append(all, line{e.At, "resource", e.Holder + "'s write arrives: " + arrival(r, e)})
		}
	}
	for _, o := range judge.Overlaps(judge.Grants(r.Events)) {
		all = append(all, line{o.From, "lab", fmt.Sprintf("NOW %s AND %s HOLD THE LOCK, for %.3f s", o.First.Who, o.Second.Who,
			(o.To - o.From).Seconds())})
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	return all
}

// arrival describes the outcome of a write in the books.
func arrival(r play.Round, e ledger.Entry) string {
	text := fmt.Sprintf("the counter is %d", e.Base+1)
	if e.Lost() {
		text = fmt.Sprintf("the counter was %d and is %d: AN UPDATE IS LOST", e.Before, e.Base+1)
	}
	for _, f := range r.Ledger {
		if f.Write && f.Rule == ledger.Fenced && f.At == e.At && f.Holder == e.Holder && e.Token > 0 {
			switch {
			case f.Refused != "":
				text += "; a fence refuses it"
			case f.Lost():
				text += "; the fence lets it pass"
			}
		}
	}
	return text
}

// Story prints a round.
func Story(w io.Writer, c *play.Case, r play.Round) {
	f, _ := play.FindFault(c.Fault)
	fmt.Fprintf(w, "%s, with a lease of %v. %s\n\n", c.Name(), c.Lease, f.Text)
	zero := start(r)
	for _, l := range lines(r) {
		fmt.Fprintf(w, "%9.3f s  %-10s %s\n", (l.at - zero).Seconds(), l.who, l.text)
	}
	if r.Broken != "" {
		fmt.Fprintf(w, "\nThe story could not be played to its end: %s\n", r.Broken)
	}
}
