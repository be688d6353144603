package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/attack"
	"lockkeeper/jepsen/report"
)

const attackUsage = `usage: go run ./cmd/jepsen attack [flags]

Plays what somebody without any right can send to the ports of a cluster of three members, each
with 1,024 file descriptors, while three lock users set and get a node each 50 ms. Their sessions
and locks must stay, the 99th percentile of their operations must stay within twice the one just
before or 100 ms, and members must live, stay within their memory, take writes and hold the same.
An attack that was not what it was meant to be fails, too.

Flags:
  -only names          only these attacks, separated by commas
  -except names        all but these
  -list                say which attacks there are
  -short               each attack for a second, or for one round
  -time duration       how long all attacks take together, about (default 4m)
  -target names        lockkeeper, zookeeper (Debian's package), or both, separated by a comma
                       (default lockkeeper). ZooKeeper gets the attacks on the client port.
  -seed n              of the noise that is sent (default any)
  -binary file         a lockkeeper that is built already
  -race                build lockkeeper with the race detector
  -report directory    where pages, JSON and logs go (default jepsen-runs/attack-<when>)
  -out file            write the table into this page, between its comments

Exit status: 0 nobody was harmed; 1 somebody was; 2 it could not be done, or was called off.
`

// attackFlags are what attack was told.
type attackFlags struct {
	target  runFlags // binary, race
	targets []string
	cfg     attack.Config
	report  string
	out     string
	again   string
	list    bool
}

func parseAttack(args []string, stdout, stderr io.Writer) (f attackFlags, status int, done bool) {
	fs := flag.NewFlagSet("attack", flag.ContinueOnError)
	only := fs.String("only", "", "")
	except := fs.String("except", "", "")
	short := fs.Bool("short", false, "")
	whole := fs.Duration("time", 4*time.Minute, "")
	targets := fs.String("target", "lockkeeper", "")
	fs.BoolVar(&f.list, "list", false, "")
	fs.Uint64Var(&f.cfg.Seed, "seed", rand.Uint64()>>32, "")
	fs.StringVar(&f.target.binary, "binary", "", "")
	fs.BoolVar(&f.target.race, "race", false, "")
	fs.StringVar(&f.report, "report", filepath.Join("jepsen-runs", "attack-"+time.Now().Format("20060102-150405")), "")
	fs.StringVar(&f.out, "out", "", "")
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, attackUsage)
		return f, exitOK, true
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	f.targets = words(*targets)
	for _, name := range f.targets {
		if name != "lockkeeper" && name != "zookeeper" {
			err = errors.Join(err, fmt.Errorf("there is no target %q; there are lockkeeper and zookeeper", name))
		}
	}
	var chosen error
	if f.cfg.Attacks, chosen = attack.Choose(words(*only), words(*except)); chosen == nil && len(f.cfg.Attacks) == 0 {
		chosen = errors.New("no attack is left")
	}
	if err = errors.Join(err, chosen); err != nil {
		fmt.Fprintf(stderr, "jepsen attack: %v\njepsen attack -help says what it takes\n", err)
		return f, exitUsage, true
	}
	f.cfg.Calm, f.cfg.Each = time.Second, time.Second
	if !*short {
		share := *whole / time.Duration(len(f.targets)*len(f.cfg.Attacks))
		f.cfg.Calm, f.cfg.Each = min(share/3, 5*time.Second), share*2/3
	}
	f.again = strings.Replace(again(args), "jepsen run", "jepsen attack", 1) + fmt.Sprintf(" -seed %d", f.cfg.Seed)
	return f, 0, false
}

func runAttack(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, status, done := parseAttack(args, stdout, stderr)
	if done {
		return status
	}
	if f.list {
		for _, a := range f.cfg.Attacks {
			fmt.Fprintf(stdout, "%-20s %-8s %s\n", a.Name, a.Port, a.Sends)
		}
		return exitOK
	}
	all, err := f.play(ctx, stdout)
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(stderr, "jepsen attack: called off")
		return exitUsage
	case err != nil:
		fmt.Fprintf(stderr, "jepsen attack: %v\n", err)
		return exitUsage
	}
	harmed := false
	for _, d := range all {
		fmt.Fprintf(stdout, "%s stands %d of %d attacks. The page is %s\n", d.Target, d.Stood(), len(d.Results), filepath.Join(f.report, d.Target, "index.html"))
		harmed = harmed || !d.OK()
	}
	fmt.Fprintf(stdout, "Again: %s\n", f.again)
	if harmed {
		return exitInvalid
	}
	return exitOK
}

// play plays the attacks on each target and writes the reports.
func (f attackFlags) play(ctx context.Context, stdout io.Writer) (all []*attack.Document, err error) {
	scratch, err := jepsen.NewScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	if err := scratch.ForTemporaryFiles(); err != nil {
		return nil, err
	}
	f.target.target = "lockkeeper"
	ours, err := f.target.findTarget()
	if err != nil {
		return nil, err
	}
	f.cfg.Tool = ours.Tool
	f.cfg.Progress = func(r *attack.Result) { r.Row(stdout) }
	fmt.Fprintf(stdout, "seed %d\n", f.cfg.Seed)
	for _, name := range f.targets {
		cfg := f.cfg
		cfg.Target, cfg.Dir = ours, filepath.Join(scratch.Dir, name)
		if name == "zookeeper" {
			if cfg.Target, err = jepsen.StockZooKeeper(); err != nil {
				return all, err
			}
		}
		fmt.Fprintf(stdout, "\n%s\n", name)
		attack.Heading(stdout)
		d, err := attack.Run(ctx, cfg)
		all = append(all, d)
		if err = errors.Join(err, f.write(d, cfg.Dir)); err != nil {
			return all, err
		}
	}
	if f.out != "" {
		return all, attack.WriteTable(f.out, all)
	}
	return all, nil
}

// write leaves the report of one target, and the logs of its members.
func (f attackFlags) write(d *attack.Document, scratch string) error {
	dir := filepath.Join(f.report, d.Target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	run := d.Report(f.again)
	err := errors.Join(
		report.WriteFile(filepath.Join(dir, "index.html"), func(w io.Writer) error { return report.WriteHTML(w, run) }),
		report.WriteFile(filepath.Join(dir, "report.json"), d.WriteJSON))
	logs, globErr := filepath.Glob(filepath.Join(scratch, "cluster*", "m*", "log"))
	err = errors.Join(err, globErr)
	for _, name := range logs {
		text, readErr := os.ReadFile(name)
		member := filepath.Dir(name)
		to := filepath.Base(filepath.Dir(member)) + "-" + filepath.Base(member) + ".log"
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(dir, to), text, 0o644))
	}
	return err
}
