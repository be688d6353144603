package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"lockkeeper/server"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
)

// exportCommand writes ZooKeeper's files.
type exportCommand struct{ snapshot string }

func (c *exportCommand) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.snapshot, "snapshot", "", "`file` of 'lockkeeper snapshot save', instead of the data of the stopped member")
}

type exported struct {
	offline.Exported
	err error
}

func (c *exportCommand) run(e env, args []string) error {
	var cfg server.Config
	var err error
	switch {
	case len(args) == 2:
		cfg, err = memberConfig(args[0])
	case len(args) == 1 && c.snapshot != "":
		cfg = server.Config{
			Data:    zoocfg.Data{Dir: filepath.Dir(c.snapshot)},
			Client:  zoocfg.Client{Addr: "localhost:0"},
			Cluster: zoocfg.Cluster{ID: 1},
		}
	default:
		return wrongUsage("it needs the zoo.cfg of the member, or the data directory of a server alone, and a new directory: " +
			"lockkeeper export zoo.cfg DIR; with -snapshot the new directory is enough")
	}
	if err != nil {
		return err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	r, sig := untilSignal(e, signalRepeat, func(ctx context.Context) exported {
		done, err := offline.Export(ctx, cfg, c.snapshot, args[len(args)-1])
		return exported{done, err}
	})
	switch {
	case sig != nil:
		return fmt.Errorf("stopped by a signal (%v): nothing has been written", sig)
	case r.err != nil:
		return r.err
	}
	fmt.Fprintf(e.stdout, "%s has what ZooKeeper starts with: zxid 0x%x, epoch %d, %d nodes, %d sessions\n",
		args[len(args)-1], uint64(r.Zxid), r.Epoch, r.Nodes, r.Sessions)
	if r.Left > 0 {
		fmt.Fprintf(e.stdout, "%d sessions are not in it, nor their ephemeral nodes: ZooKeeper would not accept their passwords\n", r.Left)
	}
	return nil
}
