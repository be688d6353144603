package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"lockkeeper/jepsen/workload"
)

// A Summary is a Run without its history: what report.json holds.
type Summary struct {
	Title      string             `json:"title"`
	Valid      workload.Valid     `json:"valid"`
	Target     string             `json:"target"`
	Began      time.Time          `json:"began"`
	TookMs     int64              `json:"tookMs"`
	Seed       uint64             `json:"seed"`
	Again      string             `json:"again"`
	Settings   []Setting          `json:"settings"`
	Complaints []string           `json:"complaints,omitempty"`
	Verdicts   []workload.Verdict `json:"verdicts"`
	Faults     []Fault            `json:"faults"`
	Figures    Figures            `json:"figures"`
	// HistoryOps is how many entries the history has.
	HistoryOps int `json:"historyOps"`
}

// Summarize makes the summary of a run.
func Summarize(r *Run) Summary {
	length := r.length()
	return Summary{
		Title: r.Title, Valid: r.Valid(), Target: r.Target, Began: r.Began, TookMs: length.Milliseconds(), Seed: r.Seed,
		Again: r.Again, Settings: r.Settings, Complaints: r.Complaints, Verdicts: r.Verdicts, Faults: r.faults(),
		Figures: measure(findCalls(r.Ops, length), length), HistoryOps: len(r.Ops),
	}
}

// WriteJSON writes the summary of a run.
func WriteJSON(w io.Writer, r *Run) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	if err := e.Encode(Summarize(r)); err != nil {
		return fmt.Errorf("report: write JSON: %w", err)
	}
	return nil
}
