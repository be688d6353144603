package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Exit statuses.
const (
	exitOK      = 0
	exitInvalid = 1 // a promise was broken, or the run failed
	exitUsage   = 2 // a wrong command line; for run also: it could not be done
	exitUnknown = 3 // run: nothing is known to be broken, but too little happened to tell
)

// command is one subcommand.
type command struct {
	name, does string
	// run ends soon after ctx does, and leaves nothing behind.
	run func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

var commands = []command{
	{"run", "a cluster of real processes is broken and checked", runRun},
	{"split-brain", "every way to cut a cluster in two, and who goes on", runSplitBrain},
	{"attack", "requests of a client without any right, and their effect on others", runAttack},
	{"lock-lab", "ways to lock, of other systems too, under the same faults", runLockLab},
	{"sim", "many simulated clusters in virtual time", runSim},
	{"model", "the protocol between members, all states of it", runModel},
	{"client", "", runClient}, // a process of run
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// dispatch runs one command; "help NAME" is "NAME -help".
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	isHelp := len(args) > 0 && slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0])
	switch {
	case len(args) == 0 || isHelp && len(args) == 1:
		usage(stdout)
		return exitOK
	case isHelp:
		args = []string{args[1], "-help"}
	}
	for _, c := range commands {
		if c.name == args[0] && (c.does != "" || !isHelp) {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "jepsen: unknown command %q\n", args[0])
	usage(stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "jepsen puts clusters through faults and checks the histories of their clients.")
	fmt.Fprintln(w)
	for _, c := range commands {
		if c.does != "" {
			fmt.Fprintf(w, "  go run ./cmd/jepsen %-12s %s\n", c.name, c.does)
		}
	}
	fmt.Fprintln(w, "\n'go run ./cmd/jepsen help COMMAND' says what it takes.")
}
