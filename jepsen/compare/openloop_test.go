package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
)

// openReport has open loops at all shares, without one of ZooKeeper's.
func openReport() *report {
	rep := &report{Date: "today", Rounds: 3, Seconds: 2, Machine: []string{"CPU: some"},
		Capacity: capacity{"zookeeper", 10_000}, systems: []*system{{name: "lockkeeper"}, {name: "zookeeper"}, {name: "etcd37"}, {name: "zookeeper-recommended"}}}
	for i, s := range openSteps() {
		for j, name := range []string{"lockkeeper", "zookeeper", "etcd37"} {
			one := sample{Round: 1, System: name, Step: s.figures[0].name}
			if name == "zookeeper" && s.load.share == 90 {
				one.Error = "no leader"
			} else {
				v := float64((i + 1) * (1 + j*10))
				one.Result = &bench.Result{Ops: 1000, PerSecond: 100 * v, Rate: 1, Errors: map[string]int{"refused": 1000 * j},
					Latency: bench.Latency{P50: v, P99: 2 * v, P999: 3 * v, Max: 4 * v},
					Figures: map[string]float64{"generator late, p99 ms": 0.5, "requests without a reply": 500}}
			}
			rep.Samples = append(rep.Samples, one)
		}
	}
	rep.Rows = rows(openSteps(), rep.Samples)
	return rep
}

func TestOpenTable(t *testing.T) {
	rep := openReport()
	var b strings.Builder
	rep.writeOpen(&b)
	for _, want := range []string{
		"capacity of ZooKeeper (10,000 writes a second, closed loop)",
		"| load | requests, 1/s | system | p50, ms | p99, ms | p99.9, ms | longest, ms | replies, 1/s | " +
			"failed or without a reply, % | generator late, p99, ms |\n|---|---|---|---|---|---|---|---|---|---|\n",
		"| 25 % | 2,500 | lockkeeper | 1.00 (1.00..1.00) | 2.00 (2.00..2.00) | 3.00 (3.00..3.00) | 4.00 (4.00..4.00) | " +
			"100 | 50 | 0.500 |\n",
		"| 90 % | 9,000 | ZooKeeper | failed: no leader |",
		"| 90 % | 9,000 | etcd 3.7 | 84 (84..84) | 168 (168..168) | 252 (252..252) | 336 (336..336) | 8,400 | 83.3 | 0.500 |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "\n| "); n != 1+4*3 {
		t.Errorf("%d rows, want a head and 12:\n%s", n, b.String())
	}
	b.Reset()
	writeTable(&b, rep.Rows) // has none of them
	(&report{}).writeOpen(&b)
	if b.Len() > 0 {
		t.Errorf("a table of nothing:\n%s", b.String())
	}
}

func TestOpenPicture(t *testing.T) {
	dir := t.TempDir()
	if err := openReport().drawOpen(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, loadPicture))
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"<title>lockkeeper: ": 3 * 4, "<title>ZooKeeper: ": 3 * 3, ">p99.9<": 1,
		"longest": 0, "recommended": 0, "today, 128 connections, three members on one machine, 3 rounds of 2 s; CPU: some": 1} {
		if n := strings.Count(string(text), want); n != times {
			t.Errorf("%q is there %d times, want %d", want, n, times)
		}
	}
	if err := (&report{}).drawOpen(filepath.Join(dir, "none")); err != nil {
		t.Errorf("nothing to draw: %v", err)
	}
}

func TestPicturesBeside(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	if got := picturesBeside(page); got != "" {
		t.Errorf("%q does not exist", got)
	}
	if err := os.Mkdir(filepath.Join(dir, "page"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := picturesBeside(page), filepath.Join(dir, "page"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := picturesBeside(""); got != "" {
		t.Errorf("no page, and pictures in %q", got)
	}
}

// An open loop has its share of the capacity, and none without one.
func TestCapacity(t *testing.T) {
	var rates []string
	for _, s := range openSteps() {
		l, err := capacity{"zookeeper", 8000}.at(s.load)
		if err != nil {
			t.Fatal(err)
		}
		rates = append(rates, fmt.Sprint(l.rate))
	}
	if got := strings.Join(rates, " "); got != "2000 4000 6000 7200" {
		t.Error(got)
	}
	if _, err := (capacity{"zookeeper", 0}).at(load{share: 25}); err == nil {
		t.Error("a share of nothing")
	}
	if l, err := (capacity{}).at(load{workload: "write"}); err != nil || l.rate != 0 {
		t.Errorf("a closed loop: %v, rate %v", err, l.rate)
	}
}

func TestRecommended(t *testing.T) {
	list, err := systems([]string{"zookeeper-recommended", "etcd-recommended", "lockkeeper-recommended"},
		config{logDisk: "/logs", sources: filepath.Join("..", "..")})
	if errors.Is(err, jepsen.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"-Xmx3g, its log on a disk of its own", "ionice -c 2 -n 0, its log on a disk of its own",
		"with its log on a disk of its own"} {
		s := list[i]
		if !strings.HasSuffix(s.version, want) || !s.takes(load{workload: "write", etcd: true, recommended: true}) ||
			s.takes(load{workload: "write", etcd: true}) {
			t.Errorf("%s: %s", s.name, s.version)
		}
	}
	if list[1].takes(load{workload: "herd", recommended: true}) {
		t.Error("etcd has no herd")
	}
	for _, name := range []string{"lockkeeper-recommended", "limit-recommended"} {
		if _, err := systems([]string{name}, config{}); err == nil {
			t.Errorf("%s without a setting", name)
		}
	}
	with := recommendedSettings("zookeeper", "/logs")
	if got := strings.Join(with.extra(), " "); got != "dataLogDir=/logs/{dir}/log" {
		t.Error(got)
	}
	with = recommendedSettings("zookeeper", "")
	if got := strings.Join(append(with.java, with.extra()...), " "); got != "-Xmx3g snapCount=1000000" {
		t.Error(got)
	}
	line := recommendedSettings("etcd", "/logs").etcd("/bin/etcd", "/data/m0")
	if got := strings.Join(line, " "); got != "ionice -c 2 -n 0 /bin/etcd --data-dir /data/m0 --wal-dir /logs/data/m0/log" {
		t.Error(got)
	}
}

func TestRecommendedTable(t *testing.T) {
	rate := func(v float64) *bench.Result { return &bench.Result{PerSecond: v} }
	const write = "write, 16 clients"
	rep := &report{systems: []*system{{name: "zookeeper"}, {name: "etcd37"}, {name: "zookeeper-recommended"},
		{name: "etcd37-recommended"}}}
	rep.Samples = append(samplesOf("zookeeper", write, rate, 1000), samplesOf("zookeeper-recommended", write, rate, 1200)...)
	rep.Samples = append(rep.Samples, samplesOf("etcd37", write, rate, 500)...)
	list, err := chosen("^(write, 16 clients|herd.*)$", false)
	if err != nil {
		t.Fatal(err)
	}
	rep.Rows = rows(list, rep.Samples)
	var b strings.Builder
	rep.writeRecommended(&b)
	_, got, _ := strings.Cut(b.String(), "\n\n| ")
	want := `figure |  | ZooKeeper | recommended | ratio | etcd 3.7 | recommended | ratio |
|---|---|---|---|---|---|---|---|
| write, 16 clients | 1/s | 1,000 (1,000..1,000) | 1,200 (1,200..1,200) | 1.20x | 500 (500..500) | – | – |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
