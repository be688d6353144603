package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/bench"
)

func TestStolen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stat")
	read := func(text string) (cpuTime, error) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return readCPUTime(file)
	}
	before, err := read("cpu  10 1 20 1000 500 2 3 40 7 7\ncpu0 1 2 3\n")
	if err != nil || before != (cpuTime{36, 40}) {
		t.Fatalf("%+v, %v", before, err)
	}
	after, err := read("cpu  40 1 50 9000 900 2 3 60 7 7\n")
	if err != nil || after.stolenSince(before) != 0.25 {
		t.Errorf("%v of 80 ticks are stolen, want 20 (%v)", after.stolenSince(before), err)
	}
	if before.stolenSince(before) != 0 {
		t.Error("something was stolen in no time")
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu 1 2 3 4 5 6 7 x\n", "gpu 1 2 3 4 5 6 7 8\n"} {
		if _, err := read(bad); err == nil {
			t.Errorf("%q is taken for CPU times", bad)
		}
	}
	if _, err := readCPUTime("/proc/stat"); err != nil {
		t.Error(err)
	}
}

// measured is a cluster on a host that takes a share at each measurement. It fails after the last.
type measured struct {
	stolen []float64
	file   string
	times  int
}

func (m *measured) measure(context.Context, load, time.Duration) (*bench.Result, error) {
	if m.times == len(m.stolen) {
		return nil, errors.New("no more")
	}
	m.times++
	total := 0
	for _, share := range m.stolen[:m.times] {
		total += int(100 * share)
	}
	text := fmtStat(100*m.times-total, total)
	return &bench.Result{Workload: "write", Ops: uint64(m.times)}, os.WriteFile(m.file, []byte(text), 0o644)
}

// fmtStat is /proc/stat of a machine with that used and stolen time.
func fmtStat(had, stolen int) string { return fmt.Sprintf("cpu  %d 0 0 0 0 0 0 %d\n", had, stolen) }

func (m *measured) close() error { return nil }

// A measurement that the host has disturbed is repeated, and of all the least disturbed one counts.
func TestDisturbedMeasurementsAreRepeated(t *testing.T) {
	for _, c := range []struct {
		stolen      []float64
		memory      bool
		times, want int
	}{
		{[]float64{0.04, 0}, false, 1, 1},
		{[]float64{0.2, 0.03, 0}, false, 2, 2},
		{[]float64{0.3, 0.1, 0.2, 0.3, 0.3, 0.3, 0}, false, 6, 2},
		{[]float64{0.3}, false, 1, 1}, // the second fails
		{[]float64{0.3, 0}, true, 1, 1},
	} {
		m := &measured{stolen: c.stolen, file: filepath.Join(t.TempDir(), "stat")}
		if err := os.WriteFile(m.file, []byte(fmtStat(0, 0)), 0o644); err != nil {
			t.Fatal(err)
		}
		start := func(context.Context, string, int) (cluster, error) { return m, nil }
		r := &round{system: &system{name: "one", start: start}, dir: t.TempDir(), progress: io.Discard, stat: m.file}
		s := steps()[0]
		s.memory = c.memory
		r.run(context.Background(), []step{s})
		if len(r.samples) != 1 || r.samples[0].Result == nil || int(r.samples[0].Result.Ops) != c.want ||
			m.times != c.times {
			t.Errorf("%v: measured %d times, want %d; %+v counts, want the %dth", c.stolen, m.times, c.times, r.samples,
				c.want)
		}
	}
}
