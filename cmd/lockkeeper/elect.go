package main

import (
	"context"
	"flag"

	"lockkeeper/recipes"
)

type electCommand struct {
	holdFlags
	data string
}

func (f *electCommand) flags(fs *flag.FlagSet, e env) {
	f.holdFlags.flags(fs, e)
	f.lostFlag(fs, "leadership")
	fs.StringVar(&f.data, "data", "", "`text` a description of the leader for others (default: the host's name, and "+
		"this process)")
	fs.BoolVar(&f.verbose, "v", false, "say whom it waits for, and when the leadership begins and is given up")
}

func (f *electCommand) run(_ env, args []string) error {
	if err := f.finish(args); err != nil {
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
	election := recipes.NewElection(c.Session, f.path, recipes.ElectionOptions{OnWait: f.onWait()})
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
