package main

import (
	"context"
	"flag"
	"log/slog"

	"lockkeeper/recipes"
)

const electUsage = `Usage: lockkeeper elect [flags] PATH [--] CMD [ARG...]

Stands for election at PATH and runs CMD while this candidate leads. When the leadership is
lost, CMD is ended, and this candidate stands again, behind the others; CMD is run again when
it leads again. When CMD ends by itself, the leadership is given up, and this command ends
with CMD's status: have a service manager start it again.

The election is the one of Curator's LeaderLatch on the same path. CMD finds LOCKKEEPER_LOCK
and LOCKKEEPER_TOKEN in its environment, as with 'lockkeeper lock', and signals are forwarded
to it.

Flags:
	-data text               what others see of the leader (default: the host's name, and
	                         this process)
	-on-lost what            when the leadership is lost: kill CMD, warn, or continue in
	                         silence (default kill)
	-kill-after d            how long CMD may take after SIGTERM (default: a quarter of the
	                         session timeout that the servers granted; nobody else leads
	                         within a third of it)
	-note text               as with 'lockkeeper lock'
	-v                       say when the leadership begins and when it is given up
` + clientFlagsUsage + `
Exit status: that of CMD, or 128 + n if signal n ended it; 125 the cluster cannot be reached,
or the command line is wrong; 126 CMD cannot be run; 127 there is no CMD.
`

func elect(args []string, e env) int {
	fs := flag.NewFlagSet("elect", flag.ContinueOnError)
	f := addHoldFlags(fs)
	data := fs.String("data", "", "")
	if status, done := parseFlags(fs, electUsage, args, e); done {
		return troubleIfUsage(status)
	}
	if err := f.finish(fs); err != nil {
		return troubleIfUsage(usageError("elect", e, "%v", err))
	}
	if status := f.findCommand(e); status != 0 {
		return status
	}
	signals := catch()
	f.logger = slog.New(&clientLog{f: f.clientFlags, e: e, command: "elect"})
	c, err := f.connect()
	if err != nil {
		f.say(e, "elect", err.Error(), map[string]any{"event": "failed"})
		return exitTrouble
	}
	defer c.Close()
	say := []byte(*data)
	if *data == "" {
		say = recipes.Describe(f.note)
	}
	election := recipes.NewElection(c.Session, f.path, recipes.ElectionOptions{})
	for {
		g, status := f.acquire(e, c, signals, -1, func(ctx context.Context) (*recipes.Grant, error) {
			l, err := election.Campaign(ctx, say)
			if err != nil {
				return nil, err
			}
			return l.Grant, nil
		})
		if g == nil {
			return status
		}
		if status, lost := f.run(e, c, g, signals); !lost {
			return status
		}
	}
}
