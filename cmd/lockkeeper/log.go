package main

import (
	"flag"
	"fmt"

	"lockkeeper/server"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
)

type logCommand struct{ to, dataDir string }

func (c *logCommand) flags(fs *flag.FlagSet, _ env) {
	fs.StringVar(&c.to, "to", "", "`kind` the kind, without a file: wal (default) or bolt")
	fs.StringVar(&c.dataDir, "data-dir", "", "`directory` where the data is, without a file (default lockkeeper-data)")
}

func (c *logCommand) run(e env, args []string) (err error) {
	if len(args) == 0 || args[0] != "convert" {
		return wrongUsage("it can convert: lockkeeper log convert")
	}
	cfg := server.Config{Data: zoocfg.Data{Dir: c.dataDir}}
	if len(args) == 2 {
		if c.to != "" || c.dataDir != "" {
			return wrongUsage("-to and -data-dir are for a member without a file; set logStore and dataDir in %s",
				args[1])
		}
		if cfg, err = server.LoadConfig(args[1], zoocfg.AllowUnknownKeys); err != nil {
			fmt.Fprintf(e.stderr, "%v\n", err)
			return exitStatus(exitFailed)
		}
	}
	done, err := offline.ConvertLog(cfg, c.to)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, done)
	return nil
}
