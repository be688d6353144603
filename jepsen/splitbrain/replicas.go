package splitbrain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

// A Replica is a member's copy of the data, after the healing.
type Replica struct {
	Member int `json:"member"`
	// Zxid is the zxid in the member's answer to srvr, in hex.
	Zxid string `json:"zxid"`
	// Tree is a SHA-256 of the whole tree as a client reads it: paths, data and Stats. Nodes is
	// their number.
	Tree  string `json:"tree"`
	Nodes int    `json:"nodes"`

	nodes map[string]node
}

// A node is one node of a replica: its data, and everything of it in one line.
type node struct{ data, line string }

// errDiffer is that two replicas have different histories.
var errDiffer = errors.New("the replicas differ")

// compare says whether all replicas have one history: the same tree at the same zxid.
func compare(replicas []Replica) error {
	var errs []error
	for _, r := range replicas[1:] {
		o := replicas[0]
		if r.Tree != o.Tree || r.Zxid != o.Zxid {
			errs = append(errs, fmt.Errorf("splitbrain: m%d is at zxid %s, m%d at %s: %w: %s", o.Member, o.Zxid,
				r.Member, r.Zxid, errDiffer, firstDifference(o, r)))
		}
	}
	return errors.Join(errs...)
}

// firstDifference shows the first node that two replicas do not have in common.
func firstDifference(a, b Replica) string {
	paths := slices.Collect(maps.Keys(a.nodes))
	paths = slices.AppendSeq(paths, maps.Keys(b.nodes))
	slices.Sort(paths)
	for _, p := range paths {
		if a.nodes[p] != b.nodes[p] {
			return fmt.Sprintf("[%s] and [%s]", a.nodes[p].line, b.nodes[p].line)
		}
	}
	return "their nodes are the same"
}

// readReplicas reads every member's replica until they agree, for members take a moment to apply
// committed entries and the sessions of ended clients still expire. If they never do, it returns
// the last ones it read, with the differences.
func readReplicas(ctx context.Context, members []*jepsen.Member, session time.Duration) ([]Replica, error) {
	clients := make([]*client, 0, len(members))
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	for _, m := range members {
		c, err := dial([]string{m.ClientAddr}, session, nil)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		if err := c.AwaitSession(ctx); err != nil {
			return nil, err
		}
	}
	var last []Replica
	err := jepsen.Poll(ctx, 10*retryPause, func() error {
		var all []Replica
		for i, m := range members {
			r, err := readReplica(ctx, m, clients[i])
			if err != nil {
				return fmt.Errorf("splitbrain: read the replica of %s: %w", m, err)
			}
			all = append(all, r)
		}
		last = all
		return compare(all)
	})
	return last, err
}

// readReplica reads one member's replica, when the member has applied everything that is committed.
func readReplica(ctx context.Context, m *jepsen.Member, c *client) (Replica, error) {
	r := Replica{Member: m.ID, nodes: make(map[string]node)}
	if _, err := c.Sync("/"); err != nil {
		return r, fmt.Errorf("sync: %w", err)
	}
	digest := sha256.New()
	if err := c.walk("/", func(name string, data []byte, stat *zk.Stat) {
		if stat.Mzxid == 0 {
			// No update has made or changed it: ZooKeeper gives it the time at which the member
			// started.
			stat.Ctime, stat.Mtime = 0, 0
		}
		line := fmt.Sprintf("%q %q %+v", name, data, *stat)
		fmt.Fprintln(digest, line)
		r.nodes[name] = node{string(data), line}
	}); err != nil {
		return r, err
	}
	r.Nodes = len(r.nodes)
	r.Tree = hex.EncodeToString(digest.Sum(nil))
	srvr, err := jepsen.FourLetter(ctx, m.ClientAddr, "srvr")
	if err != nil {
		return r, err
	}
	if r.Zxid = parseZxid(srvr); r.Zxid == "" {
		return r, fmt.Errorf("srvr has no zxid: %q", srvr)
	}
	return r, nil
}

// walk visits a node and everything below it, in the order of the names. Nodes that go meanwhile
// are left out.
func (c *client) walk(node string, visit func(node string, data []byte, stat *zk.Stat)) error {
	data, stat, err := c.Get(node)
	if err == nil {
		visit(node, data, stat)
		var children []string
		children, _, err = c.Children(node)
		slices.Sort(children)
		for _, child := range children {
			if err := c.walk(path.Join(node, child), visit); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// remove deletes a node and everything below it.
func (c *client) remove(ctx context.Context, node string) error {
	var nodes []string
	if err := c.walk(node, func(node string, _ []byte, _ *zk.Stat) { nodes = append(nodes, node) }); err != nil {
		return err
	}
	for _, node := range slices.Backward(nodes) {
		err := jepsen.Poll(ctx, retryPause, func() error {
			err := c.Delete(node, -1)
			if errors.Is(err, zk.ErrNoNode) {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("splitbrain: delete %s: %w", node, err)
		}
	}
	return nil
}

// parseZxid finds the zxid in the answer to srvr.
func parseZxid(srvr string) string {
	for line := range strings.Lines(srvr) {
		if zxid, ok := strings.CutPrefix(line, "Zxid: 0x"); ok {
			return strings.TrimSpace(zxid)
		}
	}
	return ""
}
