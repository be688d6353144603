package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"lockkeeper/jepsen"
)

// config is the parsed command line.
type config struct {
	only     string
	systems  string
	rounds   int
	duration time.Duration
	warmUp   time.Duration
	delay    time.Duration
	logDisk  string // a directory for logs on another disk; empty: none
	binary   string
	etcd37   string
	sources  string // of lockkeeper
	command  string // as it was typed, without the flags that compare.sh adds
	json     string
	out      string
	pictures string // a directory; empty: picturesBeside(out)
	list     bool

	table    string // one of owns; empty: the one of steps.go
	nodes    int    // of the tables pauses and scale
	sessions int    // of the table scale
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == limitMember {
		fmt.Fprintln(os.Stderr, runLimitMember(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == idleClients {
		if err := runIdleClients(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var c config
	flag.StringVar(&c.only, "only", "", "regular expression: only figures with such names")
	flag.StringVar(&c.systems, "systems", systemNames, "the systems, in turn")
	flag.IntVar(&c.rounds, "rounds", 3, "how often each is measured")
	flag.DurationVar(&c.duration, "duration", 0, "how long each measurement lasts, after a second that does not count; "+
		"all of the table pauses together (default 2s; pauses 1m, scale 10s)")
	flag.DurationVar(&c.warmUp, "warm", 8*time.Second, "how long each cluster is warmed up")
	flag.DurationVar(&c.delay, "delay", 0,
		"the `delay` of messages between members, as on a network; not with etcd and the limit")
	flag.StringVar(&c.logDisk, "log-disk", "",
		"a `directory` on another disk, for the logs of systems with recommended settings (lockkeeper-recommended, too)")
	flag.StringVar(&c.binary, "binary", "", "lockkeeper (default: it is built)")
	flag.StringVar(&c.etcd37, "etcd37", "", "etcd 3.7 (default: it is built from Go's module proxy)")
	flag.StringVar(&c.sources, "sources", filepath.Join("..", ".."), "the directory of lockkeeper's module")
	flag.StringVar(&c.json, "json", "", "file for all that was measured")
	flag.StringVar(&c.out, "out", "", "file for what is printed; in one that has the lines "+tableBegin+" and "+
		tableEnd+", it is put between these")
	flag.StringVar(&c.pictures, "pictures", "",
		"`directory` for pictures (default: the one named like the page of -out, beside it, if it exists)")
	flag.StringVar(&c.table, "table", "", "another `table`: pauses, sizes or scale")
	flag.IntVar(&c.nodes, "nodes", 1_000_000, "nodes, for -table pauses and scale")
	flag.IntVar(&c.sessions, "sessions", 50_000, "idle sessions, for -table scale")
	flag.BoolVar(&c.list, "list", false, "list the figures")
	flag.Parse()
	if flag.NArg() > 0 || c.rounds < 1 || c.duration < 0 || c.warmUp <= 0 || c.delay < 0 || min(c.nodes, c.sessions) < 1 {
		flag.Usage()
		os.Exit(2)
	}
	c.command = "jepsen/compare.sh"
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "binary", "etcd37", "sources", "json", "out", "pictures": // no influence
		default:
			c.command += fmt.Sprintf(" -%s '%s'", f.Name, f.Value)
		}
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, c, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// defaultDuration is how long a measurement of the table in steps.go lasts.
const defaultDuration = 2 * time.Second

// report is all that was measured.
type report struct {
	Date     string            `json:"date"`
	Command  string            `json:"command"`
	Machine  []string          `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"secondsEach"`
	Before   *machine          `json:"machineBefore"`
	After    *machine          `json:"machineAfter"`
	Capacity capacity          `json:"capacity"`
	Rows     []*row            `json:"figures"`
	Samples  []sample          `json:"samples"`
	systems  []*system
}

// chosen are the steps with a figure that is asked for, and of these steps such figures only. With
// all, none is left out for want of -only.
func chosen(only string, all bool) (list []step, err error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	for _, s := range steps() {
		var figures []figure
		for _, f := range s.figures {
			if re.MatchString(f.name) && (!s.asked || all || only != "") {
				figures = append(figures, f)
			}
		}
		if s.figures = figures; len(figures) > 0 {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("-only %s: there is no such figure; -list shows all", only)
	}
	return list, nil
}

func run(ctx context.Context, c config, stdout, progress io.Writer) (err error) {
	var list []step
	if c.table == "" {
		list, err = chosen(c.only, c.list)
	}
	if err != nil {
		return err
	}
	if c.list {
		for _, s := range list {
			for _, f := range s.figures {
				fmt.Fprintf(stdout, "%s (%s)\n", f.name, f.target())
			}
		}
		return nil
	}
	scratch, err := jepsen.NewScratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	if c.binary == "" {
		c.binary = filepath.Join(scratch.Dir, "lockkeeper")
		out, err := exec.CommandContext(ctx, "go", "build", "-C", c.sources, "-o", c.binary,
			"./cmd/lockkeeper").CombinedOutput()
		if err != nil {
			return fmt.Errorf("build lockkeeper: %w\n%s", err, out)
		}
	}
	if c.etcd37 == "" && strings.Contains(c.systems, "etcd37") {
		c.etcd37 = filepath.Join(scratch.Dir, "etcd37")
		if err := buildEtcd(ctx, c.sources, c.etcd37); err != nil {
			return err
		}
	}
	if c.logDisk != "" {
		if c.logDisk, err = filepath.Abs(c.logDisk); err == nil {
			c.logDisk, err = os.MkdirTemp(c.logDisk, "compare-")
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.logDisk)) }()
	}
	if c.table != "" {
		return writeOwn(ctx, c, scratch.Dir, stdout, progress)
	}
	c.duration = cmp.Or(c.duration, defaultDuration)
	all, err := systems(strings.Split(c.systems, ","), c)
	if err != nil {
		return err
	}
	rep := &report{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Command: c.command,
		Machine: describe(scratch.Dir), Versions: map[string]string{}, Rounds: c.rounds, Seconds: c.duration.Seconds(),
		systems: all,
	}
	for _, s := range all {
		rep.Versions[s.name] = s.version
	}
	began := time.Now()
	rep.measure(ctx, c, list, scratch.Dir, progress)
	rep.Rows = rows(list, rep.Samples)
	fmt.Fprintf(progress, "it took %.0f s\n", time.Since(began).Seconds())
	if err := rep.save(c, stdout); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// measure fills in the measurements, for as long as ctx lasts.
func (rep *report) measure(ctx context.Context, c config, list []step, dir string, progress io.Writer) {
	look := func(when string) *machine {
		if c.delay > 0 {
			return nil // it is the network that counts
		}
		m, err := measureMachine(dir, min(c.duration, time.Second))
		if err != nil {
			fmt.Fprintf(progress, "the disk, %s: failed: %v\n", when, err)
			return nil
		}
		return m
	}
	rep.Before = look("before")
	rep.measureCapacity(ctx, c, list, dir, progress)
	for n := range c.rounds {
		for _, s := range rep.systems {
			if ctx.Err() != nil {
				break
			}
			r := newRound(n+1, s, filepath.Join(dir, fmt.Sprintf("%s-%d", s.name, n+1)), c, progress)
			r.capacity = rep.Capacity
			r.run(ctx, list)
			rep.Samples = append(rep.Samples, r.samples...)
		}
	}
	if ctx.Err() == nil {
		rep.After = look("after")
	}
}

// save writes the table, and the files that are asked for.
func (rep *report) save(c config, stdout io.Writer) error {
	var b strings.Builder
	rep.write(&b)
	_, err := io.WriteString(stdout, b.String())
	if c.out != "" {
		err = errors.Join(err, writeInto(c.out, b.String()))
	}
	if c.json != "" {
		text, e := json.MarshalIndent(rep, "", "\t")
		if e == nil {
			e = os.WriteFile(c.json, append(text, '\n'), 0o644)
		}
		err = errors.Join(err, e)
	}
	if c.pictures == "" {
		c.pictures = picturesBeside(c.out)
	}
	if c.pictures != "" {
		err = errors.Join(err, rep.drawOpen(c.pictures))
	}
	return err
}

// picturesBeside is the directory of a page's pictures: dir/page for dir/page.md; empty if it does
// not exist.
func picturesBeside(page string) string {
	dir := strings.TrimSuffix(page, ".md")
	if info, err := os.Stat(dir); dir == page || err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// The lines of a page between which the report is written.
const (
	tableBegin = "<!-- compare: begin -->"
	tableEnd   = "<!-- compare: end -->"
)

// writeInto writes text into a file: to its place if there is one, else instead of the contents.
func writeInto(file, text string) error { return writeBetween(file, tableBegin, tableEnd, text) }

// writeBetween writes text between two lines of a file, or instead of its contents.
func writeBetween(file, begin, end, text string) error {
	page, err := os.ReadFile(file)
	if err == nil {
		before, rest, found := strings.Cut(string(page), begin)
		_, after, ends := strings.Cut(rest, end)
		if found && !ends {
			return fmt.Errorf("%s has no line %s", file, end)
		}
		if found {
			text = before + begin + "\n" + text + end + after
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// write writes the report in Markdown.
func (rep *report) write(w io.Writer) {
	fmt.Fprintf(w, "%s: `%s`, %d rounds of %g s each; median (min..max).\n\n", rep.Date, rep.Command, rep.Rounds,
		rep.Seconds)
	for _, s := range rep.systems {
		fmt.Fprintf(w, "- %s\n", s.version)
	}
	for _, line := range rep.Machine {
		fmt.Fprintf(w, "- %s\n", line)
	}
	fmt.Fprintf(w, "- taken by the host's others while it was measured, of the CPU time wanted: %s\n",
		stolenText(rep.Samples))
	fmt.Fprintln(w)
	writeTable(w, rep.Rows)
	rep.writeOpen(w)
	rep.writeRecommended(w)
	if rep.Before != nil || rep.After != nil {
		fmt.Fprintln(w)
		writeMachine(w, rep.Before, rep.After)
	}
}
