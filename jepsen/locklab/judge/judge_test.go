package judge

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/play"
)

// history reads events such as "100 A locked 7": milliseconds, client, event, token.
func history(t *testing.T, text string) (events []play.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		e := play.Event{}
		var at int
		if n, _ := fmt.Sscan(line, &at, &e.Who, &e.What, &e.Token); n < 3 {
			continue
		}
		if e.What == "gave" {
			e.What = play.GaveUp
		}
		e.At = time.Duration(at) * time.Millisecond
		events = append(events, e)
	}
	return events
}

// judged are the figures of one round with a lease of a second.
func judged(t *testing.T, fault, text string, entries ...ledger.Entry) Figures {
	return Judge(&play.Case{Fault: fault, Lease: time.Second, Rounds: []play.Round{{Events: history(t, text), Ledger: entries}}})
}

func TestGoodOrder(t *testing.T) {
	f := judged(t, "pause-short", `
		1 A locked 1
		500 A unlock
		510 A unlocked
		511 B locked 2
		600 B unlock
		611 C locked 3
		700 C unlock`)
	if f.Two+f.Untold+f.Overtaken+f.Left+f.Disorder != 0 || len(f.Violations(lock.Way{}, "pause-short")) != 0 {
		t.Errorf("%+v", f)
	}
}

// Who locks nothing has holders side by side, and loses no update where the versions are compared.
func TestOptimistic(t *testing.T) {
	f := judged(t, play.None, `
		1 A locked
		2 B locked
		500 A unlock
		600 B unlock`,
		ledger.Entry{Write: true, Rule: ledger.Inside, Base: 0, Before: 0},
		ledger.Entry{Write: true, Rule: ledger.Inside, Base: 0, Refused: "newer"})
	if f.Two != 1 || f.RefusedInside != 1 || len(f.Violations(lock.Way{Optimistic: true}, play.None)) != 0 {
		t.Errorf("%+v", f)
	}
	if len(f.Violations(lock.Way{}, play.None)) == 0 {
		t.Error("two holders of a lock are no violation")
	}
	f = judged(t, play.None, "1 A locked", ledger.Entry{Write: true, Rule: ledger.Inside, Base: 0, Before: 1})
	if f.LostUpdates[ledger.Inside] != 1 || len(f.Violations(lock.Way{Optimistic: true}, play.None)) != 1 {
		t.Errorf("%+v", f)
	}
}

// Times of the sides of a cut are measured from the cut; no side without a majority gives a lock
// away.
func TestApart(t *testing.T) {
	const text = `
		1 A locked
		100 lab apart
		900 A lost
		1500 B locked
		1600 A unlock
		1700 B unlock
		`
	f := judged(t, "cut-1-2", text)
	if len(f.Told) != 1 || f.Told[0] != 800*time.Millisecond || len(f.LetIn) != 1 || f.LetIn[0] != 1400*time.Millisecond ||
		f.Anew != 0 || f.Two != 0 || len(f.Violations(lock.Way{}, "cut-1-2")) != 0 {
		t.Errorf("%+v", f)
	}
	if len(f.Violations(lock.Way{}, "cut-2-2")) != 1 {
		t.Error("a half may give a lock away")
	}
	f = judged(t, "cut-1-2", text+"1800 A locked")
	if f.Anew != 1 || len(f.Violations(lock.Way{}, "cut-1-2")) != 1 || len(f.Violations(lock.Way{}, "cut-1-1")) != 0 {
		t.Errorf("%+v: %v", f, f.Violations(lock.Way{}, "cut-1-2"))
	}
	f = judged(t, "cut-2-2", "1 A locked\n100 lab apart\n900 A lost\n1600 A unlock")
	if f.Left != 1 || len(f.Violations(lock.Way{}, "cut-2-2")) != 0 {
		t.Errorf("%+v: %v", f, f.Violations(lock.Way{}, "cut-2-2"))
	}
}

func TestTwoHolders(t *testing.T) {
	f := judged(t, "pause-long", `
		1 A locked 1
		1101 B locked 2
		1400 A resumed
		1401 A lost
		1402 A gave
		1403 A unlock
		1500 B unlock`)
	if f.Two != 1 || f.Longest != 300*time.Millisecond || f.Early != 0 || f.Bystanders != 0 {
		t.Errorf("%+v", f)
	}
	if f.Overtaken != 1 || f.Untold != 1 || f.Margin != -300*time.Millisecond {
		t.Errorf("%+v", f)
	}
}

// Who was told before the next was let in is no second holder.
func TestToldBefore(t *testing.T) {
	f := judged(t, "cut-both", `
		1 A locked 1
		700 A lost
		1100 B locked 2
		1200 A unlock
		1300 B unlock`)
	if f.Two != 0 || f.Overtaken != 1 || f.Untold != 0 || f.Margin != 400*time.Millisecond {
		t.Errorf("%+v", f)
	}
}

