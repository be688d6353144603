package page

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/play"
)

var update = flag.Bool("update", false, "write the golden files")

// sample is a document with two ways: of one a case with two holders and one that was kept, of the
// other one that could not be played, and its cost.
func sample() *Document {
	at := func(ms int, who, what string, token uint64) play.Event {
		return play.Event{At: time.Duration(ms) * time.Millisecond, Who: who, What: what, Token: token}
	}
	write := func(ms int, who string, token uint64, base, before int64, rule ledger.Rule, refused string) ledger.Entry {
		return ledger.Entry{At: time.Duration(ms) * time.Millisecond, Rule: rule, Write: true, Holder: who, Token: token,
			Base: base, Before: before, Refused: refused}
	}
	fault := at(30, "lab", play.Broke, 0)
	fault.Text = "the wall clock of <s1> jumps"
	read := at(20, "A", play.Read, 0)
	read.Books = map[ledger.Rule]int64{ledger.Open: 0}
	two := play.Round{Events: []play.Event{
		at(0, "A", play.Ready, 0), at(10, "A", play.Lock, 0), at(11, "A", play.Locked, 1), read, fault,
		at(40, "A", play.Paused, 0), at(50, "B", play.Lock, 0), at(1100, "B", play.Locked, 2),
		at(1300, "A", play.Resumed, 0), at(1310, "A", play.Write, 0), at(1320, "A", play.Unlock, 0),
		at(1400, "B", play.Write, 0), at(1500, "B", play.Unlock, 0)},
		Ledger: []ledger.Entry{write(1311, "A", 1, 0, 0, ledger.Open, ""), write(1311, "A", 1, 0, 0, ledger.Fenced, "stale"),
			write(1401, "B", 2, 0, 1, ledger.Open, ""), write(1401, "B", 2, 0, 0, ledger.Fenced, "")}}
	kept := play.Round{Events: []play.Event{at(0, "A", play.Lock, 0), at(1, "A", play.Locked, 3), at(5, "A", play.Unlock, 0),
		at(6, "B", play.Locked, 4), at(9, "B", play.Unlock, 0)}}
	d := &Document{Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 90 * time.Second,
		Again: "go run ./cmd/jepsen lock-lab", Machine: "on 2 cores", Missing: []string{"etcd (apt-get install etcd-server)"},
		Config: play.Config{Lease: time.Second, Rounds: 1, Seed: 1}}
	one := lock.Way{Name: "redis-set", System: "redis", Fenced: true}
	other := lock.Way{Name: "redis-set-twin", System: "redis", Broken: true}
	add := func(w lock.Way, c play.Case) {
		c.Way, c.System, c.Lease = w.Name, w.System, time.Second
		d.Results = append(d.Results, judge.Result{Way: w, Case: &c, Figures: judge.Judge(&c)})
	}
	add(one, play.Case{Fault: play.None, Requests: 2, Rounds: []play.Round{kept}})
	add(one, play.Case{Fault: "pause-short", Rounds: []play.Round{kept}})
	add(one, play.Case{Fault: "pause-writing", Rounds: []play.Round{two}})
	add(one, play.Case{Fault: "clock-one", Skipped: "the clock cannot be set"})
	add(other, play.Case{Fault: "pause-writing", Rounds: []play.Round{two}})
	return d
}

// brief is a document with a lock and its twin with a fence, one that keeps the data, too, one
// without tokens, and one that could not be played.
func brief() *Document {
	d := sample()
	d.Results, d.Config.Rounds = nil, 3
	add := func(w lock.Way, f judge.Figures) {
		for _, fault := range []string{"pause-writing", "crash-held"} {
			f.Free = nil
			if fault == "crash-held" {
				f.Free, f.Two, f.LostUpdates = []time.Duration{time.Second}, 0, nil
			}
			d.Results = append(d.Results, judge.Result{Way: w, Case: &play.Case{Way: w.Name, Fault: fault}, Figures: f})
		}
	}
	lost := map[ledger.Rule]int{ledger.Open: 3}
	add(lock.Way{Name: "redis-set"}, judge.Figures{Rounds: 3, Two: 3, LostUpdates: lost})
	add(lock.Way{Name: "mutex"}, judge.Figures{Rounds: 3, Two: 3, LostUpdates: lost})
	add(lock.Way{Name: "mutex-fenced", Twin: "mutex", Fenced: true}, judge.Figures{Rounds: 3, Two: 2, LostUpdates: lost,
		Places: map[string]judge.Place{"file": {Rounds: 2, Refused: 1}, "etcd": {Rounds: 1, Doubt: 1}}})
	add(lock.Way{Name: "mutex-guard"}, judge.Figures{Rounds: 2, Two: 2, LostUpdates: lost, RefusedInside: 3,
		Late: time.Second})
	add(lock.Way{Name: "unplayed"}, judge.Figures{Rounds: 3, Broken: 3})
	return d
}

