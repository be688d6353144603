package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/bench"
)

// TestMain is this program as a member of the limit, and as a process with idle sessions, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == limitMember || os.Args[1] == idleClients) {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestLimit: the limit takes reads and writes of package bench, at the leader and at a follower.
func TestLimit(t *testing.T) {
	l, err := startLimit(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, do := range []load{
		{workload: "write", clients: 1, first: follower}, {workload: "write", clients: 16, inFlight: 8},
		{workload: "read", clients: 16, inFlight: 8},
	} {
		r, err := l.measure(t.Context(), do, 100*time.Millisecond)
		if err == nil {
			err = worthless(r)
		}
		if err != nil {
			t.Errorf("%+v: %v", do, err)
		}
	}
	if err := l.members[1].Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range l.members { // a member that ends ends the others
		<-p.Done()
	}
}

// TestSmoke runs the program with lockkeeper alone, and looks at its output.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	rep, table := compared(t,
		config{only: "^(write, 16|lock-cycle, 1 client|boot|memory of a fresh|recipes.Mutex, acq|open loop at 25 %.*p50$)",
			duration: 200 * time.Millisecond, warmUp: 400 * time.Millisecond})
	wanted := []string{"memory of a fresh member", "write, 16 clients", "write, 16 clients, servers' CPU per operation",
		"lock-cycle, 1 client, p50", "open loop at 25 % of the capacity, p50", "boot to the first create, standalone",
		"recipes.Mutex, acquire and release alone, mean"}
	if len(rep.Rows) != len(wanted) {
		t.Fatalf("%d rows:\n%s", len(rep.Rows), table)
	}
	for i, name := range wanted {
		r := rep.Rows[i]
		if s := r.Systems["lockkeeper"]; r.Name != name || !s.known() || s.Median <= 0 {
			t.Errorf("%s: %+v", r.Name, s)
		}
	}
	open := slices.IndexFunc(rep.Samples, func(s sample) bool { return s.Result != nil && s.Result.Rate > 0 })
	if c := rep.Capacity; c.System != "lockkeeper" || c.PerSecond <= 0 || open < 0 ||
		math.Abs(rep.Samples[open].Result.Rate-c.PerSecond/4) > 1 {
		t.Errorf("capacity %+v, an open loop at a quarter of it: %d of %+v", c, open, rep.Samples)
	}
	for _, m := range []*machine{rep.Before, rep.After} {
		if m == nil || m.FdatasyncUs <= 0 || m.FdatasyncP99Us < m.FdatasyncUs {
			t.Errorf("the disk: %+v", m)
		}
	}
}

// compared has the figures of lockkeeper that the program measures in one round, and prints.
func compared(t *testing.T, c config) (rep report, table string) {
	t.Helper()
	c.systems, c.rounds, c.json, c.sources = "lockkeeper", 1, filepath.Join(t.TempDir(), "all.json"),
		filepath.Join("..", "..")
	var printed, progress strings.Builder
	if err := run(t.Context(), c, &printed, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if strings.Contains(printed.String(), "failed") {
		t.Errorf("something failed:\n%s", printed.String())
	}
	text, err := os.ReadFile(c.json)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &rep); err != nil {
		t.Fatal(err)
	}
	return rep, printed.String()
}

// With a delay, a write takes at least as long as two messages between members.
func TestDelay(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	const delay = 10 * time.Millisecond
	rep, table := compared(t, config{only: "^write, 1 client through a follower, p50", delay: delay,
		duration: 300 * time.Millisecond, warmUp: 100 * time.Millisecond})
	if least := 2 * float64(delay/time.Millisecond); len(rep.Rows) != 1 ||
		rep.Rows[0].Systems["lockkeeper"].Median < least || rep.Before != nil {
		t.Errorf("want %v ms or more, and nothing of the machine:\n%s", least, table)
	}
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   string
	}{
		{[]float64{3, 1, 2}, "2.00 (1.00..3.00)"},
		{[]float64{4, 1}, "2.50 (1.00..4.00)"},
		{[]float64{12345}, "12,345 (12,345..12,345)"},
		{[]float64{0, 0.0123, 150.4}, "0.012 (0..150)"},
	} {
		s := &spread{Values: tt.values}
		s.finish()
		if got := s.text(); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.values, got, tt.want)
		}
	}
	s := &spread{Failures: 2, Failed: "why"}
	s.finish()
	if got := s.text(); got != "failed: why" {
		t.Error(got)
	}
	s.Values = append(s.Values, 7)
	s.finish()
	if got := s.text(); got != "7.00 (7.00..7.00), failed 2 of 3 times: why" {
		t.Error(got)
	}
	var none *spread
	if got := none.text(); got != "–" {
		t.Error(got)
	}
}

