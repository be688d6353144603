package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
)

// Write leaves everything that is known about a run in a directory: index.html
// and report.json, the history as history.jsonl, and all logs out of the
// scratch directory.
func Write(dir, scratch string, r *report.Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("run: report: %w", err)
	}
	err := errors.Join(
		report.WriteFile(filepath.Join(dir, "index.html"), func(w io.Writer) error { return report.WriteHTML(w, r) }),
		report.WriteFile(filepath.Join(dir, "report.json"), func(w io.Writer) error { return report.WriteJSON(w, r) }),
		report.WriteFile(filepath.Join(dir, "history.jsonl"), func(w io.Writer) error { return jepsen.WriteOps(w, r.Ops) }),
	)
	if err != nil {
		return err
	}
	return copyLogs(dir, scratch)
}

// copyLogs takes the logs of members (m1/log), clients (client1.log) and the processes of client
// libraries (libraries-0.log).
func copyLogs(dir, scratch string) error {
	members, err := filepath.Glob(filepath.Join(scratch, "m*", "log"))
	if err != nil {
		return fmt.Errorf("run: report: %w", err)
	}
	clients, err := filepath.Glob(filepath.Join(scratch, "client*.log"))
	if err != nil {
		return fmt.Errorf("run: report: %w", err)
	}
	libraries, err := filepath.Glob(filepath.Join(scratch, workload.Libraries+"-*.log"))
	if err != nil {
		return fmt.Errorf("run: report: %w", err)
	}
	for _, name := range slices.Concat(members, clients, libraries) {
		to := filepath.Base(name)
		if to == "log" {
			to = filepath.Base(filepath.Dir(name)) + ".log"
		}
		text, err := os.ReadFile(name)
		if err == nil && len(text) > 0 {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("run: report: %w", err)
		}
	}
	return nil
}
