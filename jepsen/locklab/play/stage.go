package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
)

// A Config says how stories are played.
type Config struct {
	// Client is the command line of a client's process: one that calls Client.
	Client []string
	// Lease is the lease of most stories.
	Lease time.Duration
	// Rounds is the number of trios of clients that play each story.
	Rounds int
	// Share is the number of rounds that have their clients A in one process, and so B and C; 0 for
	// one.
	Share int
	// Places are stores with counters under a fence. The rounds of ways with tokens take one each,
	// in turn.
	Places []lock.Place
	// Seed is the seed of the plans.
	Seed uint64
	// Cost is for how long the story without a fault is played; Times bounds its acquisitions, 0
	// for no bound.
	Cost  time.Duration
	Times int
	// Servers is the number of servers of the system, on a network that can be cut; 0 for its own
	// number, without such a network.
	Servers int
	// Dir is for data and logs.
	Dir string
}

// A Stage is a system of servers on which stories are played, one after the other.
type Stage struct {
	Config
	kind    system.Kind
	sys     system.System
	ledger  *ledger.Ledger
	network *jepsen.Network // nil without Config.Servers
	home    string          // the directory of the system
	starts  int             // of the system
	cases   int             // for names of resources
	killed  []int           // servers that do not run
	set     []int           // servers with wrong clocks
	liar    int             // the server with the forgetful disk (copyDisk)
	failed  bool            // the system may be damaged
}

// startPatience is how long servers and clients may take to start, on a busy machine.
const startPatience = time.Minute

// buildPatience is how long a system may take to start, with the building of its servers and of
// clients in other languages.
const buildPatience = 4 * time.Minute

// NewStage starts the servers.
func NewStage(ctx context.Context, cfg Config, kind system.Kind) (*Stage, error) {
	l, err := ledger.OpenLedger()
	if err != nil {
		return nil, err
	}
	s := &Stage{Config: cfg, kind: kind, ledger: l}
	if cfg.Servers > 0 {
		s.network, err = jepsen.NewNetwork(ctx, cfg.Servers, cfg.Dir)
	}
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start starts the system, in a new directory.
func (s *Stage) start(ctx context.Context) error {
	s.starts++
	s.home = filepath.Join(s.Dir, fmt.Sprintf("%s-%d-%d", s.kind.Name, s.Servers, s.starts))
	err := os.MkdirAll(s.home, 0o755)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, buildPatience)
		defer cancel()
		site := system.Site{Dir: s.home, Lease: s.Lease}
		if s.network != nil {
			site.Places = s.network.Places()
		}
		s.sys, err = s.kind.Start(ctx, site)
	}
	if err != nil {
		return fmt.Errorf("play: start %s: %w", s.kind.Name, err)
	}
	s.killed, s.set, s.failed = nil, nil, false
	return nil
}

// Close ends the servers and the ledger.
func (s *Stage) Close() error {
	err := s.ledger.Close()
	if s.sys != nil {
		err = errors.Join(err, s.sys.Close())
	}
	if s.network != nil {
		err = errors.Join(err, s.network.Close())
	}
	return err
}

// A Round is one play of three clients.
type Round struct {
	Plan   Plan           `json:"plan"`
	Events []Event        `json:"events"`
	Ledger []ledger.Entry `json:"ledger"`
	// Place is the kind of the store with a counter under a fence, Count its value at the end.
	Place string `json:"place,omitempty"`
	Count int64  `json:"count,omitempty"`
	// Broken is why the story could not be played to its end; empty if it was.
	Broken string `json:"broken,omitempty"`
}

// A Case is a story, played with a way to lock.
type Case struct {
	Way, System, Fault string
	Fenced             bool // the way's grants carry tokens
	Seed               uint64
	Lease              time.Duration
	Rounds             []Round
	// Requests is the number of clients' requests that the servers answered for each acquisition,
	// without a fault and with one client, InTurn the same with three; negative if nothing counts
	// them.
	Requests, InTurn float64
	// Skipped is why the story cannot be played with this system; empty if it was.
	Skipped string
}