func TestEarly(t *testing.T) {
	f := judged(t, "clock-most", "1 A locked 1\n300 B locked 2\n500 A unlock\n600 B unlock")
	if f.Two != 1 || f.Early != 1 {
		t.Errorf("%+v", f)
	}
}

// An unlock that takes the lock away from another holder lets a third one in.
func TestBystanders(t *testing.T) {
	f := judged(t, "pause-long", `
		1 A locked 1
		1101 B locked 2
		1400 A unlock
		1410 C locked 3
		1500 B unlock
		1600 C unlock`)
	if f.Bystanders != 1 || !slices.Contains(f.Violations(lock.Way{}, "pause-long"), "two holders whom no fault hit") {
		t.Errorf("%+v: %v", f, f.Violations(lock.Way{}, "pause-long"))
	}
}

func TestDisorder(t *testing.T) {
	if f := judged(t, "crash-held", "1 A locked 7\n5 A killed\n1100 B locked 7\n1200 B unlock"); f.Disorder != 1 {
		t.Errorf("%+v", f)
	}
}

func TestFreeAfterDeath(t *testing.T) {
	f := judged(t, "crash-held", "1 A locked 1\n100 A killed\n1150 B locked 2\n1200 B unlock")
	if len(f.Free) != 1 || f.Free[0] != 1050*time.Millisecond || f.Left != 0 || f.Two != 0 {
		t.Errorf("%+v", f)
	}
	f = judged(t, "crash-held", "1 A locked 1\n100 A killed\n9000 B refused\n9001 C refused")
	if f.Left != 1 || len(f.Free) != 0 || !slices.Contains(f.Violations(lock.Way{}, "crash-held"), "a lock that is left behind") {
		t.Errorf("%+v", f)
	}
}

func TestLostUpdates(t *testing.T) {
	f := judged(t, "pause-writing", "1 A locked 1\n2 A unlock\n3 B locked 2\n4 B unlock",
		ledger.Entry{Rule: ledger.Open, Write: true, Base: 0, Before: 0},
		ledger.Entry{Rule: ledger.Open, Write: true, Base: 0, Before: 1},
		ledger.Entry{Rule: ledger.Fenced, Write: true, Token: 1, Base: 0, Before: 1, Refused: "stale"},
		ledger.Entry{Rule: ledger.Fenced, Write: true, Token: 1, Base: 0, Before: 1})
	if f.LostUpdates[ledger.Open] != 1 || f.LostUpdates[ledger.Fenced] != 1 || f.RefusedWrites != 1 {
		t.Errorf("%+v", f)
	}
	if !slices.Contains(f.Violations(lock.Way{}, "pause-writing"), "lost updates in spite of the fence") {
		t.Error(f.Violations(lock.Way{}, "pause-writing"))
	}
}

// A round that could not be played counts for nothing.
// A counter behind a real fence has every accepted write, or an update is lost. A writer that died
// within its write, or does not know, leaves that open.
func TestPlaces(t *testing.T) {
	counted := func(who, refused string, doubt bool) play.Event {
		return play.Event{Who: who, What: play.Counted, Entry: &ledger.Entry{Refused: refused, Doubt: doubt}}
	}
	writes := func(who string) play.Event { return play.Event{Who: who, What: play.Write} }
	var all Figures
	for i, c := range []struct {
		count  int64
		events []play.Event
		want   Place
	}{
		{2, []play.Event{writes("B"), counted("B", "", false), writes("A"), counted("A", "stale", false), writes("C"),
			counted("C", "", false)}, Place{Rounds: 1, Refused: 1}},
		{1, []play.Event{writes("B"), counted("B", "", false), writes("A"), counted("A", "", false)}, Place{Rounds: 1, Lost: 1}},
		{1, []play.Event{writes("B"), counted("B", "", false), writes("A"), counted("A", "timeout", true)}, Place{Rounds: 1, Doubt: 1}},
		{1, []play.Event{writes("B"), counted("B", "", false), writes("A")}, Place{Rounds: 1, Doubt: 1}},
		{1, []play.Event{writes("B"), counted("B", "", false), writes("A"), {Who: "A", What: play.Sent}}, Place{Rounds: 1}},
	} {
		f := Judge(&play.Case{Fault: "pause-writing", Lease: time.Second, Rounds: []play.Round{
			{Events: c.events, Place: "file", Count: c.count}}})
		if f.Places["file"] != c.want {
			t.Errorf("%d: %+v, want %+v", i, f.Places["file"], c.want)
		}
		if lost := slices.Contains(f.Violations(lock.Way{}, "pause-writing"), "lost updates in spite of the fence in file"); lost != (c.want.Lost > 0) {
			t.Errorf("%d: violations: %v", i, lost)
		}
		all.Merge(f)
	}
	if want := (Place{Rounds: 5, Lost: 1, Refused: 1, Doubt: 2}); all.AllPlaces() != want || all.Rounds != 5 {
		t.Errorf("all: %+v", all)
	}
}