// TestGolden compares the output with files that a person has checked.
func TestGolden(t *testing.T) {
	d := sample()
	var story bytes.Buffer
	Story(&story, d.Results[2].Case, d.Results[2].Case.Rounds[0])
	for name, got := range map[string]string{
		"tables.md": d.Markdown(), "brief.md": brief().BriefMarkdown(), "fences.md": brief().FencesMarkdown(), "story.txt": story.String(), "totals.txt": d.Totals().Text(),
		"picture.svg": Picture(d.Results[2].Case, d.Results[2].Case.Rounds[0]),
	} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (go test ./page -update writes it anew):\n%s", name, got)
		}
	}
}

// A cell of the table of cuts has the contents that the page describes.
func TestCutCell(t *testing.T) {
	s := func(seconds ...float64) (all []time.Duration) {
		for _, s := range seconds {
			all = append(all, time.Duration(s*float64(time.Second)))
		}
		return all
	}
	for _, tt := range []struct {
		figures judge.Figures
		want    string
	}{
		{judge.Figures{Rounds: 3, Told: s(1.8, 1.9, 2), LetIn: s(3.2, 3.4, 5)}, "told after 1.9 s, next after 3.4 s"},
		{judge.Figures{Rounds: 3, Told: s(1.3)}, "told after 1.3 s, next: nobody"},
		{judge.Figures{Rounds: 3, Two: 3, Longest: time.Second, Told: s(4), LetIn: s(3), Anew: 1},
			"next after 3.0 s, **two, 1.0 s**, **anew**"},
		{judge.Figures{Rounds: 2, Broken: 2}, ""},
	} {
		if got := cutCell(&judge.Result{Case: &play.Case{}, Figures: tt.figures}); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// The pictures are XML, with the texts of others as text.
func TestPictureIsXML(t *testing.T) {
	d := sample()
	for _, r := range d.Results {
		for _, round := range r.Case.Rounds {
			x := xml.NewDecoder(strings.NewReader(Picture(r.Case, round)))
			for {
				if _, err := x.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", r.Case.Name(), err)
				}
			}
		}
	}
}

// TestWrite sees that page, JSON and pictures are there and have the measurements.
func TestWrite(t *testing.T) {
	d, dir := sample(), t.TempDir()
	if err := errors.Join(d.Write(dir), d.Illustrate(filepath.Join(dir, "p"), []string{"redis-set/pause-writing", "no/such"})); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<b>two in 1 of 1</b>", "redis-set-twin (planted bug)", "NOW A AND B HOLD THE LOCK", "&lt;s1&gt;",
		"not possible", "apt-get install etcd-server", "<svg class=\"run\"", "as argued"} {
		if !bytes.Contains(html, []byte(want)) {
			t.Errorf("the page has no %q", want)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Results []struct {
			Way, Fault string
			Figures    judge.Figures
			History    *play.Round
		}
		Outcomes []struct{ ID, Verdict string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	r := report.Results[2]
	if r.Way != "redis-set" || r.Figures.Two != 1 || r.Figures.LostUpdates[ledger.Open] != 1 || r.History == nil {
		t.Errorf("%+v", r)
	}
	if len(report.Outcomes) != len(judge.Claims) {
		t.Errorf("%d outcomes of %d claims", len(report.Outcomes), len(judge.Claims))
	}
	if svgs, _ := filepath.Glob(filepath.Join(dir, "p", "*.svg")); len(svgs) != 1 {
		t.Errorf("pictures: %v", svgs)
	}
}
