package splitbrain

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen/report"
)

// documents are a document in which all is well, and one with a case that is not as predicted.
func documents() (good, bad *Document) {
	began := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	right, wrong := played(), played()
	judge(right, true)
	wrong.Sides[0].Writes = 3
	wrong.Dead, wrong.DeadTold[4] = []int{4}, at(1)
	judge(wrong, true)
	return NewDocument("lockkeeper", began, Config{}, "again & again", []*Result{right}),
		NewDocument("zookeeper", began, Config{Tick: time.Second}, "<script>", []*Result{right, wrong})
}

func TestDocument(t *testing.T) {
	good, bad := documents()
	if !good.OK() || bad.OK() || bad.Right != 1 || bad.Played != 2 || good.SessionMs != 2000 || bad.SessionMs != 4000 {
		t.Errorf("good %+v, bad %+v", good, bad)
	}
	if (&Document{}).OK() {
		t.Error("nothing was played, and all is well")
	}
	var b bytes.Buffer
	if err := bad.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back struct {
		AsPredicted int
		Cases       []struct {
			AsPredicted bool
			Predicted   []Prediction
			Sides       []struct {
				LockMs *int64
				ToldMs map[string]int64
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	c := back.Cases[1]
	if back.AsPredicted != 1 || c.AsPredicted || !c.Predicted[1].GoesOn || c.Predicted[1].Arithmetic != "2 > 3/2 = 1.5 is true" ||
		c.Sides[0].LockMs != nil || *c.Sides[1].LockMs != 1020 || c.Sides[0].ToldMs["1"] != 1300 {
		t.Errorf("JSON: %s", b.String())
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
		`<section class="card`: 1, `class="banner true"`: 1, `class="cut"`: 1, `transform="translate(0 -20)"`: 2, // the crowns
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
		`<section class="card`: 2, `class="banner false"`: 1, "Violation 1": 1, "m1 acknowledges no write: 3 writes": 1, "<script": 0, "&lt;script&gt;": 1,
		"<path class=\"cross\" d=\"M-12": 1, "But it acknowledged 3 writes": 1,
	} {
		if got := strings.Count(html, want); got != times {
			t.Errorf("the bad page has %q %d times, want %d", want, got, times)
		}
	}
	if outside := regexp.MustCompile(`https?://|src=|url\(|@import|<link`).FindString(html); outside != "" {
		t.Errorf("the page has %q", outside)
	}
}

func TestRow(t *testing.T) {
	_, bad := documents()
	var b bytes.Buffer
	Heading(&b, bad.Cases[0].Case.Cluster)
	bad.Cases[1].Window = time.Second
	for _, c := range bad.Cases {
		c.Row(&b)
	}
	want := `
3 voters: a side may go on if set.size > 3/2, that is with 2; 1 may fail

case                                       side                 majority predicted leader       writes        lock    serves      clients
1 | 2, leader left                         m1                   1 ≤ 3/2  stops     none         none          none    until 0.5 s told at 1.3 s
                                           m2 m3                2 > 3/2  goes on   m2, 1.0 s    80, 1.0 s     1.0 s   yes         +1.9 s          as predicted
1 | 2, leader left                         m1                   1 ≤ 3/2  stops     none         3, never      none    until 0.5 s told at 1.3 s
                                           m2 m3                2 > 3/2  goes on   m2, 1.0 s    80, 1.0 s     1.0 s   yes         +1.9 s          NOT AS PREDICTED
    ✗ m1 acknowledges no write: 3 writes
    ✗ m2 m3 gives away the lock that a client of m4 held: never
    ! for 1.0 s two clients held one lock, and both were told that they are connected
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
