package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/bench"
)

// histogram has one time of each of these milliseconds.
func histogram(ms ...int) (h bench.Histogram) {
	for _, d := range ms {
		h.Add(time.Duration(d) * time.Millisecond)
	}
	return h
}

func TestPauseTable(t *testing.T) {
	list := []disturbance{{name: "a"}, {name: "b"}, {name: "c", extra: []string{"snapCount=1"}}}
	if g := sameCluster(list); len(g) != 2 || len(g[0]) != 2 || g[1][0].name != "c" {
		t.Errorf("on one cluster: %+v", g)
	}
	result := func(leader, follower int) *pauseResult {
		return &pauseResult{times: 3, lost: 4, leader: pauseTimes{closed: histogram(leader), steady: histogram(1)},
			follower: pauseTimes{closed: histogram(2), steady: histogram(follower)}}
	}
	results := map[string][]*pauseResult{"lockkeeper": {result(50, 10), result(51, 10), result(10, 200)},
		"zookeeper": {result(300, 7)}}
	want := `| a | 3 | 50 / 10 | yes | 1.00 / 10 | 3 | 300 / 7.00 | 1.00 / 7.00 | 4 |
| b | 3 | 51 / 10 | **no** | 1.00 / 10 | – | – | – | – |
| c | 3 | 10 / 200 | **no** | 1.00 / 200 | – | – | – | – |
`
	if _, got, _ := strings.Cut(pauseTable(list, results), "|---|\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSizeTable(t *testing.T) {
	three, observed := size{3, 0}, size{3, 2}
	rate := func(v float64) *bench.Result { return &bench.Result{PerSecond: v} }
	results := map[sizeKey]*bench.Result{
		{three, sizeLoad{"write", false}, "lockkeeper"}: rate(3000), {three, sizeLoad{"write", true}, "lockkeeper"}: rate(2000),
		{three, sizeLoad{"write", false}, "zookeeper"}: rate(1000), {observed, sizeLoad{"read", true}, "zookeeper"}: rate(50),
	}
	want := `| 3 | write | 3,000 | 2,000 | 1,000 | – | 3x | – |
| 3 | read | – | – | – | – | – | – |
| 3 + 2 observers | write | – | – | – | – | – | – |
| 3 + 2 observers | read | – | – | – | 50 | – | – |
`
	if _, got, _ := strings.Cut(sizeTable([]size{three, observed}, results), "|---|\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestScaleTable(t *testing.T) {
	figures := scaleFigures(50_000, 1_000_000)
	if scaleNodes >= len(figures) || !strings.HasPrefix(figures[scaleNodes].name, "1,000,000 nodes") ||
		!strings.HasPrefix(figures[scaleNodes-1].name, "50,000 idle sessions") {
		t.Errorf("figures of nodes do not begin at %d: %v", scaleNodes, figures)
	}
	got := scaleTable(figures[:2], map[string][]float64{"lockkeeper": {2, 30}, "zookeeper": {4, 0}})
	want := `| 50,000 idle sessions, time to open them | s | 2.00 | 4.00 | 0.50x |
| 50,000 idle sessions, memory of all members | MB | 30 | – | – |
`
	if _, got, _ = strings.Cut(got, "|---|\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The file of a snapshot is found while it is written and when it is finished, of either server.
func TestNextSnapshot(t *testing.T) {
	for _, tt := range []struct{ before, written, finished string }{
		{"snapshots/2-10-1/state.bin", "snapshots/2-20-2.tmp/state.bin", "snapshots/2-20-2/state.bin"},
		{"version-2/snapshot.10", "version-2/snapshot.20", "version-2/snapshot.20"},
	} {
		dir := t.TempDir()
		write := func(name, text string, age time.Duration) error {
			name = filepath.Join(dir, name)
			at := time.Now().Add(-age)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Chtimes(name, at, at)
		}
		if err := write(tt.before, "old", time.Hour); err != nil {
			t.Fatal(err)
		}
		size, _, err := nextSnapshot(t.Context(), dir, func() error {
			// Older than the time after which a file counts as finished, newer than the other one.
			if err := write(tt.written, "new one", time.Minute); err != nil {
				return err
			}
			from, to := filepath.Dir(filepath.Join(dir, tt.written)), filepath.Dir(filepath.Join(dir, tt.finished))
			if from != to {
				return os.Rename(from, to)
			}
			return nil
		})
		if err != nil || size != int64(len("new one")) {
			t.Errorf("%s: %d bytes, %v", tt.finished, size, err)
		}
	}
}

func TestUnknownTable(t *testing.T) {
	err := writeOwn(t.Context(), config{table: "tables"}, t.TempDir(), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `"tables"`) || !strings.Contains(err.Error(), "pauses") {
		t.Errorf("unknown table: %v", err)
	}
}

// TestOwnTables has each table written, small, and with lockkeeper alone.
func TestOwnTables(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	for _, tt := range []struct {
		table, only string
		rows        int
	}{
		{"pauses", "nothing|killed|snapshots", 3}, {"sizes", "^1$|observers", 4}, {"scale", "", 10},
	} {
		page := filepath.Join(t.TempDir(), "page.md")
		o, err := findOwn(tt.table)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := o.marks()
		if err := os.WriteFile(page, []byte("# Page\n"+begin+"\n"+end+"\nmore\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var printed, progress strings.Builder
		err = run(ctx, config{table: tt.table, only: tt.only, systems: "lockkeeper", duration: 300 * time.Millisecond,
			warmUp: 100 * time.Millisecond, nodes: 3000, sessions: 60, out: page, sources: filepath.Join("..", "..")},
			&printed, &progress)
		if err != nil {
			t.Fatalf("%s: %v\n%s", tt.table, err, progress.String())
		}
		text, err := os.ReadFile(page)
		if err != nil || string(text) != "# Page\n"+begin+"\n"+printed.String()+end+"\nmore\n" {
			t.Errorf("%s: %v, the page is\n%s", tt.table, err, text)
		}
		_, table, _ := strings.Cut(printed.String(), "|---|\n")
		if strings.Count(table, "\n") != tt.rows {
			t.Errorf("%s has not %d rows:\n%s", tt.table, tt.rows, table)
		}
	}
}
