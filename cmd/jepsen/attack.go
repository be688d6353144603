package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/attack"
	"lockkeeper/jepsen/report"
)

const attackAbout = `Plays what somebody without any right can send to the ports of a cluster of three members, each
with 1,024 file descriptors, while three lock users set and get a node each 50 ms. Their sessions
and locks must stay, the 99th percentile of their operations must stay within twice the one just
before or 100 ms, and members must live, stay within their memory, take writes and hold the same.
An attack that was not what it was meant to be fails, too.
`

const attackExits = `Exit status: 0 nobody was harmed; 1 somebody was; 2 it could not be done, or was called off.
`

// runAttack is the command attack.
func runAttack(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var l live
	cfg := attack.Config{Baseline: time.Second, Each: time.Second, Progress: func(r *attack.Result) { r.Row(stdout) }}
	c := newCommandLine("attack", attackAbout, attackExits)
	only := c.String("only", "", "only the attacks of these `names`, separated by commas")
	except := c.String("except", "", "all but the attacks of these `names`")
	list := c.Bool("list", false, "say which attacks there are")
	short := c.Bool("short", false, "each attack for a second, or for one round")
	whole := c.Duration("time", 4*time.Minute, "how long all attacks take together, about")
	c.Uint64Var(&cfg.Seed, "seed", 0, "of the noise that is sent; by default one that is printed")
	out := c.String("out", "", "write the table into this `file`, between its comments")
	l.define(c, "`names` of the servers: lockkeeper, zookeeper (Debian's package), or both, separated by a comma.\n"+
		"ZooKeeper gets the attacks on the client port.")
	status, ok := c.parse(args, stdout, stderr, func() (err error) {
		cfg.Attacks, err = attack.Choose(words(*only), words(*except))
		if err == nil && len(cfg.Attacks) == 0 {
			err = errors.New("no attack is left")
		}
		return errors.Join(l.check(), err)
	})
	if !ok {
		return status
	}
	if *list {
		for _, a := range cfg.Attacks {
			fmt.Fprintf(stdout, "%-20s %-8s %s\n", a.Name, a.Port, a.Sends)
		}
		return exitOK
	}
	if !*short {
		share := *whole / time.Duration(len(words(l.target))*len(cfg.Attacks))
		cfg.Baseline, cfg.Each = min(share/3, 5*time.Second), share*2/3
	}
	var seedFlag string
	cfg.Seed, seedFlag = seedOr(cfg.Seed)
	cfg.Again = c.again(args) + seedFlag
	var all []*attack.Document
	err := inScratch(func(dir string) (err error) {
		cfg.Dir = dir
		all, err = playAttacks(ctx, cfg, l, stdout)
		if err == nil && *out != "" {
			err = report.ReplaceTable(*out, "attack table", attack.Table(all))
		}
		return err
	})
	if err != nil {
		return c.failed(ctx, err, stderr)
	}
	status = exitOK
	for _, d := range all {
		fmt.Fprintf(stdout, "%s stands %d of %d attacks. The page is %s\n", d.Target, d.Stood(), len(d.Results),
			filepath.Join(l.report, d.Target, "index.html"))
		if d.Stood() < len(d.Results) {
			status = exitInvalid
		}
	}
	fmt.Fprintf(stdout, "Again: %s\n", cfg.Again)
	return status
}

// playAttacks plays the attacks on each target and writes the reports.
func playAttacks(ctx context.Context, cfg attack.Config, l live, stdout io.Writer) (all []*attack.Document, err error) {
	ours, err := l.lockkeeper()
	if err != nil {
		return nil, err
	}
	cfg.Tool = ours.Tool
	fmt.Fprintf(stdout, "seed %d\n", cfg.Seed)
	for _, name := range words(l.target) {
		own := cfg
		own.Target, own.Dir = ours, filepath.Join(cfg.Dir, name)
		if name == "zookeeper" {
			if own.Target, err = jepsen.StockZooKeeper(); err != nil {
				return all, err
			}
		}
		fmt.Fprintf(stdout, "\n%s\n", name)
		attack.Heading(stdout)
		d, err := attack.Run(ctx, own)
		all = append(all, d)
		if err = errors.Join(err, report.Write(filepath.Join(l.report, name), own.Dir, d.Report())); err != nil {
			return all, err
		}
	}
	return all, nil
}
