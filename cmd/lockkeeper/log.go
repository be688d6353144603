package main

import (
	"flag"
	"fmt"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

const logUsage = `Usage: lockkeeper log convert zoo.cfg
       lockkeeper log convert -to wal|bolt [-data-dir directory]

Moves the write-ahead log of a stopped member into the form that logStore= in zoo.cfg names:
wal, segments in raft.wal/ with one sync for each write, or bolt, in raft.db, with two. A
member whose log is of the other kind does not start, and says so.

The log is read and verified, written in the other form, synced, and verified again. A crash
on the way leaves it whole in one of the two forms. The disk needs room for it twice.

Flags:
	-to kind              the kind, without a file: wal (default) or bolt
	-data-dir directory   where the data is, without a file (default lockkeeper-data)

Exit status: 0; 1 the log could not be converted, or the member runs; 2 wrong command line.
`

func runLog(args []string, e env) int {
	fs := flag.NewFlagSet("log", flag.ContinueOnError)
	to := fs.String("to", "", "")
	dataDir := fs.String("data-dir", "", "")
	rest := args
	if len(args) > 0 && args[0] == "convert" {
		rest = args[1:]
	}
	if status, done := parseFlags(fs, logUsage, rest, e); done {
		return status
	}
	switch {
	case len(args) == 0 || args[0] != "convert":
		return usageError("log", e, "it can convert: lockkeeper log convert")
	case fs.NArg() > 1:
		return usageError("log", e, "one configuration file, please; flags go in front of it: unexpected %q", fs.Arg(1))
	case fs.NArg() == 1 && (*to != "" || *dataDir != ""):
		return usageError("log", e, "-to and -data-dir are for a member without a file; set logStore and dataDir in %s", fs.Arg(0))
	}
	cfg := server.Config{DataDir: *dataDir}
	if fs.NArg() == 1 {
		var err error
		if cfg, err = server.LoadConfig(fs.Arg(0), zoocfg.AllowUnknownKeys); err != nil {
			fmt.Fprintf(e.stderr, "%v\n", err)
			return exitFailed
		}
	}
	done, err := server.ConvertLog(cfg, *to)
	if err != nil {
		fmt.Fprintf(e.stderr, "lockkeeper log: %v\n", err)
		return exitFailed
	}
	fmt.Fprintln(e.stdout, done)
	return exitOK
}
