package attack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

var (
	keepFlag = flag.Bool("keep", false, "keep the members' logs also if the test passes")
	onlyFlag = flag.String("only", "", "the attack to play; all if empty")
)

// slowMs is how slow the lock users' operations may be, at the 99th percentile, on a machine that
// may be busy with something else: a third of their session timeout. The command `jepsen attack`
// holds them to its own limit.
const slowMs = 2000

// TestAttacks is the short form: each attack for a moment, or for one round.
func TestAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	target, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	attacks, err := Choose(strings.Fields(*onlyFlag), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d, err := Run(ctx, Config{
		Target: target, Tool: target.Tool, Attacks: attacks, Baseline: 500 * time.Millisecond, Each: 500 * time.Millisecond,
		Seed: seed, Dir: jepsen.KeptDir(t, *keepFlag),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range d.Results {
		t.Logf("figures: %s: %s", r.Attack, r.Text())
		if r.onlySlow() && r.P99Ms < slowMs {
			t.Logf("%s: %s", r.Attack, r.Failures[0])
			continue
		}
		for _, f := range r.Failures {
			t.Errorf("%s: %s", r.Attack, f)
		}
	}
}

// The attacker's outcomes count: an attack that was not played, or not answered as it should be,
// fails.
func TestSawTooLittle(t *testing.T) {
	a := Attack{Name: "a", May: []string{ok, closed}, Least: 3, LeastBytes: 100}
	for _, test := range []struct {
		name  string
		seen  map[string]int
		bytes int64
		err   error
		want  string // "": it stands
	}{
		{"played", map[string]int{ok: 2, closed: 1}, 100, nil, ""},
		{"too few", map[string]int{ok: 2}, 100, nil, "saw too little: 2 outcomes"},
		{"too few bytes", map[string]int{ok: 3}, 99, nil, "99 bytes"},
		{"something else", map[string]int{ok: 3, silence: 1}, 100, nil, "saw 1 times: silence"},
		{"not prepared", map[string]int{ok: 3}, 100, wire.CodeNoAuth, "saw too little: NoAuth"},
		{"harm", map[string]int{ok: 3}, 100, &harm{"/fence took long", nil}, "/fence took long"},
	} {
		s := &stage{cfg: Config{Target: jepsen.Lockkeeper("")}}
		r := &Result{}
		s.judgePlay(r, a, &Play{seen: test.seen, sentBytes: test.bytes}, test.err)
		if got := strings.Join(r.Failures, "; "); (got == "") != (test.want == "") ||
			!strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// One operation that hangs counts for all those that were due meanwhile.
func TestSamplesCountFromWhenTheyWereDue(t *testing.T) {
	now := time.Now()
	u := &user{due: now.Add(-2 * time.Second)}
	for i := range 20 {
		u.samples = append(u.samples, sample{due: u.due.Add(time.Duration(i-20) * userPace), took: time.Millisecond})
	}
	if p99 := percentile(u.took(now.Add(-3*time.Second), now.Add(-2*time.Second))); p99 != 1 {
		t.Errorf("before: %v ms", p99)
	}
	during := u.took(now.Add(-2*time.Second), now)
	if p99 := percentile(during); len(during) != 40 || p99 < 1900 || p99 > 2500 {
		t.Errorf("during: %d samples, p99 %v ms", len(during), p99)
	}
}

func TestEveryAttackSaysWhatItIs(t *testing.T) {
	names := map[string]bool{}
	for _, a := range All() {
		if a.Name == "" || names[a.Name] || a.Port == "" || a.Sends == "" || len(a.May) == 0 || a.Least == 0 ||
			a.play == nil {
			t.Errorf("%+v", a)
		}
		names[a.Name] = true
	}
	if _, err := Choose([]string{"acl-entries", "nonsense"}, nil); err == nil ||
		!strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an attack that there is not: %v", err)
	}
	if some, err := Choose(nil, []string{"acl-entries"}); err != nil || len(some) != len(All())-1 {
		t.Errorf("all but one: %d, %v", len(some), err)
	}
}

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ok}, {wire.CodeInvalidACL, "InvalidACL"}, {fmt.Errorf("read: %w", os.ErrDeadlineExceeded), silence},
		{errors.New("reset"), closed},
	} {
		if got := outcome(test.err); got != test.want {
			t.Errorf("%v: %s, want %s", test.err, got, test.want)
		}
	}
}

func TestMultiFailed(t *testing.T) {
	failed := wire.MultiResponse{Results: []wire.MultiResult{
		{Op: wire.OpError}, {Op: wire.OpError, Err: wire.CodeNoNode},
		{Op: wire.OpError, Err: wire.CodeRuntimeInconsistency}}}
	if err := multiFailed(failed.Append(nil)); !errors.Is(err, wire.CodeNoNode) {
		t.Errorf("a multi that failed: %v", err)
	}
	if err := multiFailed(wire.MultiResponse{Results: []wire.MultiResult{{Op: wire.OpCheck}}}.Append(nil)); err != nil {
		t.Errorf("one that did not: %v", err)
	}
}

func TestTable(t *testing.T) {
	ours := &Document{Target: "lockkeeper", Results: []*Result{{Attack: "acl-entries", P99Ms: 7, BeforeMs: 3,
		PeakBytes: 30 << 20},
		{Attack: "peer-term", Failures: []string{tooLittle + "nothing", "m1 is gone\nand its log"}},
		{Attack: "peer-snapshot", Failures: []string{tooLittle + "nothing"}}}}
	theirs := &Document{Target: "zookeeper", Results: []*Result{{Attack: "acl-entries", Failures: []string{"p99"}}}}
	text := Table([]*Document{ours, theirs})
	for _, want := range []string{"stands | 7 (3) | 30 | harmed: p99 |",
		"harmed: m1 is gone; and 1 more | 0 (0) | 0 | not played |",
		"unplayed: saw too little: nothing | 0 (0)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
