package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lockkeeper/cmd/lockkeeper/internal/guard"
	"lockkeeper/cmd/lockkeeper/internal/timerslack"
)

// Exit statuses; see doc.go.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitSignal = guard.ExitSignal // plus the signal's number
)

// env are the output streams of a command, the signals that stop it, and the environment variables
// that stand for its flags.
type env struct {
	stdout, stderr io.Writer
	signals        <-chan os.Signal // to stop
	variables      map[string]string
	configDir      string // of the user; empty if there is none
}

// environment returns the variables of this process.
func environment() map[string]string {
	variables := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	return variables
}

func main() {
	cobra.MousetrapHelpText = "" // a member may be started with a double click
	if len(os.Args) == 2 && os.Args[1] == guard.Command {
		os.Exit(guard.Run())
	}
	signals := make(chan os.Signal, 2)
	if _, ok := serveArgs(os.Args[1:]); ok {
		timerslack.Set()
		if !signal.Ignored(syscall.SIGHUP) { // nohup(1) has it ignored
			signal.Notify(signals, syscall.SIGHUP)
		}
	}
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	configDir, _ := os.UserConfigDir() // a user without one has no contexts
	os.Exit(run(os.Args[1:], env{os.Stdout, os.Stderr, signals, environment(), configDir}))
}

// runner is a command: a struct with its flags as fields.
type runner interface {
	// flags declares the flags. The usage of each begins with the name of its value in backquotes,
	// unless it is a boolean. The defaults may depend on e.
	flags(fs *flag.FlagSet, e env)
	// run runs the command with the arguments that the flags have left over. The error is a
	// usageError, an exitStatus if everything has been said, or why the command failed.
	run(e env, args []string) error
}

type command struct {
	name    string
	maxArgs int
	runner  runner

	// For completion: the words that the first argument may be, or whether it is the path of a
	// node.
	words     []string
	takesPath bool
}

func commands() []command {
	const many = 1 << 10
	list := []command{
		{name: "serve", maxArgs: 1, runner: &serveCommand{}},
		{name: "demo", maxArgs: 0, runner: &demoCommand{}},
		{name: "lock", maxArgs: many, runner: &lockCommand{}, takesPath: true},
		{name: "elect", maxArgs: many, runner: &electCommand{}, takesPath: true},
		{name: "locks", maxArgs: 1, runner: &lockLister{}, takesPath: true},
		{name: "fence", maxArgs: 0, runner: &fenceCommand{}},
		{name: "sessions", maxArgs: 1, runner: &sessionsCommand{}},
		{name: "status", maxArgs: 0, runner: &statusCommand{}},
		{name: "ls", maxArgs: 1, runner: &nodeCommand{}, takesPath: true},
		{name: "get", maxArgs: 1, runner: &nodeCommand{}, takesPath: true},
		{name: "set", maxArgs: 2, runner: &nodeCommand{}, takesPath: true},
		{name: "create", maxArgs: 2, runner: &nodeCommand{}, takesPath: true},
		{name: "delete", maxArgs: 1, runner: &nodeCommand{}, takesPath: true},
		{name: "stat", maxArgs: 1, runner: &nodeCommand{}, takesPath: true},
		{name: "context", maxArgs: 2, runner: &contextCommand{}, words: []string{"list", "use", "add", "remove"}},
		{name: "cluster", maxArgs: many, runner: &clusterCommand{},
			words: []string{"list", "add", "remove", "transfer-leader"}},
		{name: "snapshot", maxArgs: 2, runner: &snapshotCommand{}, words: []string{"save", "restore"}},
		{name: "config", maxArgs: 2, runner: &configCommand{}, words: []string{"check"}},
		{name: "import", maxArgs: many, runner: importCommand{}},
		{name: "export", maxArgs: 2, runner: &exportCommand{}},
		{name: "inspect", maxArgs: 1, runner: &inspectCommand{}},
		{name: "recover", maxArgs: 1, runner: &recoverCommand{}},
		{name: "log", maxArgs: 2, runner: &logCommand{}, words: []string{"convert"}},
		{name: "bench", maxArgs: 0, runner: &benchCommand{}},
		{name: "digest", maxArgs: many, runner: &digestCommand{}},
		{name: "certs", maxArgs: many, runner: &certsCommand{},
			words: []string{"init", "member", "client", "renew", "rotate", "retire", "list"}},
		{name: "version", maxArgs: 0, runner: &versionCommand{}},
		{name: "completion", maxArgs: 1, runner: completionCommand{}, words: shells},
		{name: "man", maxArgs: 1, runner: manCommand{}},
		{name: "help", maxArgs: many, runner: helpCommand{}},
	}
	help := &list[len(list)-1]
	for _, c := range list {
		help.words = append(help.words, c.name)
	}
	return list
}

