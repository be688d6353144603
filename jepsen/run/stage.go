package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
)

// How long the parts of a run may take, apart from the time it is for.
const (
	startPatience = 90 * time.Second
	// firstPatience is how long the nemeses wait for every client's first operation.
	firstPatience = 20 * time.Second
	// healPatience is how long it may take until all members serve again.
	healPatience  = 90 * time.Second
	stopPatience  = 60 * time.Second
	finalPatience = 90 * time.Second
	// afterwards is how long the clients go on when everything is healed, in session timeouts:
	// those that were cut off have come back by then.
	afterwards = 2
	// speedInterval is how often the rate of operations is printed.
	speedInterval = 10 * time.Second
)

// A stage is one run of a Test, with everything that has to be taken down.
type stage struct {
	test  Test
	start time.Duration // of the history, as jepsen.Monotonic
	from  time.Duration // in the history: the nemeses begin
	to    time.Duration // the clients are to end

	field   *field
	network string
	closers []func() error // in reverse order

	mu     sync.Mutex // guards result.Complaints
	result *report.Run
}

// play does everything from the network to the verdicts.
func (s *stage) play(ctx context.Context) error {
	if err := s.setUp(ctx); err != nil {
		return err
	}
	if err := s.startClients(ctx); err != nil {
		return err
	}
	endQuestions := s.askAll(ctx)
	err := s.breakThings(ctx)
	if err == nil {
		s.heal(ctx)
		if !jepsen.Sleep(ctx, afterwards*s.test.SessionTimeout) {
			err = s.calledOff(ctx)
		}
	}
	if endQuestions(); err != nil {
		return err
	}
	s.to = s.field.now()
	s.stopClients(ctx)
	s.judge(ctx)
	if ctx.Err() != nil {
		return s.calledOff(ctx)
	}
	found, err := s.field.cluster.Complaints()
	if err != nil {
		return err
	}
	s.result.Complaints = append(s.result.Complaints, found...)
	return nil
}

func (s *stage) calledOff(ctx context.Context) error {
	return fmt.Errorf("run: called off: %w", context.Cause(ctx))
}

// complain notes something that is wrong with the run itself.
func (s *stage) complain(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	s.result.Complaints = append(s.result.Complaints, err.Error())
	s.mu.Unlock()
	s.field.say("trouble", err.Error())
}

// setUp makes the network and starts the members.
func (s *stage) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	t := s.test
	s.start, s.result.Began = jepsen.Monotonic(), time.Now()
	s.field = &field{
		target: t.Target, scratch: t.Scratch, history: jepsen.NewSharedHistory(s.start), out: t.Progress,
		claimed: make(map[any]string),
	}
	s.field.planner = planner{members: t.Members, able: t.Able, now: s.field.now, changed: s.field.majorityChanged}
	cfg := jepsen.ClusterConfig{
		Target: t.Target, Members: t.Members, Dir: t.Scratch, TickTime: t.TickTime,
	}
	if t.Target.Name == "lockkeeper" {
		cfg.Admin, cfg.TestClocks = true, t.asksFor("clock", "suspend")
	} else {
		// As in its sample configuration. It takes the last line of a key.
		cfg.Extra = []string{"initLimit=10", fmt.Sprintf("syncLimit=%d", zookeeperSyncLimit)}
	}
	if err := s.connect(ctx, &cfg); err != nil {
		return err
	}
	if t.asksFor(needDisks()...) && jepsen.FindDisks() == nil {
		disks, err := jepsen.NewDisks(ctx, t.Members, t.Scratch)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, disks.Close)
		s.field.disks, cfg.Disks = disks, disks
	}
	s.field.say("start", fmt.Sprintf("%d members of %s, %s", t.Members, t.Target.Name, s.network))
	cluster, err := jepsen.StartCluster(ctx, cfg)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, cluster.Close)
	s.field.cluster = cluster
	for _, m := range cluster.Members() {
		s.result.Members = append(s.result.Members, report.Member{Name: m.String(), Addr: m.ClientAddr})
	}
	return nil
}

