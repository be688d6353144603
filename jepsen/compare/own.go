package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
)

// own is a table of its own, beside the one that steps.go describes: one round, lockkeeper and
// ZooKeeper.
type own struct {
	name     string        // of -table, and in the marks of the page
	duration time.Duration // unless -duration is given
	run      func(ctx context.Context, o *ownRun) (table string, err error)
}

// owns are all of them.
func owns() []own {
	return []own{
		{"pauses", time.Minute, runPauses},
		{"sizes", defaultDuration, runSizes},
		{"scale", 10 * time.Second, runScale},
	}
}

// findOwn finds a table by its name.
func findOwn(name string) (own, error) {
	var names []string
	for _, o := range owns() {
		if o.name == name {
			return o, nil
		}
		names = append(names, o.name)
	}
	return own{}, fmt.Errorf("-table: there is no %q; there are %s", name, strings.Join(names, ", "))
}

// marks are the lines of a page between which the table is written.
func (o own) marks() (begin, end string) {
	return "<!-- compare " + o.name + ": begin -->", "<!-- compare " + o.name + ": end -->"
}

// ownRun is the making of such a table.
type ownRun struct {
	config
	systems  []*system
	only     *regexp.Regexp
	dir      string
	progress io.Writer
	clusters int
	openings int // of idle sessions
}

// ownHeap is ZooKeeper's heap for these tables: the 1000 MB of its zkServer.sh do not hold a
// million nodes.
const ownHeap = "-Xmx3g"

// writeOwn measures one table, prints it, and writes it into the page if one is given.
func writeOwn(ctx context.Context, c config, dir string, stdout, progress io.Writer) error {
	o, err := findOwn(c.table)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(c.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	r := &ownRun{config: c, only: only, dir: dir, progress: progress}
	r.duration = cmp.Or(r.duration, o.duration)
	var names []string
	for name := range strings.SplitSeq(c.systems, ",") {
		if name == "lockkeeper" || name == "zookeeper" {
			names = append(names, name)
		}
	}
	if r.systems, err = systems(names, c, ownHeap); err != nil {
		return err
	}
	table, err := o.run(ctx, r)
	if err != nil {
		return err
	}
	text := r.head() + table
	if _, err := io.WriteString(stdout, text); err != nil || c.out == "" {
		return err
	}
	begin, end := o.marks()
	return writeBetween(c.out, begin, end, text)
}

// head says when, how and where it was measured.
func (r *ownRun) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: `%s`\n\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), r.command)
	for _, s := range r.systems {
		fmt.Fprintf(&b, "- %s\n", s.version)
	}
	for _, line := range describe(r.dir) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	return b.String() + "\n"
}

// say prints progress.
func (r *ownRun) say(format string, args ...any) {
	fmt.Fprintf(r.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// with runs f with a cluster of a system, which is then removed.
func (r *ownRun) with(ctx context.Context, s *system, cfg jepsen.ClusterConfig, f func(k *keeper) error) error {
	r.clusters++
	cfg.Dir = filepath.Join(r.dir, fmt.Sprintf("%s-%d", s.name, r.clusters))
	if err := os.Mkdir(cfg.Dir, 0o755); err != nil {
		return err
	}
	k, err := startKeeper(ctx, s.target, cfg, r.config)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if err = f(k); err != nil {
		err = fmt.Errorf("%s: %w; %s", s.name, err, k.Logs())
	}
	err = errors.Join(err, k.close(), os.RemoveAll(cfg.Dir))
	syscall.Sync() // the next cluster finds a disk that has nothing left to do
	return err
}

// fill makes nodes of 100 bytes, a thousand in a directory.
func (r *ownRun) fill(ctx context.Context, k *keeper, nodes int) error {
	began := time.Now()
	_, err := bench.Run(ctx, bench.Config{Workload: "znodes", Servers: strings.Split(k.Servers(), ","), Nodes: nodes,
		Leave: true, Settle: func(context.Context) error { return nil }})
	r.say("%d nodes made in %.1f s", nodes, time.Since(began).Seconds())
	return err
}

// markdown is a table in Markdown.
func markdown(head []string, rows [][]string) string {
	var b strings.Builder
	for i, row := range append([][]string{head}, rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = strings.NewReplacer("|", "/", "\n", " ").Replace(c)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
		}
	}
	return b.String()
}
