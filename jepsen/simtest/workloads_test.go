package simtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// workloads are clients of package jepsen/workload, the same as in runs against real processes. A
// round of them begins with the faults and ends when everything is healed; then their checkers look
// at its history.
type workloads struct {
	s       *simulation
	names   []string // of the workloads
	round   uint64
	present []*workloadRound // that are working
	unknown map[string]int   // verdicts that could not tell, by workload
	checked map[string]int   // verdicts
	entries int              // of the histories
}

const (
	workloadClients = 2               // of each workload
	workloadThink   = 2 * time.Second // in a busy simulation
	// workloadPatience is how long the clients of a workload may take to end, and to look at the
	// final state.
	workloadPatience = 2 * time.Minute
)

func newWorkloads(s *simulation, names []string) *workloads {
	g := &workloads{s: s, names: names, unknown: make(map[string]int), checked: make(map[string]int)}
	for _, name := range names {
		for n := range workloadClients + 1 { // one more for Final
			host := workload.Worker(name, n)
			s.c.net.Host(host)
			if n < workloadClients {
				s.nemesis.clients = append(s.nemesis.clients, host)
			}
		}
	}
	return g
}

// workloadRound is one round of one workload.
type workloadRound struct {
	workload.Workload
	env    *workload.Env
	cancel context.CancelFunc
	work   sync.WaitGroup
	ended  chan struct{}
}

// begin starts the clients of all workloads.
func (g *workloads) begin() (rounds []*workloadRound) {
	g.round++
	timeouts := g.s.c.shape.timeouts()
	for i, name := range g.names {
		w, err := workload.New(name)
		if err != nil {
			g.s.c.t.Errorf("%v", err)
			continue
		}
		r := &workloadRound{Workload: w, ended: make(chan struct{}), env: &workload.Env{
			Servers: g.s.c.servers(), Dial: func(client string) zk.Dialer { return g.s.c.dialer(client) },
			History: jepsen.NewHistory(), Seed: g.s.seed<<16 + g.round, Clients: workloadClients,
			SessionTimeout: timeouts[(i+int(g.round))%len(timeouts)], Think: workloadThink * time.Duration(g.s.c.shape.rest),
		}}
		ctx, cancel := context.WithCancel(context.Background())
		r.cancel = cancel
		for n := range workloadClients {
			r.work.Go(func() {
				if err := r.Run(ctx, r.env, n); err != nil {
					g.s.c.t.Errorf("workload %s: client %d: %v", name, n, err)
				}
			})
		}
		go func() {
			r.work.Wait()
			close(r.ended)
		}()
		rounds = append(rounds, r)
	}
	g.present = rounds
	return rounds
}

// tell enters faults of a client's own link into its history: the checkers do not judge a library's
// belief then.
func (g *workloads) tell(host, f string) {
	for _, r := range g.present {
		for n := range workloadClients {
			if workload.Worker(r.Name(), n) == host {
				r.env.History.Add(jepsen.Op{Kind: jepsen.Info, F: f, Worker: host})
			}
		}
	}
}

// end stops the clients, and has the checkers judge their history. Everything is healed.
func (g *workloads) end(rounds []*workloadRound) {
	for _, r := range rounds {
		r.cancel()
	}
	for _, r := range rounds {
		select {
		case <-r.ended:
		case <-time.After(workloadPatience):
			g.s.c.t.Errorf("workload %s: its clients do not end though everything is healed", r.Name())
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), workloadPatience)
		if err := r.Final(ctx, r.env); err != nil {
			g.s.c.t.Errorf("workload %s: at the end: %v", r.Name(), err)
		}
		cancel()
		g.check(r)
	}
	g.sweep()
}

func (g *workloads) check(r *workloadRound) {
	ops := r.env.History.Ops()
	g.entries += len(ops)
	var v workload.Verdict
	g.s.c.compute(func() { v = r.Check(ops) })
	g.checked[r.Name()]++
	switch v.Valid {
	case workload.Unknown:
		g.unknown[r.Name()]++
		g.s.c.journal.printf("workload %s: %s", r.Name(), v.Text)
	case workload.No:
		g.s.c.t.Errorf("after %v: %s (%s): %s%s", g.s.c.journal.age(), v.Checker, v.Promise, v.Text, violations(v))
	}
}

// violations are the first few of a verdict, with their entries.
func violations(v workload.Verdict) string {
	var b strings.Builder
	for _, one := range v.Violations[:min(3, len(v.Violations))] {
		fmt.Fprintf(&b, "\n  %s", one.Text)
		for _, op := range one.Ops[:min(30, len(one.Ops))] {
			fmt.Fprintf(&b, "\n    %v", op)
		}
	}
	return b.String()
}

// roots are the nodes at the top that the workloads have made.
func (g *workloads) roots() (paths []string) {
	g.s.c.members[0].running().view(func(s *znode.Store) {
		names, _, _ := s.Children("/", []znode.Identity{{Scheme: "super"}})
		for _, name := range names {
			path := "/" + name
			if name != "zookeeper" && path != cellPath && !strings.HasPrefix(lockPath, path+"/") && !strings.HasPrefix(name, "pipe-") {
				paths = append(paths, path)
			}
		}
	})
	return paths
}

// sweepHost is where the connection that cleans up comes from.
const sweepHost = "10.0.5.1"

// sweep deletes the nodes of the workloads, lest the state grow for ever, and the next round find
// nodes that its history knows nothing of.
func (g *workloads) sweep() {
	c := g.s.c
	c.net.Host(sweepHost)
	for start := time.Now(); ; {
		if time.Since(start) > workloadPatience {
			c.t.Errorf("after %v: what workloads have left cannot be deleted though everything is healed", c.journal.age())
			return
		}
		conn, err := c.dialRaw(sweepHost, c.members[0].clientAddr(), 10*time.Second)
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		// The member may have been cut off for long. The session is there now, and so is all that
		// the clients have done.
		left := conn.deleteAll(c.below(g.roots()))
		conn.Close()
		if len(left) == 0 {
			return
		}
	}
}

// below are the nodes of some trees, children before their parents.
func (c *cluster) below(roots []string) (paths []string) {
	c.members[0].running().view(func(store *znode.Store) {
		var walk func(path string)
		walk = func(path string) {
			names, _, _ := store.Children(path, []znode.Identity{{Scheme: "super"}})
			slices.Sort(names)
			for _, name := range names {
				walk(path + "/" + name)
			}
			paths = append(paths, path)
		}
		for _, path := range roots {
			walk(path)
		}
	})
	return paths
}

// deleteAll deletes nodes, some at a time, and returns those that it did not come to.
func (r *rawConn) deleteAll(paths []string) []string {
	for len(paths) > 0 {
		n := min(100, len(paths))
		var b []byte
		for _, path := range paths[:n] {
			b, _ = r.append(b, wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1})
		}
		if _, err := r.Write(b); err != nil {
			return paths
		}
		for range n {
			if _, _, err := r.next(); err != nil {
				return paths
			}
		}
		paths = paths[n:]
	}
	return nil
}
