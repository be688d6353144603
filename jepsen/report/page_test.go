package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

var update = flag.Bool("update", false, "write the golden files anew")

// html is the page of a run.
func html(t *testing.T, r *Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// small is a run that a person can follow on the page: two clients, a cut and a kill.
func small() *Run {
	ms := time.Millisecond
	r := &Run{
		Title: "register on 3 members under cut", Target: "lockkeeper",
		Began: time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC),
		Took:  4 * time.Second, Seed: 7, Again: "go run ./cmd/jepsen run -seed 7",
		Settings: []Setting{{"members", "3"}},
		Ops: []jepsen.Op{
			{Time: 100 * ms, Worker: "c1", Kind: jepsen.Invoke, F: "write", ID: 1, Path: "/r", Value: "1"},
			{Time: 103 * ms, Worker: "c1", Kind: jepsen.OK, F: "write", ID: 1, Path: "/r", Value: "1"},
			{Time: 900 * ms, Worker: "c1", Contender: "c1/x", Kind: jepsen.Invoke, F: jepsen.FAcquire, Lock: "/l"},
			{Time: 950 * ms, Worker: "c1", Contender: "c1/x", Kind: jepsen.OK, F: jepsen.FAcquire, Lock: "/l",
				Token: 5},
			{Time: 1000 * ms, Kind: jepsen.Info, F: jepsen.FCut, Member: "10.0.0.1:1", Note: "m1"},
			{Time: 1200 * ms, Worker: "c2", Kind: jepsen.Invoke, F: "write", ID: 1, Path: "/r", Value: "2"},
			{Time: 1300 * ms, Worker: "c1", Kind: jepsen.Info, F: jepsen.FSuspended},
			{Time: 1900 * ms, Worker: "c1", Contender: "c1/x", Kind: jepsen.Info, F: jepsen.FLost, Lock: "/l"},
			{Time: 2000 * ms, Kind: jepsen.Info, F: jepsen.FHeal, Member: "10.0.0.1:1", Note: "m1"},
			{Time: 2100 * ms, Worker: "c1", Kind: jepsen.Info, F: jepsen.FConnected},
			{Time: 2200 * ms, Worker: "c2", Kind: jepsen.Fail, F: "write", ID: 1, Path: "/r", Value: "2"},
			{Time: 2500 * ms, Worker: "c2", Kind: jepsen.Invoke, F: "read", ID: 2, Path: "/r"},
			{Time: 3000 * ms, Kind: jepsen.Info, F: "transfer", Note: "m2"},
			{Time: 3500 * ms, Kind: jepsen.Info, F: jepsen.FKill, Member: "10.0.0.3:1", Note: "m3"},
		},
	}
	r.Faults = []Fault{
		{Kind: "cut", On: "m1", From: 1000 * ms, To: 2000 * ms},
		{Kind: "transfer", On: "m2", From: 3000 * ms, To: 3000 * ms},
		{Kind: "kill", On: "m3", From: 3500 * ms, To: 3500 * ms, Open: true},
	}
	r.Verdicts = []workload.Verdict{
		{Checker: "register", Promise: "C4", Valid: workload.Yes, Text: "3 operations are linearizable.",
			Figures: map[string]float64{"operations": 3, "window ms": 1.5}},
		{Checker: "lock", Promise: "C6", Valid: workload.No, Text: "1 overlap.",
			Violations: []workload.Violation{{Text: "two hold /l", Ops: r.Ops[2:4]}}},
	}
	return r
}

// inline are the parts of a page that are files of this package and not made from the run.
var inline = regexp.MustCompile(`(?s)<style>.*?</style>|<script>.*?</script>`)

func TestPageGolden(t *testing.T) {
	got := inline.ReplaceAllString(html(t, small()), "")
	golden(t, "small.html", got)
	var b bytes.Buffer
	if err := WriteJSON(&b, small()); err != nil {
		t.Fatal(err)
	}
	golden(t, "small.json", b.String())
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is different (go test ./jepsen/report -update, and look at the difference):\n%s", file,
			firstDifference(got, string(want)))
	}
}

// firstDifference shows the first lines that differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// A complaint begins with its reason; the log below it is folded.
func TestComplaint(t *testing.T) {
	page := html(t, &Run{Complaints: []string{"m3 has not healed\nline of its log\nanother", "client 1 crashed"}})
	for _, part := range []string{"<li>m3 has not healed<details><summary class=\"small\">more</summary>line of its log\nanother</details></li>",
		"<li>client 1 crashed</li>"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page does not have %s", part)
		}
	}
}

