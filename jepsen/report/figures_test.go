package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

func TestMeasure(t *testing.T) {
	var ops []jepsen.Op
	call := func(atMs, tookMs int, f string, id int64, kind jepsen.Kind) {
		at := time.Duration(atMs) * time.Millisecond
		ops = append(ops, jepsen.Op{Time: at, Worker: "c1", Kind: jepsen.Invoke, F: f, ID: id})
		if kind != jepsen.Invoke {
			ops = append(ops, jepsen.Op{Time: at + time.Duration(tookMs)*time.Millisecond, Worker: "c1", Kind: kind,
				F: f, ID: id})
		}
	}
	for i := range 100 {
		call(i, i+1, "write", int64(i), jepsen.OK) // 1 to 100 ms, all within the first second
	}
	call(1500, 700, "write", 1000, jepsen.OK) // ends in the third
	call(2100, 5, "write", 1001, jepsen.Fail)
	call(2200, 9000, "read", 1002, jepsen.Info)
	call(2300, 0, "read", 1003, jepsen.Invoke) // never ends: unknown, at the end
	got := measure(findCalls(ops, 12*time.Second), 12*time.Second)
	if got.SliceMs != 1000 || len(got.Ops) != 2 || got.Ops[0].F != "write" {
		t.Fatalf("got %+v", got)
	}
	write, read := got.Ops[0], got.Ops[1]
	if want := (Latency{50, 99, 100}); write.Slices[0].Latency != want || write.Slices[0].OK != 100 {
		t.Errorf("the first second: %+v, want 100 with %+v", write.Slices[0], want)
	}
	if want := (Slice{OK: 1, Fail: 1, Latency: Latency{700, 700, 700}}); write.Slices[2] != want {
		t.Errorf("the third second: %+v, want %+v", write.Slices[2], want)
	}
	if write.OK != 101 || write.Fail != 1 || write.Latency.P50Ms != 51 {
		t.Errorf("write: %+v", write)
	}
	if read.Info != 2 || len(read.Slices) != 12 || read.Slices[11].Info != 2 || read.Latency != (Latency{}) {
		t.Errorf("read: %+v", read)
	}
}

// The number of slices is bounded, however long a run is.
func TestSliceLength(t *testing.T) {
	for _, run := range []time.Duration{time.Millisecond, time.Minute, 10 * time.Minute, 601 * time.Second, time.Hour,
		1000 * time.Hour} {
		length := sliceLength(run)
		if n := int(run / length); n > maxSlices || length%time.Second != 0 || length == 0 {
			t.Errorf("%v: slices of %v, %d of them", run, length, n)
		}
	}
}

// A row shows the operations that ended in a slice of time, failures above successes, and waiting
// in between.
func TestRow(t *testing.T) {
	const length = timelineSlices * time.Second // a second is a slice
	s := time.Second
	calls := []call{
		{worker: "c1", begin: 10 * s, end: 10*s + 1, kind: jepsen.OK},
		{worker: "c1", begin: 10*s + 2, end: 10*s + 3, kind: jepsen.Info},
		{worker: "c1", begin: 10*s + 4, end: 10*s + 5, kind: jepsen.OK},
		{worker: "c1", begin: 20 * s, end: 23 * s, kind: jepsen.Fail},
		{worker: "c1", begin: 24 * s, end: 24 * s, kind: jepsen.OK},
		{worker: "c1", begin: 25 * s, end: 25 * s, kind: jepsen.OK},
	}
	row := lay(nil, calls, nil, length).Rows[0]
	for name, c := range map[string][2]string{
		"waits": {row.Wait, "M40 6h6"}, "ok": {row.OK, "M20 6h2M48 6h4"}, "fail": {row.Fail, "M46 6h2"},
		"info": {row.Info, "M20 6h2"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s, want %s", name, c[0], c[1])
		}
	}
	var page strings.Builder
	if err := WriteHTML(&page, small()); err != nil {
		t.Fatal(err)
	}
	if wait, ok, info := strings.Index(page.String(), `class="ink-wait" d=`),
		strings.Index(page.String(), `class="ink-ok" d=`),
		strings.Index(page.String(), `class="ink-info" d=`); wait > ok || ok > info {
		t.Error("the paths are not drawn in the order that lets what failed be seen")
	}
}

// A lock is held until its release begins, it is lost, or its session has expired.
func TestFindHolds(t *testing.T) {
	s := time.Second
	op := func(at time.Duration, worker, contender string, kind jepsen.Kind, f string) jepsen.Op {
		return jepsen.Op{Time: at, Worker: worker, Contender: contender, Kind: kind, F: f, Lock: "/l"}
	}
	ops := []jepsen.Op{
		op(0, "a", "a/x", jepsen.Invoke, jepsen.FAcquire), op(1*s, "a", "a/x", jepsen.OK, jepsen.FAcquire),
		op(2*s, "a", "a/x", jepsen.Invoke, jepsen.FRelease), op(3*s, "a", "a/x", jepsen.OK, jepsen.FRelease),
		op(3*s, "b", "b/x", jepsen.OK, jepsen.FAcquire), op(4*s, "b", "b/x", jepsen.Info, jepsen.FLost),
		op(5*s, "c", "c/x", jepsen.OK, jepsen.FAcquire),
		{Time: 6 * s, Worker: "c", Kind: jepsen.Info, F: jepsen.FExpired},
		op(7*s, "a", "a/x", jepsen.OK, jepsen.FAcquire), op(7*s, "b", "b/x", jepsen.Fail, jepsen.FAcquire),
	}
	want := []string{"a/x 1s 2s release", "b/x 3s 4s lost", "c/x 5s 6s expired", "a/x 7s 9s "}
	var got []string
	for _, h := range findHolds(ops, 9*s) {
		got = append(got, fmt.Sprint(h.grant.Contender, " ", h.grant.Time, " ", h.to, " ", h.released.F))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCompareNames(t *testing.T) {
	names := []string{"c10", "c2", "b", "c2/x", "c", "", "10", "9"}
	slices.SortFunc(names, compareNames)
	want := []string{"", "9", "10", "b", "c", "c2", "c2/x", "c10"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// A time axis has a handful of marks, whatever the length.
func TestTimeTicks(t *testing.T) {
	for length := 5 * time.Millisecond; length < 5000*time.Hour; length = length * 17 / 10 {
		if n := len((scale{length}).timeTicks()); n < 3 || n > 9 {
			t.Errorf("%v: %d marks", length, n)
		}
	}
}

// Colours of up to three kinds of faults lie upon each other; with more there is one colour, where
// anything was broken.
func TestShades(t *testing.T) {
	s := time.Second
	faults := []Fault{{Kind: "cut", From: 1 * s, To: 3 * s}, {Kind: "kill", From: 2 * s, To: 4 * s},
		{Kind: "pause", From: 6 * s, To: 7 * s}}
	lanes, shades := drawFaults(scale{10 * s}, faults)
	if len(lanes) != 3 || len(shades) != 3 || shades[0].Areas != "M100 0h200v100h-200z" {
		t.Errorf("three kinds: %v, %v", lanes, shades)
	}
	lanes, shades = drawFaults(scale{10 * s}, append(faults, Fault{Kind: "slow", From: 5 * s, To: 6 * s},
		Fault{Kind: "transfer", From: 9 * s, To: 9 * s}))
	if len(lanes) != 5 || len(shades) != 1 || shades[0].Areas != "M100 0h300v100h-300zM500 0h200v100h-200z" {
		t.Errorf("five kinds: %v, %v", lanes, shades)
	}
}
