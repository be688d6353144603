package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"lockkeeper/server"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
)

// importCommand takes over the data of ZooKeeper without starting a member.
type importCommand struct{}

func (c importCommand) flags(*flag.FlagSet, env) {}

func (c importCommand) run(e env, args []string) error {
	if len(args) == 0 {
		return wrongUsage("it needs the zoo.cfg of the member, or its data directory if it is a server alone; " +
			"more directories are those of the other servers, or copies: the most recent of all is taken")
	}
	cfg, err := memberConfig(args[0])
	if err != nil {
		return err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(e.stderr, nil))
	progress := newProgress(e, "read")
	err, sig := untilSignal(e, signalRepeat, func(ctx context.Context) error {
		return offline.Import(ctx, cfg, offline.ImportOptions{Others: args[1:], Progress: progress.show})
	})
	progress.end()
	if sig != nil {
		return fmt.Errorf("stopped by a signal (%v): run it again", sig)
	}
	return err
}

// memberConfig is the configuration in a file, or the one of a server alone with a data directory.
func memberConfig(path string) (server.Config, error) {
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return server.LoadConfig(path)
	}
	if _, err := os.Stat(filepath.Join(path, "myid")); err == nil {
		return server.Config{}, fmt.Errorf("%s is of a member of a cluster, and does not name the other members: "+
			"name its zoo.cfg", path)
	}
	return server.Config{Data: zoocfg.Data{Dir: path}, Client: zoocfg.Client{Addr: "localhost:0"}}, nil
}

// exportCommand writes ZooKeeper's files.
type exportCommand struct{ snapshot string }

func (c *exportCommand) flags(fs *flag.FlagSet, _ env) {
	fs.StringVar(&c.snapshot, "snapshot", "", "`file` of 'lockkeeper snapshot save', instead of the data of the "+
		"stopped member")
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
		return wrongUsage("it needs the zoo.cfg of the member, or the data directory of a server alone, and a new " +
			"directory: " +
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
	if len(cfg.Cluster.Members) > 1 && c.snapshot == "" {
		fmt.Fprintln(e.stdout, "start ZooKeeper first at the member with the greatest epoch, of several the one with "+
			"the greatest zxid, and at the others when its log says LOOKING")
	}
	if r.Left > 0 {
		fmt.Fprintf(e.stdout, "%d sessions are not in it, nor their ephemeral nodes: ZooKeeper would not accept "+
			"their passwords\n", r.Left)
	}
	return nil
}
