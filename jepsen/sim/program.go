package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"lockkeeper/jepsen/mutant"
	"lockkeeper/jepsen/workload"
)

// Program is the compiled simulations.
type Program struct {
	path string
	dir  string
	runs atomic.Int64
	// Unseeded is why the Go runtime's own chance does not follow from the seed; nil if it does.
	Unseeded error
}

// BuildOptions select the kind of program.
type BuildOptions struct {
	// Mutants: with the bugs of package jepsen/mutant.
	Mutants bool
	// PlainRuntime: with the Go runtime as it is.
	PlainRuntime bool
}

// dirLength is the length of the name of the program's directory, if the directory above has a
// shorter one: names of different lengths would take different memory of the heap, and a seed would
// be another run (Run).
const dirLength = 128

// Build compiles the simulations into dir, which it may fill with files of its own. It must run
// somewhere inside the module. The first time takes a minute, because the standard library is
// compiled anew, unless the runtime stays as it is.
func Build(ctx context.Context, dir string, o BuildOptions) (*Program, error) {
	// The program finds out where it is, and where it is run.
	dir = filepath.Join(dir, strings.Repeat("d", max(1, dirLength-len(dir))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	p := &Program{path: filepath.Join(dir, "sim.test"), dir: dir}
	var tags []string
	args := []string{"test", "-c", "-o", p.path}
	replace := make(map[string]string)
	if o.Mutants {
		files, err := mutant.Files(dir)
		if err != nil {
			return nil, err
		}
		replace = files
	}
	if o.PlainRuntime {
		p.Unseeded = errors.New("sim: the runtime is left as it is")
	} else {
		goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("sim: ask go for its root: %w", err)
		}
		files, err := runtimeFiles(strings.TrimSpace(string(goroot)), dir)
		if p.Unseeded = err; err == nil {
			tags = append(tags, "simruntime")
			maps.Copy(replace, files)
		}
	}
	overlay, err := mutant.WriteOverlay(dir, replace)
	if err != nil {
		return nil, err
	}
	args = append(args, "-overlay", overlay)
	args = append(args, "-tags", strings.Join(tags, ","), "lockkeeper/jepsen/simtest")
	build := exec.CommandContext(ctx, "go", args...)
	build.Env = os.Environ()
	if p.Unseeded == nil {
		// With cgo, which depends on whether the machine has a C compiler, a seed is another run.
		build.Env = append(build.Env, "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("sim: go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return p, nil
}

// Simulation describes a simulation.
type Simulation struct {
	Seed     uint64
	Virtual  time.Duration
	Workload string // "" leaves the choice to the seed
	Mutation string // "" means none
	Journal  string // file that gets everything that happens; "" means none
	// Scripts has it begin with a script of the model, if its members fit one.
	Scripts bool
	// Scenario is the test to run instead of a random simulation; it takes Seed and Mutation. ""
	// means none.
	Scenario string
}

// Result is the result line of a simulation, with its process's output.
type Result struct {
	Seed       uint64         `json:"seed"`
	Shape      string         `json:"shape,omitempty"`
	VirtualMs  int64          `json:"virtualMs"`
	RealMs     int64          `json:"realMs"`
	Violations []string       `json:"violations,omitempty"`
	Faults     int            `json:"faults"`
	FaultKinds map[string]int `json:"faultKinds,omitempty"`
	Journal    string         `json:"journal,omitempty"` // a digest
	Figures    map[string]int `json:"figures,omitempty"`
	// Pairs counts the pairs of actions that members took, one right after the other, as
	// "one > the next"; package quorum/model/trace has the actions.
	Pairs map[string]int `json:"pairs,omitempty"`
	// Crashed says that the process ended without a result.
	Crashed bool `json:"crashed,omitempty"`
	// Output is the beginning of the process's output, if something was wrong.
	Output string `json:"output,omitempty"`
}

// Virtual is how long the simulation was.
func (r *Result) Virtual() time.Duration { return time.Duration(r.VirtualMs) * time.Millisecond }

// OK says that nothing was wrong.
func (r *Result) OK() bool { return len(r.Violations) == 0 }

// Unexplained is the event that the protocol does not explain, with the rule; "" if it explains
// all. It follows the words of jepsen/simtest (explained.report).
func (r *Result) Unexplained() string {
	_, text, _ := strings.Cut(r.Output, "the protocol does not explain this: ")
	text, _, _ = strings.Cut(text, "\n")
	return text
}

const (
	// A simulation that takes so much CPU time hangs: its process is then made to say where. Wall
	// time would tell of other processes of the machine as well.
	hangsAfter        = 3 * time.Minute
	hangsAfterPerHour = 3 * time.Minute
	// wallFactor is the ratio of the limits of wall time and CPU time. It ends a simulation that
	// hangs without using the CPU, and limits it where the CPU time is not known.
	wallFactor = 10
	// outputMaxBytes bounds the kept output of a process.
	outputMaxBytes = 64 << 10
)

// Run runs one simulation. An error kept it from running; a process that crashed is a violation.
func (p *Program) Run(ctx context.Context, s Simulation) (*Result, error) {
	// Names and the environment are always of the same length, so that they always take the same
	// part of the heap. For the same reason there is always a journal.
	run := p.runs.Add(1)
	results := filepath.Join(p.dir, fmt.Sprintf("result-%08d", run))
	defer os.Remove(results)
	journal := filepath.Join(p.dir, fmt.Sprintf("journal-%08d", run))
	defer os.Remove(journal)
	limit := hangsAfter + time.Duration(s.Virtual.Hours()*float64(hangsAfterPerHour))
	test := "TestSimulation"
	if s.Scenario != "" {
		test = s.Scenario
	}
	cmd := exec.CommandContext(ctx, "./"+filepath.Base(p.path),
		"-test.run=^"+test+"$", "-test.timeout="+(wallFactor*limit).String(), "-sim.seeds=1", "-sim.seed="+
			strconv.FormatUint(s.Seed, 10),
		"-sim.virtual="+s.Virtual.String(), "-sim.results="+filepath.Base(results), "-sim.journal="+filepath.Base(journal),
		"-sim.workload="+s.Workload, "-sim.mutation="+s.Mutation, "-sim.scripts="+strconv.FormatBool(s.Scripts))
	cmd.Dir = p.dir
	// Garbage is collected when jepsen/simtest says so, and nobody runs meanwhile.
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1,memprofilerate=0,gcstoptheworld=2",
		"GOTRACEBACK=all"}
	started := time.Now()
	out, failed := output(cmd, limit)
	if s.Journal != "" {
		if err := saveJournal(journal, s.Journal); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if failed != nil && !errors.As(failed, &exit) && !errors.Is(failed, errHangs) {
		return nil, fmt.Errorf("sim: start the simulation: %w", failed)
	}
	r := &Result{Seed: s.Seed}
	if s.Scenario != "" {
		if failed != nil {
			r.Violations = []string{reason(out, failed)}
		}
	} else if line, err := os.ReadFile(results); err == nil && len(line) > 0 {
		if err := json.Unmarshal(line, r); err != nil {
			return nil, fmt.Errorf("sim: read the result: %w", err)
		}
	} else {
		r.Crashed, r.Violations = true, []string{"the process ended: " + reason(out, failed)}
	}
	if failed != nil && r.OK() {
		r.Violations = []string{reason(out, failed)}
	}
	r.RealMs = time.Since(started).Milliseconds()
	if !r.OK() {
		r.Output = string(out[:min(outputMaxBytes, len(out))])
	}
	return r, nil
}

var errHangs = errors.New("it hangs")

// output runs a program to its end and returns its output. A program that takes more CPU time than
// limit is sent SIGQUIT, so that it prints its goroutines and ends; the error is errHangs then.
func output(cmd *exec.Cmd, limit time.Duration) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ticker := time.NewTicker(min(time.Second, limit))
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return out.Bytes(), err
		case <-ticker.C:
			if used := cpuTime(cmd.Process.Pid); used > limit {
				_ = cmd.Process.Signal(syscall.SIGQUIT) // it may have ended
				<-ended
				return out.Bytes(), fmt.Errorf("%w: it has taken %v of CPU time", errHangs, used)
			}
		}
	}
}

