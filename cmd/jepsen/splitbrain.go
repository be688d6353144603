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
	var pages splitBrainPages
	c.StringVar(&pages.out, "out", "", "also put the table, and the pictures of the cuts that it tells of, into their "+
		"places in this `file`, as docs/split-brain.md")
	c.StringVar(&pages.picture, "picture", "", "play one case only, three members with a follower cut off, with each "+
		"-target, and draw who held the lock of its client beside each other, in this `file` (SVG); with -out, also put "+
		"the picture into its place there, as README.md")
	l.define(c, "the `name` of the server: lockkeeper, or zookeeper to compare (Debian's package); with -picture names")
	status, ok := c.parse(args, stdout, stderr, func() (err error) {
		cfg.Cases, err = chooseCases(*members, *brief, observers)
		if pages.picture == "" && len(words(l.target)) != 1 {
			err = errors.Join(err, errors.New("several targets are for -picture only"))
		}
		return errors.Join(l.check(), err)
	})
	if !ok {
		return status
	}
	cfg.Again = c.again(args)
	if pages.picture != "" {
		return c.drawSplitBrain(ctx, cfg, l, pages, stdout, stderr)
	}
	var played *splitbrain.Document
	err := inScratch(func(dir string) (err error) {
		cfg.Dir = dir
		played, err = playSplitBrain(ctx, cfg, l, pages, stdout)
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

// splitBrainPages are the files of the repository that the command writes; empty for none.
type splitBrainPages struct{ out, picture string }

// against is the configuration for the target of l.
func (l *live) against(cfg splitbrain.Config) (_ splitbrain.Config, err error) {
	cfg.Target, err = l.server()
	cfg.Promises = l.target == "lockkeeper"
	if l.target == "zookeeper" {
		cfg.Extra = []string{"syncLimit=5"} // as in its zoo_sample.cfg; the last line counts
	}
	return cfg, err
}

// drawSplitBrain plays splitbrain.CutOff with each target, and draws it.
func (c *commandLine) drawSplitBrain(ctx context.Context, cfg splitbrain.Config, l live, pages splitBrainPages,
	stdout, stderr io.Writer) int {
	right := true
	var systems []splitbrain.System
	cfg.Cases = []splitbrain.Case{splitbrain.CutOff()}
	cfg = cfg.WithDefaults()
	cfg.Watch = 3 * cfg.Session
	err := inScratch(func(dir string) (err error) {
		for _, target := range words(l.target) {
			l.target = target
			one, err := l.against(cfg)
			if err != nil {
				return err
			}
			one.Dir = filepath.Join(dir, target)
			played, err := splitbrain.Play(ctx, one)
			if err != nil {
				return err
			}
			right = right && played.OK()
			played.Results[0].Write(stdout)
			name := strings.NewReplacer("zookeeper", "ZooKeeper").Replace(target)
			systems = append(systems, splitbrain.System{Name: name, Result: played.Results[0]})
		}
		return splitbrain.WriteBeside(systems, cfg, pages.picture, pages.out)
	})
	switch {
	case err != nil:
		return c.failed(ctx, err, stderr)
	case !right:
		return exitInvalid
	}
	fmt.Fprintf(stdout, "\nThe picture is %s\n", pages.picture)
	return exitOK
}

// playSplitBrain plays the cases and writes the report of those that were played.
func playSplitBrain(ctx context.Context, cfg splitbrain.Config, l live, pages splitBrainPages,
	stdout io.Writer) (played *splitbrain.Document, err error) {
	if cfg, err = l.against(cfg); err != nil {
		return nil, err
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
	if pages.out != "" && err == nil {
		err = played.WritePage(pages.out)
	}
	page, drawErr := played.Report()
	if drawErr != nil {
		return played, errors.Join(err, drawErr)
	}
	return played, errors.Join(err, report.Write(l.report, cfg.Dir, page))
}
