package main

import (
	"flag"
	"fmt"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

const logAbout = `Usage: lockkeeper log convert zoo.cfg
       lockkeeper log convert -to wal|bolt [-data-dir directory]

Moves the write-ahead log of a stopped member into the form that logStore= in zoo.cfg names:
wal, segments in raft.wal/ with one sync for each write, or bolt, in raft.db, with two. A
member whose log is of the other kind does not start, and says so.

The log is read and verified, written in the other form, synced, and verified again. A crash
on the way leaves it whole in one of the two forms. The disk needs room for it twice.
`

const logExits = `Exit status: 0; 1 the log could not be converted, or the member runs; 2 wrong command line.
`

type logCommand struct{ to, dataDir string }

func (c *logCommand) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.to, "to", "", "`kind` the kind, without a file: wal (default) or bolt")
	fs.StringVar(&c.dataDir, "data-dir", "", "`directory` where the data is, without a file (default lockkeeper-data)")
}

func (c *logCommand) run(e env, args []string) (err error) {
	if len(args) == 0 || args[0] != "convert" {
		return wrongUsage("it can convert: lockkeeper log convert")
	}
	cfg := server.Config{DataDir: c.dataDir}
	if len(args) == 2 {
		if c.to != "" || c.dataDir != "" {
			return wrongUsage("-to and -data-dir are for a member without a file; set logStore and dataDir in %s", args[1])
		}
		if cfg, err = server.LoadConfig(args[1], zoocfg.AllowUnknownKeys); err != nil {
			fmt.Fprintf(e.stderr, "%v\n", err)
			return exitStatus(exitFailed)
		}
	}
	done, err := server.ConvertLog(cfg, c.to)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, done)
	return nil
}
