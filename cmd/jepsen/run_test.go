package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
)

// A short run of real processes under the three nemeses that are asked for most.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	stdout, stderr, status := runProgram(t, "run", "-binary", lockkeeper(t), "-members", "3",
		"-workload", "register", "-nemesis", "partition,kill,pause", "-time", "15s", "-seed", "1", "-report", dir)
	if status != exitOK {
		t.Errorf("exit status %d", status)
	}
	t.Logf("%s%s", stdout, stderr)
	for _, want := range []string{" partition ", " kill ", " pause ", " kill over ", "all healed", "valid: "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	var summary report.Summary
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		t.Fatal(err)
	}
	if len(summary.Verdicts) != 1 || summary.Seed != 1 || len(summary.Faults) < 4 || len(summary.Complaints) > 0 {
		t.Errorf("the report's summary: %+v", summary)
	}
	for _, v := range summary.Verdicts {
		if v.Valid != workload.Yes {
			t.Errorf("%s: %s: %s", v.Checker, v.Valid, v.Text)
		}
	}
	ops := readHistory(t, dir)
	if len(ops) != summary.HistoryOps {
		t.Errorf("the history has %d entries, the summary says %d", len(ops), summary.HistoryOps)
	}
	for i := 1; i < len(ops); i++ {
		if ops[i].Time < ops[i-1].Time {
			t.Fatalf("entry %d comes before the one before it: %v, %v", i, ops[i-1], ops[i])
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "index.html")); err != nil || !regexp.MustCompile(`(?s)<html.*register.*</html>`).Match(page) {
		t.Errorf("the page: %v, %.200q", err, page)
	}
}

// readHistory reads the history of a report.
func readHistory(t *testing.T, dir string) []jepsen.Op {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var ops []jepsen.Op
	for decoder := json.NewDecoder(bufio.NewReader(file)); decoder.More(); {
		var op jepsen.Op
		if err := decoder.Decode(&op); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	return ops
}
