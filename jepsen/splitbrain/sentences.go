package splitbrain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"lockkeeper/quorum"
)

// Heading writes the heading of the cases of one cluster.
func Heading(w io.Writer, cluster Group) {
	maj := quorum.NewMaj(cluster.Voters)
	fmt.Fprintf(w, "\n%s: a side may go on if set.size > %d/2, that is with %d; %d may fail",
		plural(cluster.Voters, "voter"), cluster.Voters, maj.Size(), maj.Tolerates())
	if cluster.Observers > 0 {
		fmt.Fprintf(w, "; and %s, which do not count", plural(cluster.Observers, "observer"))
	}
	fmt.Fprintln(w)
}

// Write writes a case: the events, a sentence a line, then wrong predictions.
func (r *Result) Write(w io.Writer) {
	verdict := "as predicted"
	if !r.OK() {
		verdict = "NOT AS PREDICTED"
	}
	fmt.Fprintf(w, "\n%s: %s\n", r.Name, verdict)
	for _, sentence := range slices.Concat(r.Sentences(), r.Notes) {
		fmt.Fprintf(w, "    %s\n", sentence)
	}
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(w, "  ✗ %s: %s\n", c.What, c.Got)
		}
	}
}

// Sentences describe the events of a case, with reasons, for somebody who learns it.
func (r *Result) Sentences() []string {
	var all []string
	goes := r.Case.Goes()
	for i := range r.Sides {
		if i == goes {
			all = append(all, r.sayGoing(i))
		} else {
			all = append(all, r.sayStopped(i))
		}
	}
	switch {
	case goes >= 0:
		all = append(all, r.sayLeases())
	case len(r.Sides) == 2 && r.Case.Sides[0].Voters == r.Case.Sides[1].Voters && r.Case.Dead.Voters == 0:
		all = append(all,
			"If one half could go on, the other could too: they know the same. So neither may, and an even number "+
				"of voters survives no more than the odd number below it.")
	case len(r.Sides) == 2:
		all = append(all,
			"Neither side is more than half of all voters, for the dead count among all: nobody who lives can know "+
				"that they will not come back.")
	default:
		all = append(all,
			"Those who are left cannot know whether the others are dead or just cut off and at work; so they stop.")
	}
	if r.Differ == "" && len(r.Replicas) > 0 {
		all = append(all, fmt.Sprintf("After healing all %d replicas had one history, "+
			"with every acknowledged write in it.", len(r.Replicas)))
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// formula writes out the rule for a side, as "2 > 4/2 is false".
func (r *Result) formula(side int) string {
	n, k := r.Case.Cluster.Voters, r.Case.Sides[side].Voters
	text := fmt.Sprintf("%d > %d/2", k, n)
	if n%2 == 1 {
		text += fmt.Sprintf(" = %d.5", n/2)
	}
	return fmt.Sprintf("%s is %t", text, r.Case.Quorum(side))
}

// sayVoters says who is on a side, as a subject.
func (r *Result) sayVoters(side int) string {
	g, seen := r.Case.Sides[side], r.Sides[side]
	text := fmt.Sprintf("%s: %d of %d voters", sideName(seen.Members), g.Voters, r.Case.Cluster.Voters)
	if g.Observers > 0 {
		text += fmt.Sprintf(" (%s, which do not count)", plural(g.Observers, "observer"))
	}
	return text
}

func (r *Result) sayGoing(side int) string {
	seen := r.Sides[side]
	text := r.sayVoters(side) + ". " + r.formula(side) + ", so they go on"
	if r.Case.Sides[side].size() == 1 {
		text = strings.ReplaceAll(text, "they go", "it goes")
	}
	leaders := slices.Sorted(maps.Keys(seen.Leading))
	switch {
	case len(leaders) != 1:
		return text + " – and " + leaderText(seen) + "."
	case leaders[0] == r.LeaderBefore:
		text += fmt.Sprintf(": m%d still leads", leaders[0])
	default:
		text += fmt.Sprintf(": m%d was elected, after %s", leaders[0], seen.Leading[leaders[0]])
	}
	return text +
		fmt.Sprintf("; the first write was acknowledged after %s, %s in all, and a lock was granted after %s.",
			seen.Wrote, plural(seen.Writes, "write"), seen.Lock)
}

func (r *Result) sayStopped(side int) string {
	seen := r.Sides[side]
	they, led := "they stop", ""
	if len(seen.Members) == 1 {
		they = "it stops"
	}
	if slices.Contains(seen.Members, r.LeaderBefore) {
		led = fmt.Sprintf(", although m%d had been the leader", r.LeaderBefore)
	}
	stopped, told := r.stopped(side)
	text := fmt.Sprintf("%s. %s, so %s%s.", r.sayVoters(side), r.formula(side), they, led)
	if seen.Writes > 0 || seen.Lock.Came() || len(seen.Inherited) > 0 {
		return text + fmt.Sprintf(" But it acknowledged %s and granted locks: %s.", plural(seen.Writes, "write"),
			granted(seen))
	}
	return text +
		fmt.Sprintf(" No write was acknowledged, no lock granted; the last member stopped serving after %s, and the "+
			"last client knew it after %s.", stopped, told)
}

// stopped is when the last member of a side stopped serving, and when its last client was told.
func (r *Result) stopped(side int) (stopped, told Instant) {
	stopped, told = Instant{came: true}, Instant{came: true}
	for _, id := range r.Sides[side].Members {
		stopped, told = later(stopped, r.Sides[side].Stopped[id]), later(told, r.Told[id])
	}
	return stopped, told
}

// sayLeases says whether there were two holders of one lock.
func (r *Result) sayLeases() string {
	switch {
	case r.Window > 0:
		return fmt.Sprintf("The clients of the members that were cut off held locks. For %s one of them was still "+
			"told that it is connected, while its lock had been given to somebody else.", seconds(r.Window))
	case r.Margin > 0:
		return fmt.Sprintf("The clients that were left behind held locks. Each knew that it is cut off before its "+
			"lock was given to somebody else: by %s at least.", seconds(r.Margin))
	}
	return ""
}

// predictedText says which side goes on, or why none does.
func (r *Result) predictedText() string {
	if goes := r.Case.Goes(); goes >= 0 {
		return r.Case.Arithmetic(goes) + " goes on"
	}
	var sides []string
	for i := range r.Case.Sides {
		sides = append(sides, r.Case.Arithmetic(i))
	}
	return "nobody: " + strings.Join(sides, ", ")
}

// happenedText describes the fate of the side that goes on, when the others stopped, and who knew
// it when.
func (r *Result) happenedText() string {
	var parts []string
	for i, seen := range r.Sides {
		_, kept := seen.Leading[r.LeaderBefore]
		switch stopped, _ := r.stopped(i); {
		case i != r.Case.Goes():
			parts = append(parts, "stopped after "+stopped.String())
		case kept:
			parts = append(parts, "keeps its leader")
		default:
			parts = append(parts, "writes again after "+seen.Wrote.String())
		}
	}
	switch {
	case r.Window > 0:
		parts = append(parts, "**two holders for "+seconds(r.Window)+"**")
	case r.Margin > 0:
		parts = append(parts, "told "+seconds(r.Margin)+" before")
	}
	if !r.OK() {
		parts = append(parts, "**not as predicted**")
	}
	return strings.Join(parts, ", ")
}
