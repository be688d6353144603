package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"lockkeeper/server"
	"lockkeeper/server/offline"
)

// recoverCommand begins a new cluster with a surviving disk of one that has lost its majority.
type recoverCommand struct {
	from              string
	show, rejoin, yes bool
	json              bool
}

func (c *recoverCommand) flags(fs *flag.FlagSet, _ env) {
	fs.StringVar(&c.from, "from", "",
		"`path` of a snapshot, or of a directory with the files of a member (aside-TIME, or a copy), "+
			"with which the cluster begins instead of the member's own files")
	fs.BoolVar(&c.show, "show", false, "only describe the disk, and change nothing")
	fs.BoolVar(&c.json, "json", false, "with -show: one JSON object")
	fs.BoolVar(&c.rejoin, "rejoin", false,
		"set the member's files aside, so that the cluster that another member has recovered takes it in")
	fs.BoolVar(&c.yes, "yes", false, "do it without asking")
}

func (c *recoverCommand) run(e env, args []string) error {
	switch {
	case len(args) != 1:
		return wrongUsage("it needs the zoo.cfg of the member")
	case c.json && !c.show:
		return wrongUsage("-json goes with -show")
	case c.rejoin && (c.show || c.from != ""):
		return wrongUsage("-rejoin goes with neither -show nor -from")
	}
	cfg, err := server.LoadConfig(args[0])
	if err != nil {
		return err
	}
	err, sig := untilSignal(e, signalRepeat, func(ctx context.Context) error {
		if c.rejoin {
			return c.setAside(ctx, e, cfg)
		}
		return c.recover(ctx, e, cfg)
	})
	if sig != nil {
		return signalStatus(sig)
	}
	return err
}

func (c *recoverCommand) recover(ctx context.Context, e env, cfg server.Config) error {
	v, err := offline.Survey(ctx, cfg, c.from)
	if err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(e.stdout).Encode(v)
	}
	describeSurvivor(e.stdout, v, c.from)
	if c.show {
		return nil
	}
	if err := c.confirm(e, "This member begins a new cluster with that, alone at first. Updates that only other "+
		"disks have\n"+
		"are lost, and no disk of the old cluster can be one of the new. Run it on one member only.",
		"recover"); err != nil {
		return err
	}
	r, err := offline.Recover(ctx, cfg, v)
	if len(r.Aside) > 0 {
		fmt.Fprintf(e.stdout, "The files of this member are now: %s\n", strings.Join(r.Aside, ", "))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "Cluster %s begins with the next start of this member. On each other member run\n"+
		"'lockkeeper recover -rejoin ZOO_CFG', and start it: it gets the data, and its vote with them.\n", r.Cluster)
	return nil
}

func (c *recoverCommand) setAside(ctx context.Context, e env, cfg server.Config) error {
	if err := c.confirm(e, "This member sets its files aside, and gets the data of the cluster that it finds.",
		"rejoin"); err != nil {
		return err
	}
	moved, err := offline.Rejoin(ctx, cfg)
	if len(moved) > 0 {
		fmt.Fprintf(e.stdout, "The files of this member are now: %s\n", strings.Join(moved, ", "))
	} else if err == nil {
		fmt.Fprintln(e.stdout, "This member has no files: start it.")
	}
	return err
}

// confirm has the user type the word.
func (c *recoverCommand) confirm(e env, about, word string) error {
	if c.yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return wrongUsage("-yes is needed without a terminal, for %s", word)
	}
	fmt.Fprintf(e.stderr, "%s\nType %s to go on: ", about, word)
	if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); strings.TrimSpace(line) != word {
		return errors.New("nothing has been done")
	}
	return nil
}

// describeSurvivor prints the state that a recovery would begin with, and the updates that may be
// missing.
func describeSurvivor(w io.Writer, v *offline.Survivor, from string) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	if from != "" {
		line("from", "%s", from)
	}
	if v.Disk != "" {
		line("disk", "%s of member %d", v.Disk, v.Member)
	}
	line("cluster", "%s", cmp.Or(v.Cluster, "not recorded"))
	if len(v.Voters) > 0 {
		line("voters", "%s", strings.Trim(fmt.Sprint(v.Voters), "[]"))
	}
	at := ""
	if !v.Time.IsZero() {
		at = ", of " + v.Time.UTC().Format(time.RFC3339)
	}
	line("last entry", "term %d, index %d%s", v.LastTerm, v.LastIndex, at)
	line("zxid", "%s", v.Zxid)
	line("state", "%d nodes, %d bytes, %d sessions, %d ephemeral nodes", v.Nodes, v.Bytes, v.Sessions, v.Ephemerals)
	switch {
	case len(v.Voters) == 0:
		line("may miss", "all that was answered after it was saved")
	case v.Missing == 0:
		line("may miss", "nothing: this disk alone was the majority")
	default:
		line("may miss", "updates that %d other voters had on their disks and this one had not: look at each "+
			"surviving\n"+
			"%-12s disk with -show, and take the one with the greatest term and, of equal ones, index. Entries\n"+
			"%-12s behind %d may never have been answered", v.Missing, "", "", v.CommitIndex)
	}
}
