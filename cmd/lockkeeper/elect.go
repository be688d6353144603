package main

import (
	"context"
	"flag"

	"lockkeeper/recipes"
)

const electAbout = `Usage: lockkeeper elect [flags] PATH [--] CMD [ARG...]

Stands for election at PATH and runs CMD while this candidate leads. When the leadership is
lost, CMD is ended, and this candidate stands again, behind the others; CMD is run again when
it leads again. When CMD ends by itself, the leadership is given up, and this command ends
with CMD's status: have a service manager start it again.

The election is the one of Curator's LeaderLatch on the same path. CMD finds LOCKKEEPER_LOCK
and LOCKKEEPER_TOKEN in its environment, as with 'lockkeeper lock', and signals are forwarded
to it.
`

const electExits = `Exit status: that of CMD, or 128 + n if signal n ended it; 125 the cluster cannot be reached,
or the command line is wrong; 126 CMD cannot be run; 127 there is no CMD.
`

type electCommand struct {
	holdFlags
	data string
}

func (f *electCommand) flags(fs *flag.FlagSet) {
	f.holdFlags.flags(fs)
	f.lostFlag(fs, "leadership")
	fs.StringVar(&f.data, "data", "", "`text` what others see of the leader (default: the host's name, and this process)")
	fs.BoolVar(&f.verbose, "v", false, "say when the leadership begins and when it is given up")
}

func (f *electCommand) run(e env, args []string) error {
	if err := f.finish(e, args); err != nil {
		return err
	}
	c, signals, err := f.open()
	if err != nil {
		return err
	}
	defer c.Close()
	data := []byte(f.data)
	if f.data == "" {
		data = recipes.Describe(f.note)
	}
	election := recipes.NewElection(c.Session, f.path, recipes.ElectionOptions{})
	for {
		g, err := f.acquire(c, signals, -1, func(ctx context.Context) (*recipes.Grant, error) {
			l, err := election.Campaign(ctx, data)
			if err != nil {
				return nil, err
			}
			return l.Grant, nil
		})
		if err != nil {
			return err
		}
		if lost, err := f.hold(c, g, signals); !lost {
			return err
		}
	}
}
