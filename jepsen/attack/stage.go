package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/wire"
)

// Settings of every cluster that is attacked.
const (
	members = 3
	// descriptors is the limit of file descriptors: a process's default.
	descriptors = 1024
	tick        = 2 * time.Second
	// tries is how often an attack is played if the users were only slow: the machine may have been
	// busy with something else, and an effect of the attack is there each time.
	tries = 3
)

const (
	startPatience = 90 * time.Second
	// afterwards is how long a cluster may take to be as before when an attack is over.
	afterwards = 15 * time.Second
	// freshBytes bounds the members' memory after an attack for the next one to use the same
	// cluster: most of the memory that an attack has cost is free, but not given back to the system
	// yet.
	freshBytes = 128 << 20
)

// Config selects the attacks.
type Config struct {
	Target  jepsen.Target
	Attacks []Attack
	// Baseline is how long the lock users are measured without an attack, before each; Each is how
	// long an attack is played, if its first round does not take longer.
	Baseline, Each time.Duration
	// Seed makes the noise that is sent.
	Seed uint64
	// Again is the command line that plays the same.
	Again string
	// Tool is lockkeeper's command line program.
	Tool func(args ...string) *exec.Cmd
	// Dir is where the clusters have their files.
	Dir string
	// Progress is told each result.
	Progress func(*Result)
}

// Run plays the attacks, one after the other, on one cluster, which is replaced by a fresh one when
// an attack has done harm to it, has left its members large, or needs other settings. The error is
// for failures of the play itself.
func Run(ctx context.Context, cfg Config) (*Document, error) {
	defer shareProcess()()
	s := &stage{cfg: cfg, history: jepsen.NewHistory()}
	d := &Document{Target: cfg.Target.Name, cfg: cfg, began: time.Now(), history: s.history}
	var err error
	for _, a := range cfg.Attacks {
		if cfg.Target.Name == "zookeeper" && (a.Port == PeerPort || a.Port == HTTPPort || a.Certificate || a.Ours) {
			continue // they speak lockkeeper's own protocol, or would need ZooKeeper's key stores
		}
		if err = s.setUp(ctx, a); err != nil {
			break
		}
		from := s.history.Now()
		r := s.playOne(ctx, a, cfg.Each)
		for again := 1; again < tries && r.undecided(); again++ {
			r = s.playOne(ctx, a, cfg.Each<<again)
		}
		if err = ctx.Err(); err != nil {
			break
		}
		d.Results = append(d.Results, r)
		d.faults = append(d.faults, report.Fault{Kind: a.Name, On: r.Member, From: from, To: s.history.Now()})
		if cfg.Progress != nil {
			cfg.Progress(r)
		}
		if !r.OK() || r.AfterBytes > freshBytes {
			err = s.takeDown()
		}
	}
	return d, errors.Join(err, s.takeDown())
}

// A stage is a cluster and its lock users.
type stage struct {
	cfg     Config
	history *jepsen.History
	started int // clusters
	plays   int
	cluster *jepsen.Cluster // nil: there is none
	setting string          // of cluster; see setting
	users   []*user
	end     context.CancelFunc // ends the users
}

// setting is the configuration that an attack needs, as a text that is equal for equal ones.
func setting(a Attack) string { return fmt.Sprint(a.Certificate, a.Settings) }

// setUp starts a cluster with its users, as an attack needs it, if there is none of that kind.
func (s *stage) setUp(ctx context.Context, a Attack) error {
	if s.cluster != nil && s.setting == setting(a) {
		return nil
	}
	if err := s.takeDown(); err != nil {
		return err
	}
	s.setting = setting(a)
	patient, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	s.started++
	cfg := jepsen.ClusterConfig{
		Target: s.cfg.Target, Members: members, Dir: filepath.Join(s.cfg.Dir, fmt.Sprintf("cluster%d", s.started)),
		TickTime:    tick,
		Descriptors: descriptors, Admin: s.cfg.Target.Name == "lockkeeper", Metrics: s.cfg.Target.Name == "lockkeeper",
		Extra: []string{fmt.Sprintf("maxClientCnxns=%d", allowed)},
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("attack: %w", err)
	}
	if s.cfg.Target.Name == "lockkeeper" {
		cfg.Extra = append(cfg.Extra, a.Settings...)
	}
	if a.Certificate {
		lines, err := certificate(cfg.Dir)
		if err != nil {
			return err
		}
		cfg.Extra = append(cfg.Extra, lines...)
	}
	cluster, err := jepsen.StartCluster(patient, cfg)
	if err != nil {
		return err
	}
	s.cluster = cluster
	var life context.Context
	life, s.end = context.WithCancel(ctx)
	for i := range members {
		u, err := startUser(life, cluster, i, s.history)
		if err != nil {
			return errors.Join(err, s.takeDown())
		}
		s.users = append(s.users, u)
	}
	return nil
}