// Rounds that were played in two batches have the figures of all.
func TestMerge(t *testing.T) {
	rounds := make([]play.Round, 30)
	for i := range rounds {
		until := 500 + 10*i
		rounds[i] = play.Round{Events: history(t, fmt.Sprintf("1 A locked 1\n400 B locked 2\n%d A unlock\n2000 B unlock", until)),
			Ledger: []ledger.Entry{{Write: true, Rule: ledger.Open, Before: 1}}}
	}
	rounds[3].Broken = "no server"
	whole := &play.Case{Fault: "pause-long", Lease: time.Second, Rounds: rounds}
	one, two := *whole, *whole
	one.Rounds, two.Rounds = rounds[:12], rounds[12:]
	merged := Result{Case: &one, Figures: Judge(&one)}
	merged.Merge(Result{Case: &two, Figures: Judge(&two)})
	want := Judge(whole)
	want.Worst = 0
	if !reflect.DeepEqual(merged.Figures, want) {
		t.Errorf("%+v\nwant\n%+v", merged.Figures, want)
	}
	if kept := merged.Case.Rounds; len(kept) != 2 || kept[1].Broken == "" || kept[0].Broken != "" || len(whole.Rounds) != 30 {
		t.Errorf("%d rounds are kept", len(kept))
	}
}

func TestBroken(t *testing.T) {
	f := Judge(&play.Case{Fault: "pause-long", Rounds: []play.Round{{Broken: "no server",
		Events: history(t, "1 A locked 1\n2 B locked 1\n9 A unlock")}}})
	if f.Broken != 1 || f.Two+f.Disorder+f.Left != 0 {
		t.Errorf("%+v", f)
	}
}

func TestCostFigures(t *testing.T) {
	events := history(t, `
		0 A lock
		10 A locked 1
		12 A unlock
		13 A unlocked
		20 lab healed
		30 A lock
		31 A locked 2
		32 B lock
		40 C lock
		50 A unlock
		55 C locked 3
		60 C unlock
		62 B locked 4
		70 B unlock`)
	events[4].Text = play.TurnsText
	f := Judge(&play.Case{Fault: play.None, Lease: time.Second, Requests: 2.5, Rounds: []play.Round{{Events: events}}})
	c := f.Cost
	if c == nil || c.Acquisitions != 4 || c.LockP50Ms != 10 || c.UnlockP50Ms != 1 || c.Requests != 2.5 {
		t.Fatalf("%+v", c)
	}
	if c.Overtakes < 0.33 || c.Overtakes > 0.34 || c.HandoverMs != 5 {
		t.Errorf("%+v", c)
	}
}

// Each claim can come out both ways, or is not played.
func TestOutcomes(t *testing.T) {
	way := lock.Way{Name: "redis-redlock", System: "redis-5"}
	result := func(fault string, f Figures) Result {
		f.Rounds = 1
		return Result{way, &play.Case{Way: way.Name, Fault: fault}, f}
	}
	find := func(id string, results ...Result) Outcome {
		all := Outcomes(results)
		return all[slices.IndexFunc(all, func(o Outcome) bool { return o.ID == id })]
	}
	if o := find("redlock-clocks", result("clock-most", Figures{Two: 1, Early: 1})); o.Verdict() != "as argued" {
		t.Error(o)
	}
	if o := find("redlock-clocks", result("clock-most", Figures{})); o.Verdict() != "not as argued" {
		t.Error(o)
	}
	o := find("redlock-clocks", result("clock-most", Figures{}), result("clock-most", Figures{Early: 1}))
	if o.Verdict() != "in part" || !strings.Contains(o.Text(), "redis-redlock/clock-most") {
		t.Error(o.Verdict(), o.Text())
	}
	if o := find("redlock-clocks", result("pause-long", Figures{})); o.Verdict() != "not played" {
		t.Error(o)
	}
	broken := result("clock-most", Figures{Broken: 1})
	if o := find("redlock-clocks", broken); o.Verdict() != "not played" {
		t.Error(o)
	}
	ids := map[string]bool{}
	for _, c := range Claims {
		if ids[c.ID] {
			t.Errorf("two claims %q", c.ID)
		}
		ids[c.ID] = true
		for _, fault := range c.faults {
			if _, err := play.FindFault(fault); err != nil {
				t.Errorf("%s: %v", c.ID, err)
			}
		}
	}
}
