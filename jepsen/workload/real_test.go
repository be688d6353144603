package workload

import (
	"context"
	"sync"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

// startMember starts a cluster of one process, which ends with the test.
func startMember(ctx context.Context, t *testing.T, tools *jepsen.Toolbox) *jepsen.Cluster {
	t.Helper()
	target, err := tools.Lockkeeper()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: 1, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// TestWorkloadsOnRealProcesses runs all workloads at once against one member, a
// process, which is killed and started again in between.
func TestWorkloadsOnRealProcesses(t *testing.T) {
	tools, err := jepsen.NewToolbox(jepsen.Race)
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster := startMember(ctx, t, tools)
	member := cluster.Members()[0]
	env := &Env{
		Servers: []string{member.ClientAddr}, History: jepsen.NewHistory(), Seed: 1, Clients: 2,
		SessionTimeout: 2 * time.Second, Think: 20 * time.Millisecond,
	}
	working, stop := context.WithCancel(ctx)
	var all []Workload
	var clients sync.WaitGroup
	for _, name := range Names() {
		w, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
		for n := range env.Clients {
			clients.Go(func() {
				if err := w.Run(working, env, n); err != nil {
					t.Errorf("%s %d: %v", name, n, err)
				}
			})
		}
	}
	jepsen.Sleep(ctx, 3*time.Second)
	env.History.Add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FKill, Member: member.ClientAddr})
	if err := member.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := member.Start(); err != nil {
		t.Fatal(err)
	}
	jepsen.Sleep(ctx, 5*time.Second)
	stop()
	clients.Wait()
	for _, w := range all {
		if err := w.Final(ctx, env); err != nil {
			t.Errorf("%s: %v", w.Name(), err)
		}
	}
	for _, w := range all {
		v := w.Check(env.History.Ops())
		t.Logf("%s %v", verdictText(v), v.Figures)
		// Whether a session expires within the few seconds is left to chance.
		if v.Valid == No || v.Valid == Unknown && w.Name() != beliefName {
			t.Errorf("%s: %s", w.Name(), v.Valid)
		}
	}
	if t.Failed() {
		t.Log(cluster.Logs())
	}
}

// TestLibrariesFindOverlaps is the test of the test: clients of the workload libraries that do not
// lock at all are seen to overlap, through everything that lies between a library's process and the
// verdict; and so is a lock that nobody gave back.
func TestLibrariesFindOverlaps(t *testing.T) {
	tools, err := jepsen.NewToolbox(false)
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Close()
	gozk, err := tools.Gozk()
	jepsen.Need(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := startMember(ctx, t, tools)
	env := &Env{
		Servers: []string{cluster.Members()[0].ClientAddr}, History: jepsen.NewHistory(), Clients: 2,
		SessionTimeout: 4 * time.Second, Libraries: []jepsen.Client{gozk}, Dir: t.TempDir(),
	}
	k := librariesThatTake(func(string, int) []taking {
		return []taking{{recipe: "none", lock: "none", mode: jepsen.Exclusive}}
	})
	working, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	for n := range env.Clients {
		clients.Go(func() {
			if err := k.Run(working, env, n); err != nil {
				t.Error(err)
			}
		})
	}
	acquired := 0
	if err := env.History.Follow(ctx, 0, func(op jepsen.Op) bool {
		if op.F == jepsen.FAcquire && op.Kind == jepsen.OK {
			acquired++
		}
		return acquired == 40
	}); err != nil {
		t.Fatal(err)
	}
	stop()
	clients.Wait()
	if v := k.Check(env.History.Ops()); v.Valid != No {
		t.Errorf("two clients without a lock did not overlap in 40 holds: %s", verdictText(v))
	}
}
