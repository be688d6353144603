package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"

	"lockkeeper/server"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
)

// configCommand is config check.
type configCommand struct{ json, allowUnknown, elsewhere bool }

func (c *configCommand) flags(fs *flag.FlagSet, _ env) {
	fs.BoolVar(&c.json, "json", false, "print JSON, one object a line")
	fs.BoolVar(&c.allowUnknown, "allow-unknown-keys", false, "as 'serve -allow-unknown-keys'")
	fs.BoolVar(&c.elsewhere, "elsewhere", false,
		"the file is for another machine: do not look for myid, certificates and data on this one")
}

// finding is one thing that is to be said about a configuration.
type finding struct {
	Level string `json:"level"` // fault, warning or note
	File  string `json:"file,omitempty"`
	Line  int    `json:"line,omitempty"`
	Key   string `json:"key,omitempty"`
	Text  string `json:"text"`
	plain string
}

func (c *configCommand) run(e env, args []string) error {
	if len(args) != 2 || args[0] != "check" {
		return wrongUsage("it can check a file: lockkeeper config check zoo.cfg")
	}
	var options []zoocfg.Option
	if c.allowUnknown {
		options = append(options, zoocfg.AllowUnknownKeys)
	}
	cfg, err := server.LoadConfig(args[1], options...)
	if err != nil && !errors.As(err, new(zoocfg.Faults)) {
		return err // the file cannot be read
	}
	notices := cfg.Notices()
	if err == nil && !c.elsewhere {
		more, dataErr := offline.CheckData(cfg)
		notices = append(notices, more...)
		if all := append(faultsOf(offline.CheckFiles(cfg)), faultsOf(dataErr)...); len(all) > 0 {
			err = all
		}
	}
	var found []finding
	faults := 0
	for _, f := range faultsOf(err) {
		if c.elsewhere && f.Key == "myid" {
			continue
		}
		faults++
		found = append(found, finding{"fault", f.File, f.Line, f.Key, f.Reason, f.Error()})
	}
	warnings := 0
	for _, n := range notices {
		level := "note"
		if n.Level >= slog.LevelWarn {
			level = "warning"
			warnings++
		}
		found = append(found, finding{level, n.File, n.Line, n.Key, n.Text, n.String()})
	}
	slices.SortStableFunc(found, func(a, b finding) int {
		if a.File != b.File || a.Line == 0 || b.Line == 0 {
			return 0
		}
		return a.Line - b.Line
	})
	for _, f := range found {
		if c.json {
			_ = json.NewEncoder(e.stdout).Encode(f) // texts and a number only
		} else {
			fmt.Fprintln(e.stdout, f.plain)
		}
	}
	if !c.json {
		verdict := "a member would start"
		if faults > 0 {
			verdict = "no member would start"
		}
		fmt.Fprintf(e.stdout, "%s: %s (faults: %d, warnings: %d)\n", args[1], verdict, faults, warnings)
	}
	if faults > 0 {
		return exitStatus(exitFailed)
	}
	return nil
}

// faultsOf is an error as a list of faults.
func faultsOf(err error) zoocfg.Faults {
	var faults zoocfg.Faults
	var fault zoocfg.Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &faults):
		return faults
	case errors.As(err, &fault):
		return zoocfg.Faults{fault}
	}
	return zoocfg.Faults{{Reason: err.Error(), Err: err}}
}