// connect makes the network between the members.
func (s *stage) connect(ctx context.Context, cfg *jepsen.ClusterConfig) error {
	t := s.test
	kind, err := t.networkKind(ctx)
	if err != nil {
		return err
	}
	switch {
	case t.Members == 1:
		s.network = "alone on the loopback"
	case kind == Namespace:
		n, err := jepsen.NewNetwork(ctx, t.Members, t.Scratch)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, n.Close)
		s.field.links, s.network, cfg.Places = n, "each in a network namespace", n.Places()
	default:
		p := jepsen.NewProxies(t.Members, t.Seed)
		s.closers = append(s.closers, p.Close)
		s.field.links, s.network, cfg.Between = p, "proxies between them", p.Between
	}
	return nil
}

// networkKind decides between Namespace and Proxy.
func (t Test) networkKind(ctx context.Context) (string, error) {
	if t.Network != Auto {
		return t.Network, nil
	}
	missing := jepsen.FindNetwork()
	if missing == nil && slices.Contains(t.Nemeses, "swap") && t.Target.Name == "lockkeeper" {
		return Proxy, nil // there is a swap nowhere else
	}
	if missing == nil && t.asksFor("slow", "lossy") && t.Target.Name == "lockkeeper" {
		missing = jepsen.FindNetem(ctx, t.Scratch)
	}
	switch {
	case missing == nil:
		return Namespace, nil
	case t.Target.Name == "zookeeper" && t.Members > 1:
		return "", fmt.Errorf("run: ZooKeeper's members need namespaces: %w", missing)
	}
	return Proxy, nil
}

// asksFor says whether one of the nemeses will be used.
func (t Test) asksFor(names ...string) bool {
	asked, _ := expand(t.Nemeses) // checked before
	for _, n := range asked {
		for _, name := range names {
			if n.name == name {
				return true
			}
		}
	}
	return false
}

// env is the input of workloads, apart from the history.
func (s *stage) env() workload.Env {
	t := s.test
	return workload.Env{
		Servers: strings.Split(s.field.cluster.Servers(), ","), Seed: t.Seed, Clients: t.Clients,
		SessionTimeout: t.SessionTimeout, Think: t.Think, Libraries: t.Libraries, Dir: t.Scratch,
	}
}

// startClients starts all clients.
func (s *stage) startClients(context.Context) error {
	t := s.test
	for n := range t.Clients {
		spec := clientSpec{Env: s.env(), Workloads: t.Workloads, N: n, Start: s.start,
			Fence: filepath.Join(t.Scratch, "fence"), Mutation: t.Mutation}
		c, err := startClient(t.Client, spec, t.Scratch)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, c.kill)
		s.field.clients = append(s.field.clients, c)
	}
	return nil
}

// breakThings lets the nemeses work for the time of the test.
func (s *stage) breakThings(ctx context.Context) error {
	s.awaitClients(ctx)
	wanted, err := expand(s.test.Nemeses)
	if err != nil {
		return err
	}
	breaking, cancel := context.WithTimeout(ctx, s.test.Time)
	defer cancel()
	s.from = s.field.now()
	s.field.planner.begin()
	var running sync.WaitGroup
	for _, n := range wanted {
		if err := n.canUse(s.field); err != nil {
			s.field.say("left out", fmt.Sprintf("%s: %v", n.name, err))
			continue
		}
		running.Go(func() { s.complain(n.run(breaking, s.field, s.test.Seed)) })
	}
	running.Go(func() { s.tellSpeed(breaking) })
	<-breaking.Done()
	running.Wait()
	if ctx.Err() != nil {
		return s.calledOff(ctx)
	}
	return nil
}

// asks reports whether an operator asks lockkeeper's own commands about the cluster.
func (s *stage) asks() bool { return s.test.Target.Name == "lockkeeper" && s.test.Members > 1 }

// askAll has an operator ask until the function that it returns is called.
func (s *stage) askAll(ctx context.Context) (end func()) {
	if !s.asks() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { newOperator(s.field, s.test).run(ctx) })
	return func() {
		cancel()
		asking.Wait()
	}
}

// awaitClients waits until every client has begun to work.
func (s *stage) awaitClients(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	for _, c := range s.field.clients {
		for c.invoked.Load() == 0 && jepsen.Sleep(ctx, 10*time.Millisecond) {
			select {
			case <-c.process.Done(): // heard of when it is stopped
				return
			default:
			}
		}
	}
}

