package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
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
	t.Parallel()
	dir := t.TempDir()
	stdout, stderr, status := runProgram(t, "run", "-binary", lockkeeper(t), "-members", "3",
		"-workload", "register,lock,exactly-once,durability", "-nemesis", "partition,kill,pause", "-time", "10s",
		"-seed", "1", "-report", dir)
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
	if len(summary.Verdicts) != 7 || summary.Seed != 1 || len(summary.Faults) < 3 || len(summary.Complaints) > 0 {
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
	if page, err := os.ReadFile(filepath.Join(dir, "index.html")); err != nil ||
		!regexp.MustCompile(`(?s)<html.*register.*</html>`).Match(page) {
		t.Errorf("the page: %v, %.200q", err, page)
	}
}

// The checkers find members that do not know each other: the test of the test.
func TestRunFindsBrokenCluster(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "broken")
	script := fmt.Sprintf("#!/bin/sh\ngrep -v '^server[.]' \"$2\" >\"$2.alone\"\nexec %q serve \"$2.alone\"\n",
		lockkeeper(t))
	if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	stdout, stderr, status := runProgram(t, "run", "-binary", binary, "-members", "3", "-workload", "register,lock",
		"-nemesis", "",
		"-time", "5s", "-seed", "1", "-network", "proxy", "-report", dir)
	if status != exitInvalid {
		t.Errorf("exit status %d, want %d", status, exitInvalid)
	}
	if !regexp.MustCompile(`(?m)^register +C4 +false`).MatchString(stdout) ||
		!strings.Contains(stdout, "valid: false") {
		t.Errorf("nothing was found:\n%s%s", stdout, stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !bytes.Contains(page, []byte("register")) {
		t.Errorf("the page: %v, %d bytes", err, len(page))
	}
}

var longFlag = flag.Bool("jepsen.long", false, "find ZooKeeper's window of belief too; half a minute")

// ZooKeeper's clients believe in sessions that the majority has expired.
func TestRunFindsZooKeepersWindow(t *testing.T) {
	if !*longFlag {
		t.Skip("it takes long, and is about another program; -jepsen.long")
	}
	stdout, stderr, status := runProgram(t, "run", "-target", "zookeeper", "-members", "3", "-workload", "belief",
		"-nemesis", "partition-leader,partition-halves", "-time", "30s", "-seed", "1", "-report", t.TempDir())
	t.Logf("%s%s", stdout, stderr)
	if status != exitInvalid || !regexp.MustCompile(`(?m)^belief +C6 +false`).MatchString(stdout) {
		t.Errorf("exit status %d: nothing was found", status)
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

// Unmodified kazoo, Curator and go-zookeeper take locks by each of their recipes, on one member and
// on three members under repeated kills of the leader: never two holders, every kind of holder is
// seen, nobody who waits waits long, no client of a member that lives is disconnected, and nothing
// is left behind.
//
// Defends: C5.
func TestRunLibraries(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	_, err := tools.Libraries()
	jepsen.Need(t, err)
	for _, test := range []struct {
		name string
		args []string
		// verdicts are the checkers that must be satisfied.
		verdicts []string
	}{
		{"alone", []string{"-members", "1", "-nemesis", "", "-time", "8s"}, []string{"libraries"}},
		{"kills", []string{"-members", "3", "-nemesis", "kill-leader", "-time", "25s"}, []string{"libraries", "kills"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			stdout, stderr, status := runProgram(t, append([]string{"run", "-binary", lockkeeper(t),
				"-workload", "libraries", "-clients", "9", "-session-timeout", "6s", "-seed", "1", "-report", dir},
				test.args...)...)
			t.Logf("%s%s", stdout, stderr)
			if status != exitOK {
				t.Errorf("exit status %d", status)
			}
			var summary report.Summary
			text, err := os.ReadFile(filepath.Join(dir, "report.json"))
			if err == nil {
				err = json.Unmarshal(text, &summary)
			}
			if err != nil {
				t.Fatal(err)
			}
			valid := make(map[string]workload.Valid)
			for _, v := range summary.Verdicts {
				valid[v.Checker] = v.Valid
				if v.Checker != "libraries" {
					continue
				}
				for name, least := range map[string]float64{
					"kazoo/lock": 1, "kazoo/election": 1, "kazoo/read-write": 1, "kazoo/semaphore": 2, "kazoo-gozk": 1,
					"curator/mutex": 1, "curator/latch": 1, "curator/read-write": 2, "curator/semaphore": 2,
					"curator-gozk": 1, "gozk/zklock": 1, "gozk/mutex": 1,
				} {
					if got := v.Figures["most holders of "+name]; got < least {
						t.Errorf("%s had at most %v holders at one time, want %v", name, got, least)
					}
				}
			}
			for _, name := range test.verdicts {
				if valid[name] != workload.Yes {
					t.Errorf("%s: %q", name, valid[name])
				}
			}
		})
	}
}
