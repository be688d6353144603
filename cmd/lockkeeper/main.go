package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

// Exit statuses; see doc.go.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitSignal = 128 // plus the signal's number
)

// env is what the command has of the world.
type env struct {
	stdout, stderr io.Writer
	signals        <-chan os.Signal // to stop
}

func main() {
	signals := make(chan os.Signal, 2)
	if _, ok := serveArgs(os.Args[1:]); ok {
		if !signal.Ignored(syscall.SIGHUP) { // nohup(1) has it ignored
			signal.Notify(signals, syscall.SIGHUP)
		}
	}
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	os.Exit(run(os.Args[1:], env{os.Stdout, os.Stderr, signals}))
}

// command is one subcommand.
type command struct {
	name  string
	usage string // the whole help text
	run   func(args []string, e env) int
}

func commands() []command {
	return []command{
		{"serve", serveUsage, serve},
		{"lock", lockUsage, lock},
		{"elect", electUsage, elect},
		{"locks", locksUsage, locks},
		{"cluster", clusterUsage, runCluster},
		{"log", logUsage, runLog},
		{"bench", benchUsage(), runBench},
		{"digest", digestUsage, digest},
		{"version", versionUsage, version},
		{"help", helpUsage, help},
	}
}

// run runs the command line and returns the exit status.
func run(args []string, e env) int {
	if rest, ok := serveArgs(args); ok {
		return serve(rest, e)
	}
	switch first := args[0]; {
	case isHelp(first):
		return help(args[1:], e)
	case isVersion(first):
		return version(args[1:], e)
	}
	if c, ok := findCommand(args[0]); ok {
		return c.run(args[1:], e)
	}
	return unknownCommand(args[0], e)
}

// serveArgs returns the arguments of serve, if the command line is for that.
func serveArgs(args []string) (_ []string, ok bool) {
	switch {
	case len(args) == 0:
		return nil, true
	case args[0] == "serve":
		return args[1:], true
	case strings.HasPrefix(args[0], "-") && !isHelp(args[0]) && !isVersion(args[0]):
		return args, true
	}
	return nil, false
}

func isVersion(arg string) bool { return arg == "-version" || arg == "--version" }

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func findCommand(name string) (command, bool) {
	all := commands()
	if i := slices.IndexFunc(all, func(c command) bool { return c.name == name }); i >= 0 {
		return all[i], true
	}
	return command{}, false
}

// maxTypos is how many edits away from a command a word may be to count as a misspelling of it.
const maxTypos = 2

func unknownCommand(name string, e env) int {
	fmt.Fprintf(e.stderr, "lockkeeper: unknown command %q\n", name)
	nearest, edits := zoocfg.Nearest(name, func(yield func(string) bool) {
		for _, c := range commands() {
			if !yield(c.name) {
				return
			}
		}
	})
	switch _, err := os.Stat(name); {
	case err == nil:
		fmt.Fprintf(e.stderr, "To start a member with that configuration file: lockkeeper serve %s\n", name)
	case edits <= maxTypos:
		fmt.Fprintf(e.stderr, "Did you mean: lockkeeper %s\n", nearest)
	}
	fmt.Fprintln(e.stderr, "'lockkeeper help' lists the commands.")
	return exitUsage
}

// parseFlags parses args. When done is true the command ends with that status: help was asked for,
// or the flags are wrong.
func parseFlags(fs *flag.FlagSet, usage string, args []string, e env) (status int, done bool) {
	fs.SetOutput(io.Discard) // the texts are ours
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(e.stdout, usage)
		return exitOK, true
	case err != nil:
		return usageError(fs.Name(), e, "%v", err), true
	}
	return 0, false
}

func usageError(command string, e env, format string, args ...any) int {
	fmt.Fprintf(e.stderr, "lockkeeper %s: %s\n", command, fmt.Sprintf(format, args...))
	fmt.Fprintf(e.stderr, "'lockkeeper help %s' shows how to use it.\n", command)
	return exitUsage
}

const mainUsage = `lockkeeper is a coordination server: programs that take their locks, elections and
membership from ZooKeeper connect to it with the libraries they have.

Usage:

	lockkeeper                    start one member: port 2181, data in ./lockkeeper-data
	lockkeeper serve [zoo.cfg]    start a member, alone or one of several
	lockkeeper lock PATH CMD      run a command while holding a lock
	lockkeeper elect PATH CMD     run a command while leading
	lockkeeper locks [PATH]       show who holds which lock and who waits for it
	lockkeeper cluster            show, add and remove members, transfer the leadership
	lockkeeper log convert        move the log of a stopped member to where logStore says
	lockkeeper bench              put load on servers and measure them
	lockkeeper digest USER        make a superDigest from a password
	lockkeeper version            print the version
	lockkeeper help [command]     print this, or how to use a command
	lockkeeper help config [KEY]  list the keys of zoo.cfg, or describe one

Ctrl-C (or SIGTERM) stops a member cleanly, a second one at once.
`

const helpUsage = `Usage: lockkeeper help [command]
       lockkeeper help config [KEY...]

Prints what lockkeeper can do, or how to use one of its commands. 'help config' lists the
keys that may stand in a zoo.cfg; with keys, it says of each what its value may be, what
the default is and what it does.
`

func help(args []string, e env) int {
	if len(args) == 0 {
		fmt.Fprint(e.stdout, mainUsage)
		return exitOK
	}
	if isHelp(args[0]) {
		fmt.Fprint(e.stdout, helpUsage)
		return exitOK
	}
	if args[0] == "config" {
		return helpConfig(args[1:], e)
	}
	c, ok := findCommand(args[0])
	if !ok {
		return unknownCommand(args[0], e)
	}
	fmt.Fprint(e.stdout, c.usage)
	return exitOK
}

const versionUsage = `Usage: lockkeeper version

Prints lockkeeper's version, the commit that it was built from and the date of that commit,
as far as they are known, and the ZooKeeper version whose behaviour clients find.

The Go tool records the commit when it builds in a repository. A packager gives all three
to the linker: -ldflags "-X lockkeeper/server.buildVersion=1.2.3
-X lockkeeper/server.buildCommit=0123abcd -X lockkeeper/server.buildDate=2026-01-31T12:00:00Z".
`

func version(args []string, e env) int {
	fs := flag.NewFlagSet("version", flag.ContinueOnError)
	if status, done := parseFlags(fs, versionUsage, args, e); done {
		return status
	}
	if fs.NArg() > 0 {
		return usageError("version", e, "unexpected argument %q", fs.Arg(0))
	}
	b := server.BuildInfo()
	commit, date := "unknown", "unknown"
	if b.Commit != "" {
		commit = b.Commit
	}
	if b.Changed {
		commit += ", and changes that are not committed"
	}
	if !b.Time.IsZero() {
		date = b.Time.Format("2006-01-02 15:04 MST")
	}
	fmt.Fprintf(e.stdout, "lockkeeper %s\ncommit     %s\ndate       %s\n", b.Version, commit, date)
	fmt.Fprintf(e.stdout, "compiler   %s\nprotocol   ZooKeeper %s\n", b.Go, server.ZooKeeperVersion)
	return exitOK
}