// tellSpeed tells the terminal how much is done, until ctx ends.
func (s *stage) tellSpeed(ctx context.Context) {
	before := s.invoked()
	for jepsen.Sleep(ctx, speedInterval) {
		now := s.invoked()
		if now == 0 {
			continue // clients that only watch
		}
		s.field.say("clients", fmt.Sprintf("%d operations a second",
			(now-before)*int64(time.Second)/int64(speedInterval)))
		before = now
	}
}

func (s *stage) invoked() (sum int64) {
	for _, c := range s.field.clients {
		sum += c.invoked.Load()
	}
	return sum
}

// heal makes everything whole and waits until every member serves. Nemeses have mended their
// faults; this finds the remaining ones.
func (s *stage) heal(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healPatience)
	defer cancel()
	if links := s.field.links; links != nil {
		s.complain(jepsen.HealAll(links))
	}
	began := time.Now()
	err := s.field.cluster.AwaitServing(ctx)
	s.complain(err)
	if err == nil {
		s.field.say("all healed", fmt.Sprintf("every member serves after %v",
			time.Since(began).Round(time.Millisecond)))
	}
}

// stopClients ends all clients, side by side.
func (s *stage) stopClients(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	var stopping sync.WaitGroup
	for _, c := range s.field.clients {
		stopping.Go(func() {
			if err := c.stop(ctx); context.Cause(ctx) != context.Canceled {
				s.complain(err)
			}
		})
	}
	stopping.Wait()
}

// judge has every workload look at the end, and check.
func (s *stage) judge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finalPatience)
	defer cancel()
	t := s.test
	env := s.env()
	env.History = s.field.history
	var all []workload.Workload
	for _, name := range t.Workloads {
		w, err := workload.New(name)
		if err == nil {
			err = w.Final(ctx, &env)
		}
		if err != nil {
			s.complain(fmt.Errorf("run: the end of %s: %w", name, err))
			continue
		}
		all = append(all, w)
	}
	if context.Cause(ctx) == context.Canceled {
		return
	}
	if t.Members > 1 {
		s.result.Verdicts = append(s.result.Verdicts, s.checkReplicas(ctx))
	}
	histories := [][]jepsen.Op{s.field.history.Ops()}
	for _, c := range s.field.clients {
		histories = append(histories, c.history())
	}
	s.result.Ops = jepsen.Merge(histories...)
	s.field.say("check", fmt.Sprintf("%d entries", len(s.result.Ops)))
	s.result.Verdicts = append(s.result.Verdicts, s.progress().Check(s.result.Ops))
	if s.asks() {
		s.result.Verdicts = append(s.result.Verdicts, workload.CheckStatements(s.result.Ops))
	}
	for _, w := range all {
		v := w.Check(s.result.Ops)
		if w.Name() == "ephemeral" && s.hadFault("clock") {
			v.Promise += ", C8" // none of its sessions ended early, none outlived its time
		}
		s.result.Verdicts = append(s.result.Verdicts, v)
	}
	if slices.Contains(t.Workloads, workload.Libraries) && slices.Equal(t.Nemeses, []string{"kill-leader"}) {
		s.result.Verdicts = append(s.result.Verdicts, workload.Kills{Bound: killBound}.Check(s.result.Ops))
	}
}

// hadFault says whether something of a kind was broken.
func (s *stage) hadFault(kind string) bool {
	return slices.ContainsFunc(s.field.faults, func(f report.Fault) bool { return f.Kind == kind })
}

// replicaPatience is how long it may take until all members show the same state, when nobody
// changes it any more.
const replicaPatience = 30 * time.Second

