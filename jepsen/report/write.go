package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lockkeeper/jepsen"
)

// The files of a report.
const (
	PageFile    = "report.html"
	SummaryFile = "report.json"
	// HistoryFile has one operation a line, as JSON (jepsen.Op).
	HistoryFile = "history.jsonl"
)

// Write writes all files of a run's report into a directory, which is made if need be. Files that are there are replaced.
func Write(dir string, r *Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer, *Run) error
	}{{PageFile, WriteHTML}, {SummaryFile, WriteJSON}, {HistoryFile, writeHistory}} {
		if err := WriteFile(filepath.Join(dir, file.name), func(w io.Writer) error { return file.write(w, r) }); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile makes a file of what write writes. When it returns without an error, nothing is missing.
func WriteFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	b := bufio.NewWriter(f)
	if err := errors.Join(write(b), b.Flush(), f.Close()); err != nil {
		return fmt.Errorf("report: %s: %w", name, err)
	}
	return nil
}

// writeHistory writes the history.
func writeHistory(w io.Writer, r *Run) error { return WriteHistory(w, r.Ops) }

// WriteHistory writes operations as JSON, one a line.
func WriteHistory(w io.Writer, ops []jepsen.Op) error {
	e := json.NewEncoder(w)
	for _, op := range ops {
		if err := e.Encode(op); err != nil {
			return fmt.Errorf("report: write history: %w", err)
		}
	}
	return nil
}