// cpuTime is how much CPU time a process has taken, to 10 ms; 0 if that is not known, as without
// /proc.
func cpuTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// pid (name) state ...; the name may hold blanks and brackets.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // of USER_HZ, which is 100
}

// reason finds the line that says why a process ended: that it crashed, or else the first that a
// test complained about.
func reason(out []byte, err error) string {
	complaint := fmt.Sprint(err)
	if errors.Is(err, errHangs) {
		return complaint
	}
	for line := range strings.Lines(string(out)) {
		for _, mark := range []string{"panic: ", "fatal error: "} {
			if strings.HasPrefix(line, mark) {
				return strings.TrimSpace(line)
			}
		}
		if _, text, ok := strings.Cut(line, "_test.go:"); ok && complaint == fmt.Sprint(err) {
			if _, text, ok := strings.Cut(text, ": "); ok {
				complaint = strings.TrimSpace(text)
			}
		}
	}
	return complaint
}

// saveJournal copies the written part of a simulation's journal, which ends at the first byte that
// is 0. A simulation that never began has none.
func saveJournal(journal, name string) error {
	from, err := os.Open(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("sim: journal: %w", err)
	}
	defer from.Close()
	to, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("sim: journal: %w", err)
	}
	defer to.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := from.Read(buf)
		text, _, ended := bytes.Cut(buf[:n], []byte{0})
		if _, err := to.Write(text); err != nil {
			return fmt.Errorf("sim: journal: %w", err)
		}
		switch {
		case ended || err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("sim: journal: %w", err)
		}
	}
}

// Workloads are the names that Simulation.Workload may list, separated by commas: the kinds of
// clients of jepsen/simtest, and the workloads of package jepsen/workload.
func Workloads() []string {
	return append([]string{"locks", "foreign-locks", "registers", "pipes"}, workload.Names()...)
}