// checkReplicas says whether all members hold the same: whatever the clients saw, two replicas with
// one zxid and two states are a broken promise.
func (s *stage) checkReplicas(ctx context.Context) workload.Verdict {
	ctx, cancel := context.WithTimeout(ctx, replicaPatience)
	defer cancel()
	v := workload.Verdict{Checker: "replicas", Promise: "C1"}
	if s.test.Target.Name == "zookeeper" {
		s.complain(s.moreUpdates(ctx))
	}
	zxid, err := s.field.cluster.AwaitAgreement(ctx)
	switch {
	case errors.Is(err, jepsen.ErrReplicasDiffer):
		v.Valid, v.Text = workload.No, err.Error()
		v.Violations = []workload.Violation{{Text: err.Error()}}
	case err != nil:
		v.Valid, v.Text = workload.Unknown, err.Error()
	default:
		v.Checked, v.Unit = len(s.field.cluster.Members()), "replicas"
		v.Valid, v.Text = workload.Yes, fmt.Sprintf("%d members hold the same at zxid 0x%s", v.Checked, zxid)
	}
	return v
}

// digestUpdates are more updates than ZooKeeper has from one digest to the next, which is 128: a
// workload with few updates leaves members with no digest of one zxid.
const digestUpdates = 300

// moreUpdates makes digestUpdates.
func (s *stage) moreUpdates(ctx context.Context) error {
	env := s.env()
	c, _, err := jepsen.OpenGoClient(jepsen.GoClientConfig{Servers: env.Servers, SessionTimeout: env.SessionTimeout})
	if err != nil {
		return err
	}
	defer c.Close()
	const path = "/replicas"
	_, err = c.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	for n := 0; n < digestUpdates && err == nil && ctx.Err() == nil; n++ {
		_, err = c.Set(path, nil, -1)
	}
	if err != nil {
		return fmt.Errorf("run: updates for the digests of the members: %w", err)
	}
	return nil
}

// killBound is how long after the kill of a leader a client of the workload libraries may have to
// wait for a lock, if nothing else breaks.
const killBound = 5 * time.Second

// progressTimeouts and progressGrace are how long a client may be without a completed operation
// while a majority can act: it may have to notice, for 2/3 of its session timeout, that its member
// is gone; then to find, for a third of it at each, that other members are; lose that one, too;
// wait for the session of a lock's holder to expire; and the members for an election.
const (
	progressTimeouts = 3
	progressGrace    = 4 * time.Second
)

// zookeeperSyncLimit is ZooKeeper's syncLimit, in ticks, as in its sample configuration.
const zookeeperSyncLimit = 5

// progressBound is how long a client may be without a completed operation. A server of ZooKeeper
// that is cut off from its leader, or its followers, answers the pings of its clients until
// syncLimit is over, which it looks at once in a tick, and no writes. They stay with it for so
// long. lockkeeper's promise is narrower: a member is silent when its leases are not confirmed.
func (t Test) progressBound() time.Duration {
	bound := progressTimeouts*t.SessionTimeout + progressGrace
	if t.Target.Name == "zookeeper" && t.Members > 1 {
		bound += (zookeeperSyncLimit + 1) * t.TickTime
	}
	return bound
}

// progress is the checker that the clients got on.
func (s *stage) progress() workload.Progress {
	p := workload.Progress{From: s.from, To: s.to, Able: s.test.Able, Bound: s.test.progressBound()}
	for _, name := range s.test.Workloads {
		for n := range s.test.Clients {
			if workload.Steady(name) {
				p.Workers = append(p.Workers, workload.Worker(name, n))
			}
		}
	}
	return p
}

// close takes everything down.
func (s *stage) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// PrintVerdicts prints the results on the terminal.
func PrintVerdicts(w io.Writer, r *report.Run) {
	fmt.Fprintf(w, "\n%-16s %-8s %-8s %s\n", "checker", "promise", "valid", "")
	for _, v := range r.Verdicts {
		fmt.Fprintf(w, "%-16s %-8s %-8s %s\n", v.Checker, v.Promise, v.Valid, v.Text)
		for i, violation := range v.Violations {
			if i == maxShown {
				fmt.Fprintf(w, "    and %d more\n", len(v.Violations)-maxShown)
				break
			}
			fmt.Fprintf(w, "    %s\n", violation.Text)
			for _, op := range violation.Ops[:min(len(violation.Ops), maxShownOps)] {
				fmt.Fprintf(w, "      %s\n", op)
			}
		}
	}
	for _, c := range r.Complaints {
		fmt.Fprintf(w, "trouble: %s\n", c)
	}
}

// Bounds of a broken promise's lines on a terminal; the report has more.
const (
	maxShown    = 5
	maxShownOps = 12
)
