package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// Write leaves all that is known about a run in a directory: index.html, report.json, the history,
// if there is one, as history.jsonl, and all logs that are in the scratch directory. The page links
// to the others by relative names.
func Write(dir, scratch string, r *Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	logs, err := copyLogs(dir, scratch)
	names := []string{"report.json"}
	err = errors.Join(err, writeFile(filepath.Join(dir, "report.json"), func(w io.Writer) error { return WriteJSON(w, r) }))
	if len(r.Ops) > 0 {
		names = append(names, historyName)
		err = errors.Join(err, writeFile(filepath.Join(dir, historyName),
			func(w io.Writer) error { return jepsen.WriteOps(w, r.Ops) }))
	}
	names = append(names, logs...)
	for _, f := range r.Files {
		names = append(names, f.Name)
	}
	shown := *r
	shown.Files = nil
	for _, name := range names {
		info, failed := os.Stat(filepath.Join(dir, name))
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("report: %w", failed))
			continue
		}
		shown.Files = append(shown.Files, File{name, info.Size()})
	}
	return errors.Join(err, writeFile(filepath.Join(dir, "index.html"), func(w io.Writer) error { return WriteHTML(w, &shown) }))
}

const historyName = "history.jsonl"

// writeFile makes a file of write's output. When it returns without an error, nothing is missing.
func writeFile(name string, write func(io.Writer) error) error {
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

// copyLogs copies the logs that are not empty: client1.log under its name, m1/log as m1.log. Files
// in a member's data directory are no such logs. It returns their names, as people order them.
func copyLogs(dir, scratch string) (names []string, err error) {
	err = filepath.WalkDir(scratch, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // somebody's temporary file
		case err != nil:
			return fmt.Errorf("report: %w", err)
		case entry.IsDir() && entry.Name() == "data":
			return fs.SkipDir
		case entry.IsDir() || entry.Name() != "log" && filepath.Ext(name) != ".log":
			return nil
		}
		below, err := filepath.Rel(scratch, name)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		to := strings.ReplaceAll(strings.TrimSuffix(filepath.ToSlash(below), "/log"), "/", "-")
		text, err := os.ReadFile(name)
		if err == nil && len(text) > 0 {
			names = append(names, strings.TrimSuffix(to, ".log")+".log")
			err = os.WriteFile(filepath.Join(dir, names[len(names)-1]), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		return nil
	})
	slices.SortFunc(names, compareNames)
	return names, err
}

// ReplaceTable puts a table into a page, between the lines "<!-- NAME: begin -->" and "<!-- NAME:
// end -->", which have to be there. If there is no such file, the table becomes one.
func ReplaceTable(file, name, table string) error {
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->"
	page, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = []byte(begin+end+"\n"), nil
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return fmt.Errorf("report: %s has no place for the table: the lines %q and %q", file, strings.TrimSpace(begin),
			end)
	}
	if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// A Summary is the content of report.json: a Run without its history.
type Summary struct {
	*Run
	Valid   workload.Valid `json:"valid"`
	TookMs  int64          `json:"tookMs"`
	Faults  []Fault        `json:"faults"`
	Figures Figures        `json:"figures"`
	// Losses are the grants of locks that were lost.
	Losses []Loss `json:"losses,omitempty"`
	// HistoryOps is the number of entries in the history.
	HistoryOps int `json:"historyOps"`
}

// WriteJSON writes the summary of a run.
func WriteJSON(w io.Writer, r *Run) error {
	length := r.length()
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	err := e.Encode(Summary{r, r.Valid(), length.Milliseconds(), r.faults(), measure(findCalls(r.Ops, length), length),
		r.findLosses(findHolds(r.Ops, length)), len(r.Ops)})
	if err != nil {
		return fmt.Errorf("report: write JSON: %w", err)
	}
	return nil
}