// Whatever is in a run, it is text on the page: no element, no attribute, no script comes of
// it.
func TestHostileTextStaysText(t *testing.T) {
	const hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \" onload=\"alert(3)\" 'x' " +
		"{{.}} &lt; \x00\xff ]]> -->"
	r := sample(3, 20*time.Second)
	r.Title, r.Target, r.Again = hostile, hostile, hostile
	r.Settings = []Setting{{hostile, hostile}}
	r.Complaints = []string{hostile}
	for i := range r.Ops {
		op := &r.Ops[i]
		op.Note, op.Path, op.Value, op.Lock, op.Session = hostile, hostile, hostile, hostile, hostile
		if op.Worker != "" {
			op.Worker += hostile
		}
		if op.F != jepsen.FCut && i%7 == 0 {
			op.F = hostile
		}
	}
	r.Verdicts = []workload.Verdict{{
		Checker: hostile, Promise: hostile, Valid: workload.No, Text: hostile, Figures: map[string]float64{hostile: 1},
		Violations: []workload.Violation{{Text: hostile, Ops: r.Ops[:5]}},
	}}
	page := html(t, r)
	plain := html(t, sample(3, 20*time.Second))
	for _, tag := range []string{"<script", "<img", "<style", "</html"} {
		if got, want := strings.Count(page, tag), strings.Count(plain, tag); got != want {
			t.Errorf("%d times %s on the page, %d without the hostile text", got, tag, want)
		}
	}
	tags := regexp.MustCompile(`<[a-z][^>]*>`).FindAllString(page, -1)
	for _, tag := range tags {
		// A text between quotation marks is a value, and must not have ended early.
		rest := regexp.MustCompile(`="[^"]*"`).ReplaceAllString(tag, "")
		if strings.Contains(rest, "onload") || strings.Contains(rest, "onerror") || strings.Contains(rest, "alert") {
			t.Errorf("an attribute came of the text: %s", tag)
		}
	}
}

// The page needs nothing beside itself.
func TestPageHasNoOutsideResources(t *testing.T) {
	page := html(t, sample(3, 20*time.Second))
	for _, outside := range []string{"http://", "https://", "src=", "<link", "@import", "url(", "fetch("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
}

// A page stays small however long the run was, and however much there is to complain about.
func TestPageSizeIsBounded(t *testing.T) {
	r := sample(60, 25*time.Second)
	if len(r.Ops) < 50_000 {
		t.Fatalf("a history of %d entries only", len(r.Ops))
	}
	for i := range 3000 {
		at := time.Duration(i) * 8 * time.Millisecond
		r.Faults = append(r.Faults, Fault{Kind: []string{jepsen.FKill, jepsen.FRestart, "transfer"}[i%3], On: "m1",
			From: at, To: at})
	}
	for range 500 {
		r.Verdicts[0].Violations = append(r.Verdicts[0].Violations,
			workload.Violation{Text: strings.Repeat("x", 1<<20), Ops: r.Ops[:5000]})
	}
	page := html(t, r)
	if most := 4 << 20; len(page) > most {
		t.Errorf("a page of %d bytes, more than %d", len(page), most)
	}
	t.Logf("%d entries, %d bytes", len(r.Ops), len(page))
}

// A run that has nothing in it still has a page.
func TestEmptyRun(t *testing.T) {
	page := html(t, &Run{Title: "nothing"})
	for _, want := range []string{"nothing", "Nothing was checked.", `class="banner unknown"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of an empty run has no %q", want)
		}
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, &Run{}); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("JSON of an empty run: %v", err)
	}
}

func TestValid(t *testing.T) {
	verdict := func(all ...workload.Valid) (r Run) {
		for _, v := range all {
			r.Verdicts = append(r.Verdicts, workload.Verdict{Valid: v})
		}
		return r
	}
	for _, c := range []struct {
		run  Run
		want workload.Valid
	}{
		{verdict(), workload.Unknown},
		{verdict(workload.Yes, workload.Yes), workload.Yes},
		{verdict(workload.Yes, workload.Unknown), workload.Unknown},
		{verdict(workload.Unknown, workload.No), workload.No},
		{verdict(workload.Yes, ""), workload.Unknown},
		{Run{Verdicts: verdict(workload.Yes).Verdicts, Complaints: []string{"a data race"}}, workload.No},
	} {
		if got := c.run.Valid(); got != c.want {
			t.Errorf("%v, %v: %s, want %s", c.run.Verdicts, c.run.Complaints, got, c.want)
		}
	}
}
