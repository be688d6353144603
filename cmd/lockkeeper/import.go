package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"lockkeeper/server"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
)

// importCommand takes over the data of ZooKeeper without starting a member.
type importCommand struct{}

func (c importCommand) flags(*flag.FlagSet) {}

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
		return server.Config{}, fmt.Errorf("%s is of a member of a cluster, whose other members nobody knows from it: name its zoo.cfg", path)
	}
	return server.Config{Data: zoocfg.Data{Dir: path}, Client: zoocfg.Client{Addr: "localhost:0"}}, nil
}