// takeDown ends the users and the cluster.
func (s *stage) takeDown() error {
	if s.cluster == nil {
		return nil
	}
	s.end()
	for _, u := range s.users {
		<-u.stopped
	}
	err := s.cluster.Close()
	s.cluster, s.users = nil, nil
	return err
}

// playOne plays one attack and judges its effect.
func (s *stage) playOne(ctx context.Context, a Attack, long time.Duration) *Result {
	r := &Result{Attack: a.Name, Port: a.Port, Sends: a.Sends}
	p, err := s.prepare(ctx, a)
	if err != nil {
		r.fail(tooLittle+"not ready for the attack: %v", err)
		return r
	}
	r.Member = p.attacked.String()
	for _, u := range s.users {
		u.server = u.conn.Server()
	}
	baseline := time.Now()
	jepsen.Sleep(ctx, s.cfg.Baseline)
	began := time.Now()
	for _, m := range s.cluster.Members() {
		if err := m.ResetPeakMemory(); err != nil {
			r.fail("%v", err)
		}
	}
	playing, cancel := context.WithTimeout(ctx, long)
	err = each(1, func(int) error { return a.play(playing, p) })
	cancel()
	ended := time.Now()
	r.TookMs = ended.Sub(began).Milliseconds()
	s.judgePlay(r, a, p, err)

	patient, cancel := context.WithTimeout(ctx, afterwards)
	defer cancel()
	s.judgeUsers(patient, r, p, a, baseline, began, ended)
	s.judgeMembers(patient, r)
	if a.Disk && r.OK() {
		s.restart(ctx, r)
	}
	return r
}

// prepare chooses the member that is attacked.
func (s *stage) prepare(ctx context.Context, a Attack) (*Play, error) {
	patient, cancel := context.WithTimeout(ctx, afterwards)
	defer cancel()
	leader, err := s.cluster.AwaitLeader(patient)
	if err != nil {
		return nil, err
	}
	s.plays++
	p := &Play{number: s.plays, cluster: s.cluster, leader: leader, attacked: leader, seed: s.cfg.Seed,
		tool: s.cfg.Tool, seen: map[string]int{}}
	if !a.Leader {
		p.attacked = p.cluster.Members()[leader.ID%members]
	}
	if a.Port == PeerPort {
		return p, p.learnPeerPort()
	}
	return p, nil
}

// judgePlay says whether the attack had its intended form, and whether the attacker got the
// expected answers.
func (s *stage) judgePlay(r *Result, a Attack, p *Play, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.SentBytes, r.Seen = p.sentBytes, p.seen
	var harmed *harm
	switch {
	case errors.As(err, &harmed):
		r.fail("%v", err)
	case err != nil:
		r.fail(tooLittle+"%v", err)
	}
	total := 0
	for outcome, n := range p.seen {
		total += n
		// ZooKeeper's answers are its own affair: the attack is judged by its effect on others.
		if !slices.Contains(a.May, outcome) && s.cfg.Target.Name == "lockkeeper" {
			r.fail("the attacker saw %d times: %s", n, outcome)
		}
	}
	if total < a.Least || p.sentBytes < a.LeastBytes {
		r.fail(tooLittle+"%d outcomes (%s) and %d bytes sent, of at least %d and %d",
			total, outcomes(p.seen), p.sentBytes, a.Least, a.LeastBytes)
	}
}

