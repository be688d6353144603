package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/splitbrain"
)

const splitBrainUsage = `usage: go run ./cmd/jepsen split-brain [flags]

Shows what split brain is, and that there is none: for every size of cluster and every way
to cut it in two or to lose members, real processes are cut apart or killed, looked at
through real clients, and healed. What more than half of the voters can do, and the rest
cannot, is predicted (set.size > n/2) and compared with what happened. Needs root, for
network namespaces. Nothing but the report is left afterwards, however it ends.

Flags:
  -members n-m          sizes of clusters, as 3-7 or 5, within 2 to %d (default 3-7)
  -brief                only the cases that say most
  -observers            also three voters with two observers (default: with members up to 5 or more, unless brief)
  -tick duration        the members' tickTime (default 500ms)
  -session-timeout d    what clients ask for (default four ticks)
  -target name          lockkeeper, or zookeeper to compare (Debian's package)
  -binary file          a lockkeeper that is built already
  -race                 build lockkeeper with the race detector
  -patience duration    how long to wait for anything that should happen (default 1m)
  -report directory     where the page and the JSON go (default jepsen-runs/split-brain-<when>)
  -out file             also put the table into its place in this page, as docs/split-brain.md

Exit status: 0 every case came as predicted; 1 one did not; 2 it could not be done, or was
called off.
`

// splitBrainFlags are what split-brain was told.
type splitBrainFlags struct {
	target runFlags // target, binary, race
	cfg    splitbrain.Config
	report string
	out    string // a page that has a place for the table; empty for none
	again  string
}

func parseSplitBrain(args []string, stdout, stderr io.Writer) (f splitBrainFlags, status int, done bool) {
	fs := flag.NewFlagSet("split-brain", flag.ContinueOnError)
	members := fs.String("members", "3-7", "")
	brief := fs.Bool("brief", false, "")
	observers := fs.Bool("observers", false, "")
	fs.DurationVar(&f.cfg.Tick, "tick", 0, "")
	fs.DurationVar(&f.cfg.Session, "session-timeout", 0, "")
	fs.DurationVar(&f.cfg.Patience, "patience", time.Minute, "")
	fs.StringVar(&f.target.target, "target", "lockkeeper", "")
	fs.StringVar(&f.target.binary, "binary", "", "")
	fs.BoolVar(&f.target.race, "race", false, "")
	fs.StringVar(&f.report, "report", filepath.Join("jepsen-runs", "split-brain-"+time.Now().Format("20060102-150405")), "")
	fs.StringVar(&f.out, "out", "", "")
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, splitBrainUsage, jepsen.MaxHosts)
		return f, exitOK, true
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if f.target.target != "lockkeeper" && f.target.target != "zookeeper" {
		err = errors.Join(err, fmt.Errorf("there is no target %q; there are lockkeeper and zookeeper", f.target.target))
	}
	least, most, rangeErr := parseRange(*members)
	if err = errors.Join(err, rangeErr); err != nil {
		fmt.Fprintf(stderr, "jepsen split-brain: %v\njepsen split-brain -help says what it takes\n", err)
		return f, exitUsage, true
	}
	told := false
	fs.Visit(func(given *flag.Flag) { told = told || given.Name == "observers" })
	for n := least; n <= most; n++ {
		if *brief {
			f.cfg.Cases = append(f.cfg.Cases, splitbrain.BriefCases(n)...)
		} else {
			f.cfg.Cases = append(f.cfg.Cases, splitbrain.Cases(n)...)
		}
	}
	if *observers || !told && !*brief && most >= 5 {
		f.cfg.Cases = append(f.cfg.Cases, splitbrain.ObserverCases()...)
	}
	f.again = strings.Join(append([]string{"go run ./cmd/jepsen split-brain"}, args...), " ")
	return f, 0, false
}

// parseRange reads n-m or n.
func parseRange(text string) (least, most int, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	least, err1 := strconv.Atoi(from)
	most, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || least < 2 || most < least || most > jepsen.MaxHosts {
		return 0, 0, fmt.Errorf("-members %q: it is n or n-m, within 2 to %d", text, jepsen.MaxHosts)
	}
	return least, most, nil
}

func runSplitBrain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, status, done := parseSplitBrain(args, stdout, stderr)
	if done {
		return status
	}
	document, err := f.play(ctx, stdout)
	if document != nil && document.Played > 0 {
		fmt.Fprintf(stdout, "%s\n%d of %d cases came as predicted, in %v. The page is %s\n", splitbrain.Legend,
			document.Right, document.Played, (time.Duration(document.TookMs) * time.Millisecond).Round(time.Second), filepath.Join(f.report, "index.html"))
		if window := document.Window(); window > 0 {
			fmt.Fprintf(stdout, "In %d of them two clients held one lock, both told that they are connected, for up to %.1f s.\n", document.Windows(), window.Seconds())
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(stderr, "jepsen split-brain: called off\n")
		return exitUsage
	case err != nil:
		fmt.Fprintf(stderr, "jepsen split-brain: %v\n", err)
		return exitUsage
	case !document.OK():
		return exitInvalid
	}
	return exitOK
}

// play plays the cases and writes the report of those that were played.
func (f splitBrainFlags) play(ctx context.Context, stdout io.Writer) (document *splitbrain.Document, err error) {
	if err := jepsen.FindNetwork(); err != nil {
		return nil, err
	}
	scratch, err := jepsen.NewScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	if err := scratch.ForTemporaryFiles(); err != nil {
		return nil, err
	}
	cfg := f.cfg
	cfg.Dir, cfg.Leases, cfg.Digests = scratch.Dir, f.target.target == "lockkeeper", f.target.target == "lockkeeper"
	if f.target.target == "zookeeper" {
		cfg.Extra = []string{"syncLimit=5"} // as in its zoo_sample.cfg; the last line counts
	}
	if cfg.Target, err = f.target.findTarget(); err != nil {
		return nil, err
	}
	var shown splitbrain.Group
	cfg.Progress = func(r *splitbrain.Result) {
		if r.Case.Cluster != shown {
			shown = r.Case.Cluster
			splitbrain.Heading(stdout, shown)
		}
		r.Row(stdout)
	}
	began := time.Now()
	results, err := splitbrain.Play(ctx, cfg)
	if len(results) == 0 {
		return nil, err
	}
	document = splitbrain.NewDocument(cfg.Target.Name, began, cfg, f.again, results)
	if f.out != "" && err == nil {
		err = document.WriteInto(f.out)
	}
	page, drawErr := document.Report()
	if drawErr != nil {
		return document, errors.Join(err, drawErr)
	}
	return document, errors.Join(err, os.MkdirAll(f.report, 0o755),
		report.WriteFile(filepath.Join(f.report, "index.html"), func(w io.Writer) error { return report.WriteHTML(w, page) }),
		report.WriteFile(filepath.Join(f.report, "report.json"), document.WriteJSON))
}
