package workload

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

var updateFlag = flag.Bool("update", false, "write what the checkers say into testdata")

// TestCheckers has every checker judge the histories in testdata/<workload>, and
// compares with the verdict that stands below each.
//
// A line of a history is the time in seconds, the worker, the kind, the
// operation, then fields as name=value: id lock mode leases token member session
// path value version zxid contender note. A note is the rest of its line. Lines
// that begin with # are comments, and a | stands for a blank in a value.
func TestCheckers(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	seen := make(map[string]bool)
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		seen[name] = true
		t.Run(name+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			checkGolden(t, name, file)
		})
	}
	for _, name := range append(Names(), Libraries, "kills") {
		if !seen[name] {
			t.Errorf("no histories for %s", name)
		}
	}
}

// goldenProgress is the checker of the histories in testdata/progress.
var goldenProgress = Progress{
	Workers: []string{"register-0", "register-1"}, To: 20 * time.Second, Bound: 5 * time.Second, Able: 0.5,
}

const goldenLine = "---\n"

func checkGolden(t *testing.T, name, file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, want, _ := strings.Cut(string(b), goldenLine)
	ops, err := parseHistory(text)
	if err != nil {
		t.Fatal(err)
	}
	check := goldenProgress.Check
	switch name {
	case "progress":
	case "kills":
		check = Kills{Bound: 5 * time.Second}.Check
	default:
		w, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		check = w.Check
	}
	got := verdictText(check(ops))
	if *updateFlag {
		if err := os.WriteFile(file, []byte(text+goldenLine+got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// verdictText is a verdict as testdata has it.
func verdictText(v Verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s\n%s\n", v.Checker, v.Promise, v.Valid, v.Text)
	for _, violation := range v.Violations {
		fmt.Fprintf(&b, "\n%s\n", violation.Text)
		for _, op := range violation.Ops {
			fmt.Fprintln(&b, op)
		}
	}
	return b.String()
}

// parseHistory reads a history as TestCheckers has it.
func parseHistory(text string) ([]jepsen.Op, error) {
	var ops []jepsen.Op
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		op, err := parseOp(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func parseOp(line string) (op jepsen.Op, err error) {
	line, op.Note, _ = strings.Cut(line, " note=")
	words := strings.Fields(line)
	if len(words) < 4 {
		return op, fmt.Errorf("%q has less than four words", line)
	}
	seconds, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		return op, err
	}
	op.Time = time.Duration(seconds*1e6) * time.Microsecond
	op.Worker, op.Kind, op.F = words[1], jepsen.Kind(words[2]), words[3]
	if op.Worker == "nemesis" {
		op.Worker = ""
	}
	for _, word := range words[4:] {
		name, value, _ := strings.Cut(word, "=")
		number, wrong := strconv.ParseInt(value, 0, 64)
		switch name {
		case "id":
			op.ID = number
		case "leases":
			op.Leases = int(number)
		case "token":
			op.Token = number
		case "version":
			op.Version = int32(number)
		case "zxid":
			op.Zxid = number
		default:
			text := map[string]*string{
				"lock": &op.Lock, "member": &op.Member, "session": &op.Session, "path": &op.Path,
				"value": &op.Value, "contender": &op.Contender, "mode": (*string)(&op.Mode), "worker": &op.Worker,
			}[name]
			if text == nil {
				return op, fmt.Errorf("there is no field %q", name)
			}
			*text, wrong = strings.ReplaceAll(value, "|", " "), nil
		}
		if wrong != nil {
			return op, wrong
		}
	}
	return op, nil
}
