package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/splitbrain"
)

const splitBrainAbout = `Shows what split brain is, and that there is none: for every size of cluster and every way
to cut it in two or to lose members, real processes are cut apart or killed, looked at
through real clients, and healed. What more than half of the voters can do, and the rest
cannot, is predicted (set.size > n/2) and compared with what happened. Needs root, for
network namespaces. Nothing but the report is left afterwards, however it ends.
`

const splitBrainExits = `Exit status: 0 every case came as predicted; 1 one did not; 2 it could not be done, or was
called off.
`

// runSplitBrain is the command split-brain.
func runSplitBrain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var l live
	var cfg splitbrain.Config
	var observers *bool // nil: not given
	c := newCommandLine("split-brain", splitBrainAbout, splitBrainExits)
	members := c.String("members", "3-7", fmt.Sprintf("sizes of clusters, as `n-m` or n, within 2 to %d",
		jepsen.MaxHosts))
	brief := c.Bool("brief", false, "only the cases that say most")
	c.BoolFunc("observers",
		"also three voters with two observers (default: with members up to 5 or more, unless brief)",
		func(s string) error {
			given, err := strconv.ParseBool(s)
			observers = &given
			return err
		})
	c.DurationVar(&cfg.Tick, "tick", splitbrain.DefaultTick, "the members' tickTime")
	c.DurationVar(&cfg.Session, "session-timeout", 0, "the session timeout that clients request (default four ticks)")
	c.DurationVar(&cfg.Patience, "patience", splitbrain.DefaultPatience,
		"how long to wait for anything that should happen")
	out := c.String("out", "", "also put the table into its place in this `file`, as docs/split-brain.md")
	l.define(c, "the `name` of the server: lockkeeper, or zookeeper to compare (Debian's package)")
	status, ok := c.parse(args, stdout, stderr, func() (err error) {
		cfg.Cases, err = chooseCases(*members, *brief, observers)
		return errors.Join(l.check(), err)
	})
	if !ok {
		return status
	}
	cfg.Again = c.again(args)
	var played *splitbrain.Document
	err := inScratch(func(dir string) (err error) {
		cfg.Dir = dir
		played, err = playSplitBrain(ctx, cfg, l, *out, stdout)
		return err
	})
	if played != nil && len(played.Results) > 0 {
		fmt.Fprintf(stdout, "\n%s The page is %s\n", played.Summary(), filepath.Join(l.report, "index.html"))
	}
	switch {
	case err != nil:
		return c.failed(ctx, err, stderr)
	case !played.OK():
		return exitInvalid
	}
	return exitOK
}

// chooseCases are the cases of clusters of those sizes, n-m or n.
func chooseCases(members string, brief bool, observers *bool) (cases []splitbrain.Case, err error) {
	from, to, isRange := strings.Cut(members, "-")
	if !isRange {
		to = from
	}
	least, err1 := strconv.Atoi(from)
	most, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || least < 2 || most < least || most > jepsen.MaxHosts {
		return nil, fmt.Errorf("-members %q: it is n or n-m, within 2 to %d", members, jepsen.MaxHosts)
	}
	choose := splitbrain.Cases
	if brief {
		choose = splitbrain.BriefCases
	}
	for n := least; n <= most; n++ {
		cases = append(cases, choose(n)...)
	}
	if observers == nil && !brief && most >= 5 || observers != nil && *observers {
		cases = append(cases, splitbrain.ObserverCases()...)
	}
	return cases, nil
}

// playSplitBrain plays the cases and writes the report of those that were played.
func playSplitBrain(ctx context.Context, cfg splitbrain.Config, l live, out string,
	stdout io.Writer) (played *splitbrain.Document, err error) {
	if cfg.Target, err = l.server(); err != nil {
		return nil, err
	}
	cfg.Promises = l.target == "lockkeeper"
	if l.target == "zookeeper" {
		cfg.Extra = []string{"syncLimit=5"} // as in its zoo_sample.cfg; the last line counts
	}
	var shown splitbrain.Group
	cfg.Progress = func(r *splitbrain.Result) {
		if r.Case.Cluster != shown {
			shown = r.Case.Cluster
			splitbrain.Heading(stdout, shown)
		}
		r.Write(stdout)
	}
	played, err = splitbrain.Play(ctx, cfg)
	if len(played.Results) == 0 {
		return played, err
	}
	if out != "" && err == nil {
		err = report.ReplaceTable(out, "split-brain "+l.target, played.Table())
	}
	page, drawErr := played.Report()
	if drawErr != nil {
		return played, errors.Join(err, drawErr)
	}
	return played, errors.Join(err, report.Write(l.report, cfg.Dir, page))
}
