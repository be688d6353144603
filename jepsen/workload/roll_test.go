package workload

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/quorum/peer"
)

var rollFor = flag.Duration("roll.for", 0, "how long the cluster is rolled to the next version and back; 0: once")

const (
	// rollTimeout is the session timeout of the clients.
	rollTimeout = 8 * time.Second
	// rollProgress bounds how long a client may be without a completed operation: it has to find
	// another member, and there a leader, on a machine that is busy with tests. One that wants a
	// lock waits for its holder, and may give up after rollLockProgress.
	rollProgress     = 5 * time.Second
	rollLockProgress = 2 * rollTimeout
	// rollAbsentProgress is rollProgress where members are absent for rollAbsence: clients of one
	// that is back wait until it has its snapshot, which raft sends some five seconds later.
	rollAbsentProgress = rollTimeout
	// rollPause is for how long the members of two versions work together before the next one is
	// rolled.
	rollPause = time.Second
	// rollAbsence is long enough for a leader to drop the entries that a member has missed.
	rollAbsence = 15 * time.Second
)

// buildNext builds the next version: this source with an overlay that raises the version of the
// protocol between members by one.
func buildNext(t *testing.T) jepsen.Target {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "lockkeeper/quorum/peer").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	file := filepath.Join(strings.TrimSpace(string(out)), "version.go")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	this, next := fmt.Sprintf("NewestVersion = %d\n", peer.NewestVersion), fmt.Sprintf("NewestVersion = %d\n", peer.NewestVersion+1)
	if strings.Count(string(source), this) != 1 {
		t.Fatalf("%s does not say %q once", file, this)
	}
	dir := t.TempDir()
	replaced, overlay, binary := filepath.Join(dir, "version.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "lockkeeper-next")
	files, err := json.Marshal(map[string]any{"Replace": map[string]string{file: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(replaced, []byte(strings.Replace(string(source), this, next, 1)), 0o600),
		os.WriteFile(overlay, files, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "lockkeeper/cmd/lockkeeper").CombinedOutput(); err != nil {
		t.Fatalf("go build of the next version: %v\n%s", err, out)
	}
	return jepsen.Lockkeeper(binary)
}

// TestRollToTheNextVersionAndBack starts a cluster of this version, as real processes, and replaces
// the program of one member after the other by the next version, and then by this one again, while
// clients write, read and take locks. No answered write is lost, no lock has two holders, no
// session is lost, and no client is without progress for long.
func TestRollToTheNextVersionAndBack(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	next := buildNext(t)
	tools, err := jepsen.NewToolbox(jepsen.Race)
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Close()
	this, err := tools.Lockkeeper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *rollFor+3*time.Minute)
	defer cancel()
	cluster, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{
		Target: this, Members: 3, Dir: jepsen.KeptDir(t, false),
		// Members start with snapshots that the other version has written.
		Extra: []string{"snapCount=200"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Log(cluster.Logs())
		}
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	load := startRollLoad(t, ctx, cluster)
	roll := &roll{t: t, ctx: ctx, cluster: cluster, load: load, rng: rand.New(rand.NewPCG(load.env.Seed, 0))}
	for until := time.Now().Add(*rollFor); ; {
		roll.to("the next version", next)
		roll.expectVersions()
		roll.to("this version", this)
		if time.Now().After(until) {
			break
		}
	}
	load.finish(ctx)
	complaints, err := cluster.Complaints()
	if err != nil {
		t.Error(err)
	}
	for _, c := range complaints {
		t.Error(c)
	}
}

// roll replaces the programs of members.
type roll struct {
	t       *testing.T
	ctx     context.Context
	cluster *jepsen.Cluster
	load    *rollLoad
	rng     *rand.Rand
	rounds  int
}

// to gives each member in turn another program. The first time the leader is the last one, so that
// leaders of each version have followers of the other; later the order is random, some members are
// killed, and some are down for so long that a leader of the other version sends them a snapshot.
func (r *roll) to(version string, target jepsen.Target) {
	r.t.Helper()
	members := append([]*jepsen.Member(nil), r.cluster.Members()...)
	r.rng.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
	for i := range members {
		if leader, err := r.cluster.AwaitLeader(r.ctx); err != nil {
			r.t.Fatal(err)
		} else if r.rounds < 2 && i < 2 && members[i] == leader {
			members[i], members[2] = members[2], members[i]
		}
		m := members[i]
		stop := func() error { return m.Stop(r.ctx) }
		if r.rounds >= 2 && r.rng.IntN(3) == 0 {
			stop = m.Kill
		}
		began := time.Now()
		r.load.env.History.Add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FKill, Member: m.ClientAddr, Note: "to " +
			version})
		if err := stop(); err != nil {
			r.t.Fatal(err)
		}
		if r.rounds >= 2 && r.rng.IntN(4) == 0 {
			jepsen.Sleep(r.ctx, rollAbsence)
		}
		m.Use(target)
		if err := m.Restart(r.ctx); err != nil {
			r.t.Fatalf("%s, started as %s: %v", m, version, err)
		}
		r.awaitSynced()
		r.t.Logf("%s is of %s after %v", m, version, time.Since(began).Round(time.Millisecond))
		jepsen.Sleep(r.ctx, rollPause)
	}
	r.rounds++
}

// awaitSynced waits until all members have all committed entries. An operator waits for that, too:
// the next member that stops may leave a majority with one that is behind, and then nobody can
// write until that one has caught up.
func (r *roll) awaitSynced() {
	r.t.Helper()
	r.await("all members to have caught up", func(value func(string) string) bool {
		return value("zk_synced_followers") == "2"
	})
}

// expectVersions waits until the leader of a cluster of one version says that all members speak
// its version of the protocol, and that none was refused.
func (r *roll) expectVersions() {
	r.t.Helper()
	r.await("all members to speak the version of the leader", func(value func(string) string) bool {
		v := value("zk_peer_version")
		return v != "" && v == value("zk_peer_version_common") && value("zk_peer_versions_refused") == "0"
	})
}

// await waits until done accepts the values of the leader's mntr.
func (r *roll) await(what string, done func(value func(key string) string) bool) {
	r.t.Helper()
	for {
		leader, err := r.cluster.AwaitLeader(r.ctx)
		if err != nil {
			r.t.Fatalf("wait for %s: %v", what, err)
		}
		text, err := jepsen.FourLetter(r.ctx, leader.ClientAddr, "mntr")
		if err == nil && done(func(key string) (v string) {
			for line := range strings.Lines(text) {
				if k, rest, _ := strings.Cut(strings.TrimSpace(line), "\t"); k == key {
					v = rest
				}
			}
			return v
		}) {
			return
		}
		if !jepsen.Sleep(r.ctx, 50*time.Millisecond) {
			r.t.Fatalf("wait for %s: %v; %s says:\n%s", what, err, leader, text)
		}
	}
}

// rollLoad is the clients' load meanwhile.
type rollLoad struct {
	t       *testing.T
	env     *Env
	stop    context.CancelFunc
	clients sync.WaitGroup
	all     []Workload
	from    time.Duration // in the history
}

func startRollLoad(t *testing.T, ctx context.Context, cluster *jepsen.Cluster) *rollLoad {
	l := &rollLoad{t: t, env: &Env{
		Servers: strings.Split(cluster.Servers(), ","), History: jepsen.NewHistory(),
		Seed: uint64(time.Now().UnixNano()), Clients: 4,
		SessionTimeout: rollTimeout, Think: 10 * time.Millisecond,
	}}
	t.Logf("seed %d", l.env.Seed)
	working, stop := context.WithCancel(ctx)
	l.stop = stop
	for _, name := range []string{registerName, orderName, lockName, onceName, durabilityName} {
		w, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		l.all = append(l.all, w)
		for n := range l.env.Clients {
			l.clients.Go(func() {
				if err := w.Run(working, l.env, n); err != nil {
					t.Errorf("%s %d: %v", name, n, err)
				}
			})
		}
	}
	jepsen.Sleep(ctx, 2*time.Second) // some of it before the first member is stopped
	l.from = l.env.History.Now()
	return l
}

// finish ends the load and judges it.
func (l *rollLoad) finish(ctx context.Context) {
	l.t.Helper()
	jepsen.Sleep(ctx, 2*time.Second)
	to := l.env.History.Now()
	l.stop()
	l.clients.Wait()
	for _, w := range l.all {
		if err := w.Final(ctx, l.env); err != nil {
			l.t.Errorf("%s: %v", w.Name(), err)
		}
	}
	ops := l.env.History.Ops()
	var verdicts []Verdict
	progress := Progress{From: l.from, To: to, Bound: rollProgress, Able: 1}
	if *rollFor > 0 {
		progress.Bound = rollAbsentProgress
	}
	locks := Progress{From: l.from, To: to, Bound: rollLockProgress, Able: 1}
	for _, w := range l.all {
		verdicts = append(verdicts, w.Check(ops))
		of := &progress
		if w.Name() == lockName {
			of = &locks
		}
		for n := range l.env.Clients {
			of.Workers = append(of.Workers, Worker(w.Name(), n))
		}
	}
	waiting := locks.Check(ops)
	if waiting.Valid == Unknown {
		waiting.Valid = Yes // the clients waited for locks most of the time
	}
	for _, v := range append(verdicts, progress.Check(ops), waiting) {
		l.t.Logf("figures: %s", verdictText(v))
		if v.Valid != Yes {
			l.t.Errorf("%s: %s", v.Checker, v.Valid)
		}
	}
	// The clients of the register have one session each. The lock's clients now and then cut
	// themselves off for so long that their sessions end.
	connected := 0
	for _, op := range ops {
		switch keeps := strings.HasPrefix(op.Worker, registerName+"-"); {
		case keeps && op.F == jepsen.FConnected:
			connected++
		case keeps && op.F == jepsen.FExpired:
			l.t.Errorf("a session was lost: %v", op)
		}
	}
	if connected <= l.env.Clients {
		l.t.Errorf("clients connected %d times: nobody has noticed that members were replaced", connected)
	}
	if l.t.Failed() {
		l.keep(ops)
	}
}

// keep leaves the history for the one who looks for the fault.
func (l *rollLoad) keep(ops []jepsen.Op) {
	file, err := os.CreateTemp("", "lockkeeper-roll-*.txt")
	if err != nil {
		l.t.Error(err)
		return
	}
	defer file.Close()
	for _, op := range ops {
		fmt.Fprintln(file, op)
	}
	l.t.Logf("the history is in %s", file.Name())
}
