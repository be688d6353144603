package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// lossHistory makes histories of locks: each line is "time worker kind f rest", where rest is the
// lock for acquire and lost, the silence for suspended, and the address for connected.
func lossHistory(t *testing.T, lines ...string) []jepsen.Op {
	t.Helper()
	var ops []jepsen.Op
	for _, line := range lines {
		var seconds float64
		var op jepsen.Op
		var rest string
		if _, err := fmt.Sscan(line, &seconds, &op.Worker, &op.Kind, &op.F, &rest); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		op.Time = time.Duration(seconds * float64(time.Second))
		switch op.F {
		case jepsen.FSuspended:
			op.Value = rest
		case jepsen.FConnected:
			op.Member = rest
		case jepsen.FAcquire, jepsen.FRelease, jepsen.FLost, workload.FUse:
			op.Contender = op.Worker + "/1"
			op.Lock, rest, _ = strings.Cut(rest, ",")
			op.Mode = jepsen.Exclusive
			if mode, is := strings.CutPrefix(rest, "mode="); is {
				op.Mode = jepsen.Mode(mode)
			}
			if op.F == jepsen.FLost {
				op.Note = rest
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// lossCases have a history for each way to lose a lock, with the causes on the page, the moment at
// which the holder was told, and the margin.
var lossCases = []struct {
	name    string
	history []string
	faults  []Fault
	causes  []string
	told    string
	margin  string
	page    []string // other parts of the page
}{
	{
		name: "its member is cut off, and no majority is left",
		history: []string{"0.5 a info connected 10.0.0.3:1", "1 a invoke acquire /l", "1.1 a ok acquire /l", "1.2 b invoke acquire /l",
			"4 a info suspended 2600", "4.2 a info lost /l,silent", "6 b ok acquire /l"},
		faults: []Fault{{Kind: "clock", On: "m3: 1h", From: 0, To: 9 * time.Second},
			{Kind: "slow", On: "m2", From: 1 * time.Second, To: 2 * time.Second},
			{Kind: NoMajority, From: 2 * time.Second, To: 3 * time.Second},
			{Kind: "partition", On: "m3 hears nobody", From: 2 * time.Second, To: 5 * time.Second},
			{Kind: "kill", On: "m3", From: 5 * time.Second, To: 6 * time.Second}, // after the loss
			{Kind: "pause", On: "m30", From: 2 * time.Second, To: 5 * time.Second}},
		causes: []string{"Its member m3: partition (m3 hears nobody) from 2.000 s to 5.000 s.",
			"No majority of the members could act from 2.000 s to 3.000 s.",
			"Its member m3: clock (m3: 1h) from 0.000 s to 9.000 s.",
			"On other members at that time: slow (m2) from 1.000 s to 2.000 s; pause (m30) from 2.000 s to 5.000 s."},
		told: "4.000 s", margin: "2.000 s after the first one was told",
		page: []string{"its library says: no connection, after 2.600 s of silence", "its grant says: lost (silent)",
			"its client receives its last byte before the loss", `<td class="n">1.200 s</td><td>b/1 asks for the lock`,
			"The smallest margin was 2.000 s, at 4.200 s.", `in that of its member, <a href="m3.log">`,
			"Line 6 of <a href=\"history.jsonl\">"},
	},
	{
		name: "the process of the holder is stopped, and its late write refused",
		history: []string{"1 a ok acquire /l", "1.5 a info pause -", "5 b ok acquire /l", "7 a info resume -", "7.1 a info lost /l,silent",
			"7.2 a fail use /l"},
		causes: []string{"The process of the holder was stopped from 1.500 s to 7.000 s: it could neither hear nor be told."},
		told:   "7.100 s", margin: "2.100 s before the first one was told",
		page: []string{"The resource refused 1 late write with the old token.", "1 were told after the next holder had the lock"},
	},
	{
		name: "the client loses every byte, and is told by the session",
		history: []string{"1 a ok acquire /l", "2 a info dark -", "4 a info suspended 2000", "5 a info light -", "6 a info expired -",
			"8 a ok use /l", "9 b ok acquire /l"},
		causes: []string{"The client of the holder lost every byte, in both directions, from 2.000 s to 5.000 s: the workload " +
			"does that, to see if the library notices in time."},
		told: "4.000 s", margin: "5.000 s after the first one was told",
		page: []string{"The resource accepted 1 write with the old token: no newer token had been there before.",
			"its library says: the session is over"},
	},
	{
		name: "its own link is cut, and it reconnects before the grant is lost",
		history: []string{"1 a ok acquire /l", "1 a info cut -", "3 a info suspended 1900", "3.5 a info heal -",
			"3.6 a info connected 10.0.0.1:1", "5 a info lost /l,silent", "5.5 b ok acquire /l"},
		causes: []string{"The link between the holder and its member was cut from 1.000 s to 3.500 s."},
		told:   "5.000 s", margin: "0.500 s after the first one was told",
	},
	{
		name:    "another client deletes its node, and nobody wants the lock",
		history: []string{"1 a ok acquire /l", "5 a info lost /l," + workload.NoteDeleted},
		causes:  []string{"Another client deleted the node of the lock."},
		told:    "5.000 s", margin: "nobody had it afterwards",
	},
	{
		name: "no fault was on; readers do not follow a reader",
		history: []string{"1 a ok acquire /l,mode=shared", "2 b ok acquire /l,mode=shared", "5 a info lost /l,silent",
			"7 c ok acquire /l"},
		causes: []string{"No fault was on."},
		told:   "5.000 s", margin: "2.000 s after the first one was told",
		page: []string{"c/1 has it"},
	},
	{
		name: "a lease is followed by the next one that is taken",
		history: []string{"1 a ok acquire /l,mode=lease", "2 b ok acquire /l,mode=lease", "5 a info lost /l,silent",
			"6 c ok acquire /l,mode=lease"},
		causes: []string{"No fault was on."},
		told:   "5.000 s", margin: "1.000 s after the first one was told",
	},
}

// The page says of each lost grant why, when its holder was told, and who had the lock next.
func TestLosses(t *testing.T) {
	for _, c := range lossCases {
		t.Run(c.name, func(t *testing.T) {
			r := &Run{Ops: lossHistory(t, c.history...), Faults: c.faults, Took: 10 * time.Second,
				Began:   time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC),
				Members: []Member{{"m1", "10.0.0.1:1"}, {"m3", "10.0.0.3:1"}},
				Files:   []File{{"history.jsonl", 10}, {"m3.log", 20}}}
			losses := r.findLosses(findHolds(r.Ops, r.length()))
			if len(losses) != 1 {
				t.Fatalf("%d losses", len(losses))
			}
			l := losses[0]
			if !slices.Equal(l.Causes, c.causes) {
				t.Errorf("causes:\n%s\nwant\n%s", strings.Join(l.Causes, "\n"), strings.Join(c.causes, "\n"))
			}
			if at(l.Told) != c.told || l.MarginText() != c.margin {
				t.Errorf("told at %s, %s; want %s, %s", at(l.Told), l.MarginText(), c.told, c.margin)
			}
			page := html(t, r)
			for _, part := range append(append(c.page, c.causes...), c.margin, "1 of ") {
				if !strings.Contains(page, part) {
					t.Errorf("the page does not say %q", part)
				}
			}
		})
	}
}

// A lock that was given back was not lost.
func TestReleasedIsNotLost(t *testing.T) {
	r := &Run{Ops: lossHistory(t, "1 a ok acquire /l", "2 a invoke release /l", "2.1 a ok release /l", "3 a info expired -")}
	if losses := r.findLosses(findHolds(r.Ops, r.length())); len(losses) > 0 {
		t.Errorf("%+v", losses)
	}
	if page := html(t, r); strings.Contains(page, `id="losses"`) {
		t.Error("the page has losses")
	}
}

// Each promise has its line, with its verdict and the number of cases; a promise that nothing
// checked says so, and one with a broken verdict is broken.
func TestPromises(t *testing.T) {
	r := &Run{Verdicts: []workload.Verdict{
		{Checker: "replicas", Promise: "C1", Valid: workload.Yes, Checked: 5, Unit: "replicas"},
		{Checker: "durability", Promise: "C1", Valid: workload.Yes, Checked: 12074, Unit: "answered updates"},
		{Checker: "session-order", Promise: "C2, C3", Valid: workload.Unknown},
		{Checker: "belief", Promise: "C6", Valid: workload.No, Checked: 4, Unit: "expired sessions"},
		{Checker: "lock", Promise: "C6", Valid: workload.Yes, Checked: 129, Unit: "grants"},
	}}
	page := html(t, r)
	list := page[strings.Index(page, `<ul class="promises">`):]
	list = list[:strings.Index(list, "</ul>")]
	lines := strings.Split(list, "<li ")[1:]
	if len(lines) != 9 {
		t.Fatalf("%d promises", len(lines))
	}
	for i, parts := range [][]string{
		{`class="true"`, "C1", "✓ kept", "never lost", "5 replicas (replicas), 12,074 answered updates (durability)"},
		{`class="unknown"`, "C2", "? unknown", "Checked on session-order."},
		{`class="unknown"`, "C3"},
		{`class="unchecked"`, "C4", "not checked here"},
		{`class="unchecked"`, "C5"},
		{`class="false"`, "C6", "✗ broken", "4 expired sessions (belief), 129 grants (lock)"},
		{`class="unchecked"`, "C7"},
		{`class="unchecked"`, "C8", "-nemesis clock"},
		{`class="unchecked"`, "C9", "jepsen attack"},
	} {
		for _, part := range parts {
			if !strings.Contains(lines[i], part) {
				t.Errorf("%q is not in %s", part, lines[i])
			}
		}
	}
	if page := html(t, &Run{Verdicts: []workload.Verdict{{Checker: "statements", Valid: workload.Yes}}}); strings.Contains(page, `id="promises"`) {
		t.Error("a run without a promise lists promises")
	}
}