// Name is the name of the case for -explain.
func (c *Case) Name() string { return c.Way + "/" + c.Fault }

// Play plays the rounds from to to-1 of a story, of all Rounds, at the same time. An error means
// that the lab failed, not the lock.
func (s *Stage) Play(ctx context.Context, way lock.Way, f Fault, from, to int) (*Case, error) {
	c := &Case{Way: way.Name, System: s.kind.Name, Fault: f.Name, Fenced: way.Fenced, Seed: s.Seed, Lease: f.Lease(s.Lease),
		Requests: -1, InTurn: -1}
	if n := len(s.sys.Servers()); n < f.Least {
		c.Skipped = fmt.Sprintf("needs %d servers, there is %d", f.Least, n)
		return c, nil
	}
	if f.NeedsClock && errors.Is(s.setClock(0, 0), system.ErrClock) {
		c.Skipped = system.ErrClock.Error()
		return c, nil
	}
	if f.NeedsClientClock && (!way.ClientClock || system.NewClock(s.home, "client") == nil) {
		c.Skipped = "the wall clock of this client cannot be set"
		return c, nil
	}
	s.cases++
	err := s.asked(ctx, way, func() error { return s.play(ctx, c, f, from, to) })
	if restored := s.restore(ctx); err == nil {
		err = restored
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name(), err)
	}
	return c, nil
}

// asked does something while the ledger can ask the servers who holds a lock of this way, if they
// can tell. It waits for an answer for a fifth of a lease, and does not take none for a yes.
func (s *Stage) asked(ctx context.Context, way lock.Way, do func() error) error {
	if way.Ask == nil {
		return do()
	}
	var servers []string
	for _, server := range s.sys.Servers() {
		servers = append(servers, server.Addr())
	}
	asker, err := way.Ask(ctx, lock.Config{Servers: servers, Node: "resource", Lease: s.Lease})
	if err != nil {
		return err
	}
	s.ledger.Ask(func(resource string, token uint64) error {
		ctx, cancel := context.WithTimeout(ctx, s.Lease/5)
		defer cancel()
		return asker.Holds(ctx, resource, token)
	})
	err = do()
	s.ledger.Ask(nil)
	return errors.Join(err, asker.Close())
}

// play plays some rounds of a case; the one without a fault has but one.
func (s *Stage) play(ctx context.Context, c *Case, f Fault, from, to int) (err error) {
	if f.Name == None {
		to = from + 1
	}
	trios := make([]*trio, to-from)
	all := &hosts{command: s.Client, dir: s.Dir}
	defer func() {
		together(trios, func(t *trio) { t.fail(t.close()) })
		for _, t := range trios {
			c.Rounds = append(c.Rounds, t.round())
		}
	}()
	for i := range trios {
		trios[i] = newTrio(s, c, f, from+i, s.Rounds, all)
	}
	s.note(trios, Broke, "the system is %s, the lease %v", s.kind.Name, c.Lease)
	together(trios, func(t *trio) { t.start(ctx) })
	if f.Name == None {
		c.Requests, c.InTurn = s.cost(ctx, trios[0])
		return nil
	}
	away, err := s.prepare(ctx, f, trios)
	if err != nil {
		return err
	}
	together(trios, func(t *trio) { t.acquire(ctx) })
	var hitting sync.WaitGroup
	hitting.Go(func() { err = s.hit(ctx, f, trios, away) })
	together(trios, func(t *trio) { t.finish(ctx) })
	hitting.Wait()
	if f.hit == hitApart && err == nil {
		err = s.heal(ctx)
	}
	return err
}

// together calls f for all trios at the same time, and waits.
func together(trios []*trio, f func(*trio)) {
	var all sync.WaitGroup
	for _, t := range trios {
		if t != nil {
			all.Go(func() { f(t) })
		}
	}
	all.Wait()
}

// note adds an event of the lab to all histories.
func (s *Stage) note(trios []*trio, what, format string, args ...any) {
	for _, t := range trios {
		t.history.Note("lab", what, format, args...)
	}
}

