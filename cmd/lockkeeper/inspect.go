package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

// inspectCommand says what is in a data directory.
type inspectCommand struct {
	json, tree, log bool
	node            string
}

func (c *inspectCommand) flags(fs *flag.FlagSet) {
	fs.BoolVar(&c.json, "json", false, "the answer is one JSON object")
	fs.BoolVar(&c.tree, "tree", false, "list the paths of all nodes")
	fs.BoolVar(&c.log, "log", false, "list the transactions of a log file of ZooKeeper, with the offset of each")
	fs.StringVar(&c.node, "node", "", "`path` show one node: data, Stat, ACL")
}

type inspected struct {
	*server.Inspection
	err error
}

func (c *inspectCommand) run(e env, args []string) error {
	if len(args) != 1 {
		return wrongUsage("it needs a zoo.cfg, a data directory, a snapshot or, with -log, a log file")
	}
	if c.log {
		return server.InspectLog(args[0], func(line string) error {
			_, err := fmt.Fprintln(e.stdout, line)
			return err
		})
	}
	dir, logDir := filepath.Clean(args[0]), ""
	if cfg, err := server.LoadConfig(args[0], zoocfg.AllowUnknownKeys); err == nil { // a zoo.cfg
		dir, logDir = cfg.DataDir, cfg.DataLogDir
	}
	in, sig := untilSignal(e, signalRepeat, func(ctx context.Context) inspected {
		i, err := server.Inspect(ctx, dir, logDir)
		return inspected{i, err}
	})
	switch {
	case sig != nil:
		return signalStatus(sig)
	case in.err != nil:
		return in.err
	case c.node != "":
		return c.showNode(e.stdout, in.Inspection)
	case c.tree:
		for _, path := range in.Paths() {
			fmt.Fprintln(e.stdout, path)
		}
		return nil
	case c.json:
		out := json.NewEncoder(e.stdout)
		out.SetIndent("", "  ")
		return out.Encode(in.Inspection)
	}
	summarise(e.stdout, in.Inspection)
	return nil
}

func (c *inspectCommand) showNode(w io.Writer, in *server.Inspection) error {
	data, acl, stat, ok := in.Node(c.node)
	if !ok {
		return errors.New("there is no node " + c.node)
	}
	if c.json {
		return json.NewEncoder(w).Encode(map[string]any{"path": c.node, "data": data, "acl": acl, "stat": stat})
	}
	if utf8.Valid(data) {
		fmt.Fprintf(w, "%q\n", data)
	} else {
		fmt.Fprintf(w, "%x\n", data)
	}
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
	fmt.Fprintf(w, "czxid %v, mzxid %v, pzxid %v\nctime %s, mtime %s\nversion %d, cversion %d, aversion %d\n",
		stat.Czxid, stat.Mzxid, stat.Pzxid, at(stat.Ctime), at(stat.Mtime), stat.Version, stat.Cversion, stat.Aversion)
	fmt.Fprintf(w, "ephemeralOwner %v, dataLength %d, numChildren %d\n", stat.EphemeralOwner, stat.DataLength, stat.NumChildren)
	for _, a := range acl {
		fmt.Fprintf(w, "acl %s:%s perms %d\n", a.ID.Scheme, a.ID.ID, a.Perms)
	}
	return nil
}

func summarise(w io.Writer, in *server.Inspection) {
	state := "whole"
	if len(in.Notices) > 0 {
		state = "readable, but see the notices"
	}
	fmt.Fprintf(w, "%s: data of %s, %s, up to zxid %s\n", in.Path, in.Of, state, in.Zxid)
	if in.Epoch >= 0 {
		fmt.Fprintf(w, "epoch or term: %d\n", in.Epoch)
	}
	if in.Snapshot != "" {
		fmt.Fprintf(w, "snapshot: %s, and %d transactions of the logs behind it\n", in.Snapshot, in.Transactions)
	}
	for _, n := range in.Notices {
		fmt.Fprintf(w, "notice: %s\n", n)
	}
	fmt.Fprintf(w, "nodes: %d with %d bytes, %d of them ephemeral\nsessions: %d\n", in.Nodes, in.Bytes, in.Ephemerals, in.Sessions)
	for _, s := range in.Most {
		fmt.Fprintf(w, "  %s has %d ephemeral nodes, timeout %d ms\n", s.ID, s.Ephemerals, s.TimeoutMs)
	}
	fmt.Fprintf(w, "locks: %d\n", in.Locks)
	for _, l := range in.Queues {
		fmt.Fprintf(w, "  %s held by %s, %d wait\n", l.Path, strings.Join(l.Holders, ", "), l.Waiting)
	}
	fmt.Fprintln(w, "largest nodes:")
	for _, n := range in.Largest {
		fmt.Fprintf(w, "  %d bytes %s\n", n.Bytes, n.Path)
	}
	fmt.Fprintf(w, "an import would take: %s\n", in.Import)
}
