package splitbrain

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
)

// documents are a document in which all is well, and one with a case that is not as predicted.
func documents() (good, bad *Document) {
	began := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	right, wrong := played(), played()
	judge(right, true)
	wrong.Sides[0].Writes = 3
	wrong.Dead, wrong.Told[4] = []int{4}, at(1)
	judge(wrong, true)
	cfg := Config{Target: jepsen.Lockkeeper(""), Again: "again & again"}
	other := Config{Target: jepsen.Target{Name: "zookeeper"}, Tick: time.Second, Again: "<script>"}
	return &Document{Config: cfg, Began: began, Results: []*Result{right}},
		&Document{Config: other, Began: began, Results: []*Result{right, wrong}}
}

func TestDocument(t *testing.T) {
	good, bad := documents()
	if !good.OK() || bad.OK() || bad.Summary() != "1 of 2 cases came as predicted, in 0s." {
		t.Errorf("good %s, bad %s", good.Summary(), bad.Summary())
	}
	if (&Document{}).OK() {
		t.Error("nothing was played, and all is well")
	}
	text, err := json.Marshal(bad.Results)
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Checks []Check
		ToldMs map[string]int64
		Sides  []struct{ LockMs *int64 }
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	c := cases[1]
	if len(c.Checks) == 0 || c.Sides[0].LockMs != nil || *c.Sides[1].LockMs != 1020 || c.ToldMs["1"] != 1300 {
		t.Errorf("JSON: %s", text)
	}
}

