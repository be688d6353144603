package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// A commandLine is the command line of one subcommand. Its help is made of the flags.
type commandLine struct {
	*flag.FlagSet
	about string // purpose of the command, above the flags in its help
	exits string // its exit statuses, below them
}

func newCommandLine(name, about, exits string) *commandLine {
	return &commandLine{flag.NewFlagSet(name, flag.ContinueOnError), about, exits}
}

// parse reads the arguments, and calls check to validate the flags together. If ok is false, the
// command ends with that status: it has printed help or an error.
func (c *commandLine) parse(args []string, stdout, stderr io.Writer, check func() error) (status int, ok bool) {
	c.SetOutput(io.Discard)
	err := c.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.SetOutput(stdout)
		fmt.Fprintf(stdout, "usage: go run ./cmd/jepsen %s [flags]\n\n%s\nFlags:\n", c.Name(), c.about)
		c.PrintDefaults()
		fmt.Fprintf(stdout, "\n%s", c.exits)
		return exitOK, false
	case err == nil && c.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", c.Arg(0))
	case err == nil:
		err = check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "jepsen %s: %v\njepsen %s -help says what it takes\n", c.Name(), err, c.Name())
		return exitUsage, false
	}
	return exitOK, true
}

// again is the command line that does the same once more.
func (c *commandLine) again(args []string) string {
	line := "go run ./cmd/jepsen " + c.Name()
	for _, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \"'$") {
			arg = fmt.Sprintf("%q", arg)
		}
		line += " " + arg
	}
	return line
}

// failed says why a command could not be done.
func (c *commandLine) failed(ctx context.Context, err error, stderr io.Writer) int {
	if ctx.Err() != nil {
		err = errors.New("called off")
	}
	fmt.Fprintf(stderr, "jepsen %s: %v\n", c.Name(), err)
	return exitUsage
}

// seedOr is the given seed, or a random one with the flag that repeats the run.
func seedOr(given uint64) (seed uint64, flag string) {
	if given != 0 {
		return given, ""
	}
	seed = rand.Uint64()>>32 | 1
	return seed, fmt.Sprintf(" -seed %d", seed)
}

// words splits a list at its commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// live are the flags of the commands that start real processes.
type live struct {
	target, binary, report string
	race, traced           bool
}

// define adds the flags to a command line.
func (l *live) define(c *commandLine, targets string) {
	c.StringVar(&l.target, "target", "lockkeeper", targets)
	c.StringVar(&l.binary, "binary", "", "the `file` of a lockkeeper that is built already")
	c.BoolVar(&l.race, "race", false, "build lockkeeper with the race detector")
	when := time.Now().Format("20060102-150405")
	c.StringVar(&l.report, "report", filepath.Join("jepsen-runs", c.Name()+"-"+when),
		"the `directory` where the report goes")
}

// check says which of the targets does not exist.
func (l *live) check() (err error) {
	for _, name := range words(l.target) {
		if !slices.Contains([]string{"lockkeeper", "zookeeper"}, name) {
			err = errors.Join(err, fmt.Errorf("there is no target %q; there are lockkeeper and zookeeper", name))
		}
	}
	return err
}

// inScratch calls play with a directory in which also temporary files go, and which is gone
// afterwards, however this process ends.
func inScratch(play func(dir string) error) (err error) {
	scratch, err := jepsen.NewScratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	return play(scratch.Dir)
}

// lockkeeper is this module's server, built into the temporary directory if it is not built yet.
func (l *live) lockkeeper() (jepsen.Target, error) {
	if l.binary != "" {
		binary, err := filepath.Abs(l.binary)
		return jepsen.Lockkeeper(binary), err
	}
	tools, err := jepsen.NewToolbox(l.race)
	if err != nil {
		return jepsen.Target{}, err
	}
	if l.traced {
		return tools.Traced()
	}
	return tools.Lockkeeper()
}

// server is the server software of -target, where that is one.
func (l *live) server() (jepsen.Target, error) {
	if l.target == "zookeeper" {
		return jepsen.ZooKeeper()
	}
	return l.lockkeeper()
}