// primary is the server that decides, or the first one if there is none.
func (s *Stage) primary(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	i, err := s.sys.Primary(ctx)
	if err != nil {
		return 0
	}
	return i
}

// prepare makes the preparations before A gets the lock: servers go down that have to miss it, and
// a disk that will forget it is copied. It returns the servers that come back later.
func (s *Stage) prepare(ctx context.Context, f Fault, trios []*trio) (away []int, err error) {
	n := 0
	switch f.hit {
	case hitFailover:
		n = 1
	case hitDisk:
		n = (len(s.sys.Servers()) - 1) / 2
	default:
		return nil, nil
	}
	primary := s.primary(ctx)
	for i := range n {
		i = (primary + 1 + i) % len(s.sys.Servers())
		away = append(away, i)
		s.note(trios, Broke, "%s is killed, so that it misses what comes now", s.sys.Servers()[i].Name())
		if err := s.kill(i); err != nil {
			return nil, err
		}
	}
	if f.hit == hitDisk {
		s.liar = primary
		err = copyDisk(ctx, s.sys.Servers()[primary])
	}
	return away, err
}

func (s *Stage) kill(i int) error {
	s.killed = append(s.killed, i)
	return s.sys.Servers()[i].Kill()
}

// revive starts a server that was killed.
func (s *Stage) revive(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := s.sys.Servers()[i].Start(ctx)
	if err == nil {
		s.killed = slices.DeleteFunc(s.killed, func(k int) bool { return k == i })
	}
	return err
}

// hit applies a fault to servers.
func (s *Stage) hit(ctx context.Context, f Fault, trios []*trio, away []int) error {
	primary, plan := s.primary(ctx), trios[0].plan
	server := s.sys.Servers()[primary]
	switch f.hit {
	case hitServerPause:
		s.note(trios, Broke, "%s is stopped", server.Name())
		err := server.Pause()
		jepsen.Sleep(ctx, plan.Back)
		s.note(trios, Healed, "%s goes on", server.Name())
		return errors.Join(err, server.Resume())
	case hitServerKill:
		s.note(trios, Broke, "%s is killed, and started again", server.Name())
		if err := s.kill(primary); err != nil {
			return err
		}
		err := s.revive(ctx, primary)
		s.note(trios, Healed, "%s serves again", server.Name())
		return err
	case hitFailover:
		s.failed = true
		replica := s.sys.Servers()[away[0]].Name()
		s.note(trios, Broke, "%s is killed, and %s comes back", server.Name(), replica)
		if err := s.kill(primary); err != nil {
			return err
		}
		if err := s.revive(ctx, away[0]); err != nil {
			s.note(trios, Healed, "%s does not serve yet: %v", replica, err)
		}
		ctx, cancel := context.WithTimeout(ctx, startPatience)
		defer cancel()
		if err := s.sys.Failover(ctx); err != nil {
			s.note(trios, Healed, "nobody has taken over: %v", err)
		} else {
			s.note(trios, Healed, "%s has taken over", s.sys.Servers()[s.primary(ctx)].Name())
		}
	case hitClockOne, hitClockMost, hitClockDrift:
		return s.hitClocks(ctx, f, trios, primary, plan)
	case hitDisk:
		return s.hitDisk(ctx, trios, away)
	case hitApart:
		return s.hitApart(ctx, f, trios, primary)
	}
	return nil
}

// restore repairs the system, or starts another one.
func (s *Stage) restore(ctx context.Context) error {
	for _, i := range slices.Clone(s.killed) {
		if !s.failed && s.revive(ctx, i) != nil {
			s.failed = true
		}
	}
	for _, i := range s.set {
		if s.setClock(i, 0) != nil {
			s.failed = true
		}
	}
	s.set = nil
	if !s.failed {
		return nil
	}
	if s.network != nil { // the new servers take the places of the old ones
		return errors.Join(s.sys.Close(), s.start(ctx))
	}
	// The clients in other languages are built for the first system and removed with the last one.
	old := s.sys
	err := s.start(ctx)
	return errors.Join(old.Close(), err)
}
