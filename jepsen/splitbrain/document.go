package splitbrain

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// A Document is all that was played, as it is written to the page and as JSON.
type Document struct {
	Target    string        `json:"target"`
	Began     time.Time     `json:"began"`
	TookMs    int64         `json:"tookMs"`
	TickMs    int64         `json:"tickMs"`
	SessionMs int64         `json:"sessionMs"`
	Again     string        `json:"again"`
	Played    int           `json:"played"`
	Right     int           `json:"asPredicted"`
	Cases     []CaseSummary `json:"cases"`
}

// A CaseSummary is a Result with its conclusions.
type CaseSummary struct {
	*Result
	OK        bool         `json:"asPredicted"`
	Predicted []Prediction `json:"predicted"`
	Sentences []string     `json:"sentences"`
}

// A Prediction is what quorum.Maj says of a side.
type Prediction struct {
	Members    []int  `json:"members"`
	Voters     int    `json:"voters"`
	Observers  int    `json:"observers"`
	Arithmetic string `json:"arithmetic"`
	GoesOn     bool   `json:"goesOn"`
}

// NewDocument makes a document of results.
func NewDocument(target string, began time.Time, cfg Config, again string, results []*Result) *Document {
	cfg = cfg.withDefaults()
	d := &Document{
		Target: target, Began: began, TookMs: time.Since(began).Milliseconds(), TickMs: cfg.Tick.Milliseconds(),
		SessionMs: cfg.Session.Milliseconds(), Again: again, Played: len(results),
	}
	for _, r := range results {
		s := CaseSummary{Result: r, OK: r.OK(), Sentences: r.Sentences()}
		if s.OK {
			d.Right++
		}
		for i, g := range r.Case.Sides {
			s.Predicted = append(s.Predicted, Prediction{r.Sides[i].Members, g.Voters, g.Observers, r.formula(i), r.Case.Quorum(i)})
		}
		d.Cases = append(d.Cases, s)
	}
	return d
}

// OK says whether every case came as predicted.
func (d *Document) OK() bool { return d.Right == d.Played && d.Played > 0 }

// WriteJSON writes the document.
func (d *Document) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	if err := e.Encode(d); err != nil {
		return fmt.Errorf("splitbrain: write JSON: %w", err)
	}
	return nil
}

// Windows is in how many cases two clients held one lock; Window is the longest time for which they did.
func (d *Document) Windows() int {
	n := 0
	for _, c := range d.Cases {
		if c.Window > 0 {
			n++
		}
	}
	return n
}

// Window is the longest time for which two clients held one lock and were both told that they are connected; 0 if never.
func (d *Document) Window() time.Duration {
	var window time.Duration
	for _, c := range d.Cases {
		window = max(window, c.Window)
	}
	return window
}