func findCommand(name string) (command, bool) {
	for _, c := range commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

// exitStatus is the error of a command that has said everything itself.
type exitStatus int

// Error implements error.
func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// signalStatus is the status of a command that a signal has ended, as shells have it.
func signalStatus(sig os.Signal) exitStatus {
	if n, ok := sig.(syscall.Signal); ok {
		return exitStatus(exitSignal + int(n))
	}
	return exitFailed
}

// untilSignal returns the result of f. A signal cancels f's context and is returned; untilSignal
// then waits for f, at most for grace.
func untilSignal[T any](e env, grace time.Duration, f func(context.Context) T) (result T, sig os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- f(ctx) }()
	select {
	case result = <-done:
	case sig = <-e.signals:
		cancel()
		select {
		case result = <-done:
		case <-time.After(grace):
		}
	}
	return result, sig
}

// usageError is a fault of a command line.
type usageError struct{ error }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.error }

func wrongUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs the command line and returns the exit status.
func run(args []string, e env) (status int) {
	name, rest := "serve", args
	if serving, ok := serveArgs(args); ok {
		rest = serving
	} else {
		name, rest = args[0], args[1:]
	}
	switch {
	case isHelp(name):
		name = "help"
	case isVersion(name):
		name = "version"
	}
	if _, ok := findCommand(name); !ok && name != cobra.ShellCompRequestCmd && name != cobra.ShellCompNoDescRequestCmd {
		return unknownCommand(name, e)
	}
	root := newRoot(e, &status)
	root.SetArgs(append([]string{name}, rest...))
	if err := root.Execute(); err != nil { // the commands themselves set status
		fmt.Fprintf(e.stderr, "lockkeeper: %v\n", err)
		return exitUsage
	}
	return status
}

// newRoot returns the tree of commands. Each sets the exit status when it is run, and parses its
// flags itself: in Go's manner, with one dash or two, and with messages about one dash.
func newRoot(e env, status *int) *cobra.Command {
	serve, _ := findCommand("serve")
	root := &cobra.Command{Use: "lockkeeper", Args: cobra.ArbitraryArgs, DisableFlagParsing: true,
		SilenceErrors: true, SilenceUsage: true, ValidArgsFunction: serve.validArgs(e),
		Run: func(*cobra.Command, []string) {}}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	for _, c := range commands() {
		sub := &cobra.Command{Use: c.name, Short: c.short(), DisableFlagParsing: true,
			ValidArgsFunction: c.validArgs(e),
			Run:               func(_ *cobra.Command, args []string) { *status = c.execute(e, args) }}
		if c.name == "help" {
			root.SetHelpCommand(sub)
		}
		root.AddCommand(sub)
	}
	return root
}

// validArgs completes the arguments of the command.
func (c command) validArgs(e env) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return c.complete(e, args, toComplete)
	}
}

// execute runs the command with its flags and arguments, and returns the exit status.
func (c command) execute(e env, args []string) int {
	rest, err := c.parse(c.flagSet(e), args)
	if err == nil {
		err = c.runner.run(e, rest)
	}
	var status exitStatus
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(e.stdout, c.help())
		return exitOK
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintf(e.stderr, "lockkeeper %s: %v\n", c.name, err)
	if !errors.As(err, &wrong) {
		return exitFailed
	}
	fmt.Fprintf(e.stderr, "'lockkeeper help %s' shows how to use it.\n", c.name)
	if c.runsAnother() {
		return exitTrouble // the other command may well end with exitUsage
	}
	return exitUsage
}

func (c command) flagSet(e env) *flag.FlagSet {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the texts are ours
	c.runner.flags(fs, e)
	return fs
}

// runsAnother reports whether the arguments are a path and another command with flags of its own.
func (c command) runsAnother() bool { return c.name == "lock" || c.name == "elect" }

// parse parses the flags, and returns the arguments that they leave over. Flags may come before,
// between and after them, unless they belong to another command; behind -- there are none.
func (c command) parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, usageError{err}
		}
		if c.runsAnother() {
			return fs.Args(), nil
		}
		if fs.NArg() == 0 {
			break
		}
		if i := len(args) - fs.NArg() - 1; i >= 0 && args[i] == "--" {
			rest = append(rest, fs.Args()...)
			break
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
	if len(rest) > c.maxArgs {
		return nil, wrongUsage("unexpected argument %q", rest[c.maxArgs])
	}
	return rest, nil
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

// durationVar declares a flag that is a duration.
func durationVar(fs *flag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	fs.Var((*durationFlag)(d), name, usage)
}

// durationFlag is a duration with its unit.
type durationFlag time.Duration

// String implements flag.Value.
func (d *durationFlag) String() string { return time.Duration(*d).String() }

// Set implements flag.Value.
func (d *durationFlag) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if _, numErr := strconv.ParseFloat(text, 64); err != nil && numErr == nil {
		return fmt.Errorf("it has no unit: %ss are seconds, %[1]sms milliseconds, %[1]sm minutes", text)
	}
	if err != nil {
		return errors.New("it is no duration, as 500ms, 10s or 2m are")
	}
	*d = durationFlag(parsed)
	return nil
}

// given says whether a flag is on the command line.
func given(fs *flag.FlagSet, name string) (found bool) {
	fs.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// noFlags is part of commands without flags.
type noFlags struct{}

func (noFlags) flags(*flag.FlagSet, env) {}