func TestPage(t *testing.T) {
	good, bad := documents()
	page := func(d *Document) string {
		var b bytes.Buffer
		r, err := d.Report()
		if err == nil {
			err = report.WriteHTML(&b, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	html := page(good)
	for want, times := range map[string]int{
		`<section class="card`: 1, `class="banner true"`: 1, `class="cut"`: 1, `<i class="crown `: 2,
		">1 ≤ 3/2<": 1, ">2 &gt; 3/2<": 1, "Violation 1": 0, "again &amp; again": 1,
		"m1: 1 of 3 voters. 1 &gt; 3/2 = 1.5 is false, so it stops, although m1 had been the leader.": 1,
		"m2 was elected, after 1.0 s": 1,
	} {
		if got := strings.Count(html, want); got != times {
			t.Errorf("the page has %q %d times, want %d", want, got, times)
		}
	}
	html = page(bad)
	for want, times := range map[string]int{
		`<section class="card`: 2, `class="banner false"`: 1, "Violation 1": 1, "m1 acknowledges no write: 3 writes": 1,
		"<script": 0, "&lt;script&gt;": 1,
		`<span class="member dead`: 1, "But it acknowledged 3 writes": 1,
	} {
		if got := strings.Count(html, want); got != times {
			t.Errorf("the bad page has %q %d times, want %d", want, got, times)
		}
	}
	if outside := regexp.MustCompile(`https?://|src=|url\(|@import|<link`).FindString(html); outside != "" {
		t.Errorf("the page has %q", outside)
	}
}

func TestWrite(t *testing.T) {
	_, bad := documents()
	var b bytes.Buffer
	Heading(&b, bad.Results[0].Case.Cluster)
	for _, r := range bad.Results {
		r.Write(&b)
	}
	want := `
3 voters: a side may go on if set.size > 3/2, that is with 2; 1 may fail

1 | 2, leader left: as predicted
    m1: 1 of 3 voters. 1 > 3/2 = 1.5 is false, so it stops, although m1 had been the leader. No write was acknowledged, no lock granted; the last member stopped serving after 0.5 s, and the last client knew it after 1.3 s.
    m2 m3: 2 of 3 voters. 2 > 3/2 = 1.5 is true, so they go on: m2 was elected, after 1.0 s; the first write was acknowledged after 1.0 s, 80 writes in all, and a lock was granted after 1.0 s.
    The clients that were left behind held locks. Each knew that it is cut off before its lock was given to somebody else: by 1.9 s at least.
    After healing all 3 replicas had one history, with every acknowledged write in it.

1 | 2, leader left: NOT AS PREDICTED
    m1: 1 of 3 voters. 1 > 3/2 = 1.5 is false, so it stops, although m1 had been the leader. But it acknowledged 3 writes and granted locks: none.
    m2 m3: 2 of 3 voters. 2 > 3/2 = 1.5 is true, so they go on: m2 was elected, after 1.0 s; the first write was acknowledged after 1.0 s, 80 writes in all, and a lock was granted after 1.0 s.
    The clients that were left behind held locks. Each knew that it is cut off before its lock was given to somebody else: by 1.9 s at least.
    After healing all 3 replicas had one history, with every acknowledged write in it.
  ✗ m1 acknowledges no write: 3 writes
  ✗ m2 m3 gives away the lock that a client of m4 held: never
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTable(t *testing.T) {
	good, bad := documents()
	for want, d := range map[string]*Document{
		"2026-11-21 17:00 UTC: `again & again`, on ":                              good,
		"tickTime 500 ms, sessions of 2000 ms. 1 of 1 cases came as predicted":    good,
		"| voters | case | predicted | lockkeeper |\n|---|---|---|---|\n| 3 | 1 ": good,
		"| 3 | 1 \\| 2, leader left | 2 > 3/2 goes on | stopped after 0.5 s, writes again after 1.0 s, told 1.9 s " +
			"before |\n": good,
		"told 1.9 s before, **not as predicted** |": bad,
	} {
		if got := d.Table(); !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

// TestWritePage writes a page with a place for the story of three voters and none for four.
func TestWritePage(t *testing.T) {
	good, _ := documents()
	page := filepath.Join(t.TempDir(), "page.md")
	four := *good.Results[0]
	four.Case = StoryCase(4)
	four.Name = four.Case.String()
	good.Results, good.Config.Promises = append(good.Results, &four), true
	text := "# Page\n\n<!-- split-brain story 3: begin -->\n<!-- split-brain story 3: end -->\nMore.\n" +
		"<!-- split-brain lockkeeper: begin -->\n<!-- split-brain lockkeeper: end -->\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := good.WritePage(page); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"begin -->\n![3 voters are cut into 1 and 2: m2 m3 go on](page/3.svg)\n\n- m1: 1 of 3 voters.",
		"More.\n", "| 3 | 1 "} {
		if !strings.Contains(string(got), want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if files, err := filepath.Glob(filepath.Join(filepath.Dir(page), "page", "*")); err != nil || len(files) != 1 {
		t.Errorf("pictures: %q, %v; want one", files, err)
	}
}

// checkPictures: each picture in a text of a page of the repository has its title as the text for
// people who do not see it. The page is in dir.
func checkPictures(t *testing.T, dir, text string, want int) {
	t.Helper()
	pictures := regexp.MustCompile(`!\[([^\]]+)\]\(([^)]+\.svg)\)`).FindAllStringSubmatch(text, -1)
	if len(pictures) != want {
		t.Errorf("%d pictures, want %d: %q", len(pictures), want, pictures)
	}
	for _, p := range pictures {
		svg, err := os.ReadFile(filepath.Join(dir, p[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		if drawn := read(t, string(svg)); drawn.Title != p[1] {
			t.Errorf("%s has the title %q, and the page says %q", p[2], drawn.Title, p[1])
		}
	}
}

// TestReadmePicture: the README has the picture of Beside in its place, with its command.
func TestReadmePicture(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- cut-off: begin -->\n")
	place, _, found := strings.Cut(rest, "<!-- cut-off: end -->")
	if !found || !strings.Contains(place, "`go run ./cmd/jepsen split-brain ") || !strings.Contains(place, " -picture ") {
		t.Error("README.md has no place for the picture, or no command in it")
	}
	checkPictures(t, "../..", place, 1)
}

// TestSplitBrainPage: docs/split-brain.md has the tables of both systems as Table makes them, each
// with its command, the stories with their pictures, and no other figures of time.
func TestSplitBrainPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/split-brain.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, target := range []string{"lockkeeper", "zookeeper"} {
		before, rest, _ := strings.Cut(page, "<!-- split-brain "+target+": begin -->\n")
		table, after, found := strings.Cut(rest, "<!-- split-brain "+target+": end -->")
		head := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d UTC: ` + "`go run ./cmd/jepsen split-brain [^`]*`, on ")
		if !found || !head.MatchString(table) || strings.Count(table, "\n| ") < 5 {
			t.Errorf("there is no table of %s: write it with "+
				"'go run ./cmd/jepsen split-brain -target %[1]s -out docs/split-brain.md'", target)
		}
		page = before + after
	}
	for n := 3; n <= 5; n++ {
		place := storyPlace(n)
		before, rest, _ := strings.Cut(page, "<!-- "+place+": begin -->\n")
		story, after, found := strings.Cut(rest, "<!-- "+place+": end -->")
		if !found {
			t.Errorf("there is no %s", place)
		}
		checkPictures(t, "../../docs", story, 1)
		page = before + after
	}
	if figures := regexp.MustCompile(`\d\.\d+ ?(s|ms)\b`).FindAllString(page, -1); len(figures) > 0 {
		t.Errorf("these figures are in no table that a command has written: %q", figures)
	}
}
