package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"lockkeeper/server"
)

// importCommand takes over the data of ZooKeeper without starting a member.
type importCommand struct{}

func (c importCommand) flags(*flag.FlagSet) {}

func (c importCommand) run(e env, args []string) error {
	if len(args) != 1 {
		return wrongUsage("it needs the configuration file of the member: lockkeeper import zoo.cfg")
	}
	cfg, err := server.LoadConfig(args[0])
	if err != nil {
		return err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(e.stderr, nil))
	err, sig := untilSignal(e, signalRepeat, func(ctx context.Context) error { return server.Import(ctx, cfg) })
	if sig != nil {
		return fmt.Errorf("stopped by a signal (%v): run it again", sig)
	}
	return err
}