// samplesOf makes one sample for each value, in rounds of their own.
func samplesOf(system, step string, result func(v float64) *bench.Result, values ...float64) (list []sample) {
	for i, v := range values {
		list = append(list, sample{Round: i + 1, System: system, Step: step, Result: result(v)})
	}
	return list
}

func TestTable(t *testing.T) {
	rate := func(v float64) *bench.Result { return &bench.Result{PerSecond: v, ServerCPU: 1e5 / v} }
	lost := func(v float64) *bench.Result {
		return &bench.Result{Figures: map[string]float64{"gap without a write ms": 100 * (v + 1),
			"connections lost on survivors": v}}
	}
	const write, failover = "write, 16 clients", "failover (kill -9 of the leader), gap without a write"
	samples := samplesOf("lockkeeper", write, rate, 3100, 2900, 3300)
	samples = append(samples, samplesOf("zookeeper", write, rate, 1000, 1010, 990)...)
	samples = append(samples, samplesOf("etcd", write, rate, 1600)...)
	samples = append(samples, samplesOf("etcd37", write, rate, 1500)...)
	samples = append(samples, samplesOf("limit", write, rate, 9300)...)
	samples = append(samples, samplesOf("lockkeeper", failover, lost, 0, 1, 1)...)
	samples = append(samples, sample{System: "zookeeper", Step: failover, Error: "no | leader"})
	list, err := chosen("^write, 16|^failover", false)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	writeTable(&b, rows(list, samples))
	want := `| write, 16 clients | 1/s | 3,100 (2,900..3,300) | 1,000 (990..1,010) | 3.10x | ≥ 2x | yes | 1,600 (1,600..1,600) | 1.94x, **no** | 1,500 (1,500..1,500) | 2.07x, yes | 9,300 (9,300..9,300) | 0.33x (≥ 0.4x: **no**) |
| write, 16 clients, servers' CPU per operation | us | 32.3 (30.3..34.5) | 100 (99.0..101) | 0.32x | ≤ 0.5x | yes | 62.5 (62.5..62.5) | 0.52x, **no** | 66.7 (66.7..66.7) | 0.48x, yes | 10.8 (10.8..10.8) | 3.00x |
| failover (kill -9 of the leader), gap without a write | ms | 200 (100..200) | failed: no / leader | – | ≤ 0.2x |  | – | – | – | – | – | – |
| failover, connections lost on survivors |  | 1.00 (0..1.00) | failed: no / leader | – | ≤ 0 | **no** | – | – | – | – | – | – |
`
	_, got, _ := strings.Cut(b.String(), "|\n"+strings.Repeat("|---", 13)+"|\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// All systems get the same requests, and every row has its target.
func TestSteps(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range steps() {
		for _, f := range s.figures {
			if seen[f.name] {
				t.Errorf("two figures %q", f.name)
			}
			seen[f.name] = true
			if f.value == nil {
				t.Errorf("%s: no value", f.name)
			}
			if f.target() == "≥ 0x" || f.target() == "≤ 0x" {
				t.Errorf("%s: target %s", f.name, f.target())
			}
		}
		if s.load.workload == idle || s.load.workload == locks {
			continue
		}
		known := false
		for _, w := range bench.Workloads() {
			known = known || w[0] == s.load.workload
		}
		if !known {
			t.Errorf("no workload %q", s.load.workload)
		}
	}
	if _, err := chosen("no such figure", false); err == nil {
		t.Error("nothing is chosen, and no error")
	}
	var b strings.Builder
	if err := run(t.Context(), config{list: true}, &b, io.Discard); err != nil ||
		strings.Count(b.String(), "\n") != len(seen) {
		t.Errorf("-list: %v\n%s", err, b.String())
	}
	if _, err := systems([]string{"chubby"}, config{}); err == nil || !strings.Contains(fmt.Sprint(err), "chubby") {
		t.Errorf("unknown system: %v", err)
	}
	if _, err := systems([]string{"etcd"}, config{delay: 1}); err == nil || !strings.Contains(fmt.Sprint(err), "etcd") {
		t.Errorf("etcd with a delay: %v", err)
	}
}

func TestWriteInto(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	for _, tt := range []struct{ before, want string }{
		{"", "new\n"},
		{"old\n", "new\n"},
		{"# Page\n" + tableBegin + "\nold\n" + tableEnd + "\nmore\n", "# Page\n" + tableBegin + "\nnew\n" + tableEnd +
			"\nmore\n"},
	} {
		if tt.before != "" {
			if err := os.WriteFile(file, []byte(tt.before), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeInto(file, "new\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != tt.want {
			t.Errorf("%q became %q, %v", tt.before, got, err)
		}
	}
	if err := os.WriteFile(file, []byte(tableBegin+"\nno end\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeInto(file, "new\n"); err == nil {
		t.Error("a place without an end was filled")
	}
}