// judgeUsers compares the lock users' latencies during the attack with those just before.
func (s *stage) judgeUsers(ctx context.Context, r *Result, p *Play, a Attack, baseline, began, ended time.Time) {
	for _, u := range s.users {
		if err := u.awaitCaughtUp(ctx, ended); err != nil {
			r.fail("%v", err)
		}
	}
	var before, during []time.Duration
	for _, u := range s.users {
		before = append(before, u.took(baseline, began)...)
		if !a.Stops || u.server != p.attacked.ClientAddr {
			during = append(during, u.took(began, ended)...)
		}
	}
	r.BeforeMs, r.P99Ms = percentile(before), percentile(during)
	if limit := max(2*r.BeforeMs, userP99Ms); r.P99Ms > limit {
		r.slow = true
		r.fail("p99 of the lock users %.0f ms, more than %.0f", r.P99Ms, limit)
	}
	s.judgeLocks(ctx, r)
}

// judgeLocks lists the lost locks and sessions.
func (s *stage) judgeLocks(ctx context.Context, r *Result) {
	lost := make(chan error, len(s.users))
	for _, u := range s.users {
		go func() { lost <- u.lost() }() // it ends with the user's connection
	}
	for range s.users {
		select {
		case err := <-lost:
			if err != nil {
				r.fail("%v", err)
			}
		case <-ctx.Done():
			r.fail("a lock user cannot see whether it has its lock")
		}
	}
}

// judgeMembers says whether all members live, are no larger than they may be, take writes, and hold
// the same.
func (s *stage) judgeMembers(ctx context.Context, r *Result) {
	complaints, err := s.cluster.Complaints()
	if err != nil {
		r.fail("%v", err)
	}
	for _, c := range complaints {
		r.fail("%s", c)
	}
	for _, m := range s.cluster.Members() {
		now, err := m.Memory()
		if err != nil {
			r.fail("%v", err)
			continue
		}
		r.PeakBytes, r.AfterBytes = max(r.PeakBytes, now.PeakBytes), max(r.AfterBytes, now.ResidentBytes)
		if now.PeakBytes > memoryBytes && s.cfg.Target.Name == "lockkeeper" {
			r.fail("%s took %d MB, more than %d", m, now.PeakBytes>>20, int64(memoryBytes)>>20)
		}
		if err := awaitWrite(ctx, m); err != nil {
			r.fail("%s takes no writes: %v", m, err)
		}
	}
	if !r.OK() {
		return // the cluster goes
	}
	for _, u := range s.users {
		u.setResting(true)
		defer u.setResting(false)
	}
	if _, err := s.cluster.AwaitAgreement(ctx); err != nil {
		r.fail("%v", err)
	}
}

// awaitWrite waits until a member takes a write of a new session.
func awaitWrite(ctx context.Context, m *jepsen.Member) error {
	p := &Play{attacked: m, seen: map[string]int{}}
	return jepsen.Poll(ctx, 100*time.Millisecond, func() error {
		c, err := p.connectFrom(member)
		if err != nil {
			return err
		}
		defer c.leave()
		if err := c.make("/attack-after", nil); err != nil {
			return err
		}
		return c.do(wire.OpSetData, wire.SetDataRequest{Path: "/attack-after", Version: -1})
	})
}

// restart kills all members and starts them again from their disks. The locks must outlast it.
func (s *stage) restart(ctx context.Context, r *Result) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	began := time.Now()
	for _, m := range s.cluster.Members() {
		if err := m.Kill(); err != nil {
			r.fail("%v", err)
		}
	}
	for _, m := range s.cluster.Members() {
		if err := m.Start(); err != nil {
			r.fail("%v", err)
		}
	}
	if err := s.cluster.AwaitServing(ctx); err != nil {
		r.fail("after a restart from the disks: %v", err)
		return
	}
	r.RestartMs = time.Since(began).Milliseconds()
	for _, u := range s.users {
		if err := u.awaitCaughtUp(ctx, time.Now()); err != nil {
			r.fail("after a restart from the disks: %v", err)
		}
	}
	s.judgeLocks(ctx, r)
}
