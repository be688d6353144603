package workload

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

// Env has the common parts of the clients of one run.
type Env struct {
	// Servers are the members' client addresses, as host:port.
	Servers []string
	// Dial opens the clients' connections; nil means TCP. In a simulation it
	// says by client from which host: that is why it is asked for by name.
	Dial func(client string) zk.Dialer `json:"-"`
	// History gets every operation. Its clock is the only one.
	History *jepsen.History `json:"-"`
	// Seed makes the clients' operations repeatable, as far as their answers are.
	Seed uint64
	// Clients is their number.
	Clients int
	// SessionTimeout is the timeout that they request.
	SessionTimeout time.Duration
	// Think is how long a client waits between two operations, on average;
	// 5 ms if zero. It sets the load.
	Think time.Duration
	// Fence is the resource that locks protect, outside of the cluster, shared by
	// all clients of the run in whatever process: a fence.File. Nil is one in the
	// memory of this process, for clients that are all in it.
	Fence Fence `json:"-"`
	// Libraries are the client libraries of the workload libraries, and Dir is a directory for
	// their processes' output. No other workload needs them.
	Libraries []jepsen.Client
	Dir       string
	// Logger gets the client libraries' log; nil discards it.
	Logger *slog.Logger `json:"-"`
}

// A Fence accepts acts of lock holders, one at a time, and refuses a token that is smaller than one
// that it has accepted for the same resource (fence.ErrStale). A *fence.File and a *fence.Gate are
// some.
type Fence interface {
	Do(resource string, token int64, f func() error) error
}

// A Workload is a kind of client together with its checker. New makes one for each run.
type Workload struct {
	name  string
	run   func(ctx context.Context, env *Env, n int) error
	final func(ctx context.Context, env *Env) error // nil: there is nothing more to read
	check func(ops []jepsen.Op) Verdict
}

// Name is its name for -workload.
func (w Workload) Name() string { return w.name }

// Run is client n of env.Clients, counted from 0: it works, and records its operations in the
// history, until ctx ends. It bears every fault: only an error that makes the run worthless is
// returned, for example that nothing could be set up. All clients run side by side.
func (w Workload) Run(ctx context.Context, env *Env, n int) error { return w.run(ctx, env, n) }

// Final is called once, when all clients have ended and everything has been healed: it reads the
// final state for the checker.
func (w Workload) Final(ctx context.Context, env *Env) error {
	if w.final == nil {
		return nil
	}
	return w.final(ctx, env)
}

// Check goes through the history, which may hold other workloads' too.
func (w Workload) Check(ops []jepsen.Op) Verdict { return w.check(ops) }

// workloads are all that need nothing beyond this program, in the order in which they are listed.
var workloads = []func() Workload{
	newRegister, newOrder, newBelief, newLock, newOnce, newEphemeral, newDurability,
}

// Libraries is the name of a workload that New knows, too. It starts processes with client
// libraries of other languages (Env.Libraries), which not every machine has and no simulation can
// hold: Names is without it.
const Libraries = librariesName

// Names are the workloads that need nothing beyond this program.
func Names() []string {
	var names []string
	for _, make := range workloads {
		names = append(names, make().name)
	}
	return names
}

// Steady reports whether the clients of a workload complete operations all the time, unless
// something is broken: belief's clients only watch, and now and then cut themselves off; the
// libraries decide what their clients do after an error; and hold's clients wait for long.
func Steady(name string) bool {
	return name != beliefName && name != librariesName && name != holdName
}

// New is a workload for one run.
func New(name string) (Workload, error) {
	for _, make := range append(slices.Clone(workloads), newLibraries, newHold) {
		if w := make(); w.name == name {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("workload: there is no workload %q; there are %s, %s, %s", name,
		strings.Join(Names(), ", "), librariesName, holdName)
}

// tells is a Workload.final that reads the tree below root.
func tells(name, root string) func(ctx context.Context, env *Env) error {
	return func(ctx context.Context, env *Env) error {
		return newWorker(env, name, env.Clients).tellTree(ctx, root)
	}
}

// Valid is a checker's judgement, in Jepsen's words.
type Valid string

const (
	// Yes: the history keeps the promise, and says enough to tell.
	Yes Valid = "true"
	// No: it breaks it.
	No Valid = "false"
	// Unknown: nothing is broken, but too little happened to tell, or the checker ran out of time.
	Unknown Valid = "unknown"
)

// A Verdict is the result of a checker.
type Verdict struct {
	// Checker is its name; Promise the clause of the contract, as C4.
	Checker string `json:"checker"`
	Promise string `json:"promise"`
	Valid   Valid  `json:"valid"`
	// Text is one sentence with the figures: how much was checked.
	Text string `json:"text"`
	// Checked is the number of cases that the checker judged, and Unit their name, in the plural
	// ("grants"); empty for a checker without cases.
	Checked int    `json:"checked,omitempty"`
	Unit    string `json:"unit,omitempty"`
	// Violations are the broken promises, each with the shortest piece of history that shows it.
	Violations []Violation `json:"violations,omitempty"`
	// Figures are measures, by name with unit (as "window ms"), for tables.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// A Violation is one broken promise.
type Violation struct {
	Text string      `json:"text"`
	Ops  []jepsen.Op `json:"ops"`
}

const (
	// maxViolations bounds the violations that a verdict shows.
	maxViolations = 20
	tooLittle     = "too little to tell"
)

// judged notes how much was checked.
func (v *Verdict) judged(n int, unit string) { v.Checked, v.Unit = n, unit }

// doubt says why the history does not tell whether the promise was kept.
func (v *Verdict) doubt(why string) {
	v.Valid = Unknown
	v.Text += "; " + why
}

// violate adds a violation.
func (v *Verdict) violate(ops []jepsen.Op, format string, args ...any) {
	v.Violations = append(v.Violations, Violation{Text: fmt.Sprintf(format, args...), Ops: ops})
}

// concluded is the verdict in the end: a violation is one whatever else is not known.
func (v *Verdict) concluded() Verdict {
	n := len(v.Violations)
	if n > 0 {
		v.Valid = No
	}
	if n > maxViolations {
		v.Text += fmt.Sprintf("; the first %d of %d violations are shown", maxViolations, n)
		v.Violations = v.Violations[:maxViolations]
	}
	return *v
}
