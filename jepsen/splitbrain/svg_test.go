package splitbrain

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"
	"time"
)

// A svg is a picture, as far as the tests look at it.
type svg struct {
	Title string `xml:"title"`
	Rects []struct {
		Class string  `xml:"class,attr"`
		X     float64 `xml:"x,attr"`
		Y     float64 `xml:"y,attr"`
		Width float64 `xml:"width,attr"`
	} `xml:"rect"`
	Texts []string `xml:"text"`
}

func read(t *testing.T, picture string) (drawn svg) {
	t.Helper()
	if err := xml.Unmarshal([]byte(picture), &drawn); err != nil {
		t.Fatalf("%v in %s", err, picture)
	}
	return drawn
}

// TestBeside draws a client that is told before its lock goes to another one, and one that is told
// later.
func TestBeside(t *testing.T) {
	early, late := played(), played()
	late.Told[1], late.Watched = at(3700), 5*time.Second
	judge(early, true)
	judge(late, false)
	picture, text := Beside([]System{{"one", early}, {"two & more", late}}, "settings")
	want := "A's server is cut off from the majority: with one A is told after 1.3 s that it is cut off, and B gets the " +
		"lock after 3.2 s; with two & more B gets the lock after 3.2 s, and A believes that it holds it until 3.7 s: two " +
		"holders for 0.5 s"
	drawn := read(t, picture)
	if text != want || drawn.Title != want {
		t.Errorf("got %q and the title %q, want %q", text, drawn.Title, want)
	}
	two := 0
	var green [][2]float64 // from and to
	for _, r := range drawn.Rects {
		switch r.Class {
		case "two":
			two++
		case "goes":
			green = append(green, [2]float64{r.X, r.X + r.Width})
		}
	}
	if two != 2 || len(green) != 4 || green[0][1] >= green[1][0] || green[2][1] >= green[3][0] {
		t.Errorf("%d times are of two holders, want 2; one holder: %v", two, green)
	}
	for _, want := range []string{"one", "two & more", "settings", "told after 1.3 s", "told after 3.7 s", "5 s"} {
		if !slices.Contains(drawn.Texts, want) {
			t.Errorf("there is no text %q in %q", want, drawn.Texts)
		}
	}
}

// TestStoryPicture draws a cut with a majority, and one without.
func TestStoryPicture(t *testing.T) {
	uneven, even := played(), played()
	uneven.Watched = 5 * time.Second
	even.Case = StoryCase(4)
	even.Sides = []Seen{newSeen([]int{1, 3}), newSeen([]int{2, 4})}
	even.Sides[0].Stopped = map[int]Instant{1: at(500), 3: at(700)}
	for _, test := range []struct {
		result *Result
		title  string
		texts  []string
		absent string
	}{
		{uneven, "3 voters are cut into 1 and 2: m2 m3 go on",
			[]string{"1 ≤ 3/2: stops", "2 > 3/2: goes on", "clients of m1", "served until 0.5 s",
				"writes at m2 m3", "acknowledged, the first one after 1.0 s", "holds it"}, "2 ≤ 3/2"},
		{even, "4 voters are cut into 2 and 2: neither side goes on",
			[]string{"2 ≤ 4/2: stops", "clients of m1 m3", "served until 0.7 s", "served until never"}, "goes on"},
	} {
		drawn := read(t, StoryPicture(test.result))
		if drawn.Title != test.title {
			t.Errorf("the title is %q, want %q", drawn.Title, test.title)
		}
		for _, want := range test.texts {
			if !slices.Contains(drawn.Texts, want) {
				t.Errorf("there is no text %q in %q", want, drawn.Texts)
			}
		}
		if all := strings.Join(drawn.Texts[1:], ", "); strings.Contains(all, test.absent) {
			t.Errorf("there is %q in %q", test.absent, all)
		}
	}
}
