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
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"lockkeeper/server"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
)

// inspectCommand describes the contents of a data directory.
type inspectCommand struct {
	json, tree, sessions, log bool
	node                      string
	maxMemory                 int64
}

func (c *inspectCommand) flags(fs *flag.FlagSet, _ env) {
	fs.BoolVar(&c.json, "json", false, "the answer is JSON: one object, with -tree and -sessions one a line")
	fs.BoolVar(&c.tree, "tree", false, "list the paths of all nodes; with -json all of each node")
	fs.BoolVar(&c.sessions, "sessions", false, "list all sessions with the paths of their ephemeral nodes")
	fs.BoolVar(&c.log, "log", false, "list the transactions of a log file of ZooKeeper, each with its offset, or the "+
		"entries of lockkeeper's log in a directory")
	fs.Int64Var(&c.maxMemory, "max-memory", 0, "`bytes` of memory that the state of a snapshot of ZooKeeper may "+
		"take, which may be compressed "+
		"(default: half of the machine's memory, at most 4294967296)")
	fs.StringVar(&c.node, "node", "", "`path` show one node: data, Stat, ACL")
}

type inspected struct {
	*offline.Inspection
	err error
}

func (c *inspectCommand) run(e env, args []string) error {
	if len(args) != 1 {
		return wrongUsage("it needs a zoo.cfg, a data directory, a snapshot or, with -log, a log file")
	}
	dir, logDir := filepath.Clean(args[0]), ""
	if cfg, err := server.LoadConfig(args[0], zoocfg.AllowUnknownKeys); err == nil { // a zoo.cfg
		dir, logDir = cfg.Data.Dir, cfg.Data.LogDir
	}
	progress := newProgress(e, "read")
	in, sig := untilSignal(e, signalRepeat, func(ctx context.Context) inspected {
		if c.log {
			return inspected{err: offline.InspectLog(ctx, cmp.Or(logDir, dir), func(line string) error {
				_, err := fmt.Fprintln(e.stdout, line)
				return err
			})}
		}
		i, err := offline.Inspect(ctx, dir, logDir, c.maxMemory, progress.show)
		return inspected{i, err}
	})
	progress.end()
	switch {
	case sig != nil:
		return signalStatus(sig)
	case in.err != nil || c.log:
		return in.err
	case c.node != "":
		return c.showNode(e.stdout, in.Inspection)
	case c.tree:
		return c.showTree(e.stdout, in.Inspection)
	case c.sessions:
		return c.showSessions(e.stdout, in.Inspection)
	case c.json:
		out := json.NewEncoder(e.stdout)
		out.SetIndent("", "  ")
		return out.Encode(in.Inspection)
	}
	summarise(e.stdout, in.Inspection)
	return nil
}

func (c *inspectCommand) showTree(w io.Writer, in *offline.Inspection) error {
	out := bufio.NewWriter(w)
	for _, path := range in.Paths() {
		if !c.json {
			fmt.Fprintln(out, path)
			continue
		}
		n, _ := in.Node(path)
		if err := json.NewEncoder(out).Encode(n); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (c *inspectCommand) showSessions(w io.Writer, in *offline.Inspection) error {
	out := bufio.NewWriter(w)
	for _, s := range in.Owned() {
		if c.json {
			if err := json.NewEncoder(out).Encode(s); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(out, "%s timeout %d ms\n", s.ID, s.TimeoutMs)
		for _, path := range s.Ephemerals {
			fmt.Fprintf(out, "  %s\n", path)
		}
	}
	return out.Flush()
}

func (c *inspectCommand) showNode(w io.Writer, in *offline.Inspection) error {
	n, ok := in.Node(c.node)
	if !ok {
		return errors.New("there is no node " + c.node)
	}
	if c.json {
		return json.NewEncoder(w).Encode(n)
	}
	if utf8.Valid(n.Data) {
		fmt.Fprintf(w, "%q\n", n.Data)
	} else {
		fmt.Fprintf(w, "%x\n", n.Data)
	}
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
	stat := n.Stat
	fmt.Fprintf(w, "czxid %v, mzxid %v, pzxid %v\nctime %s, mtime %s\nversion %d, cversion %d, aversion %d\n",
		stat.Czxid, stat.Mzxid, stat.Pzxid, at(stat.Ctime), at(stat.Mtime), stat.Version, stat.Cversion, stat.Aversion)
	fmt.Fprintf(w, "ephemeralOwner %v, dataLength %d, numChildren %d\n", stat.EphemeralOwner, stat.DataLength,
		stat.NumChildren)
	for _, a := range n.ACL {
		fmt.Fprintf(w, "acl %s:%s perms %d\n", plain(a.ID.Scheme), plain(a.ID.ID), a.Perms)
	}
	return nil
}

func summarise(w io.Writer, in *offline.Inspection) {
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
	fmt.Fprintf(w, "nodes: %d with %d bytes, %d of them ephemeral\nsessions: %d\n", in.Nodes, in.Bytes, in.Ephemerals,
		in.Sessions)
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
