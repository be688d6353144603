package splitbrain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"lockkeeper/jepsen"
)

// A Config selects the cases and the target.
type Config struct {
	// Target is the server software.
	Target jepsen.Target
	// Cases are played in their order; those that follow each other and have clusters of the same
	// shape share one.
	Cases []Case
	// Tick is tickTime, DefaultTick if zero. Session is the clients' session timeout, four ticks if
	// zero; the servers keep it between 2 and 20 ticks.
	Tick, Session time.Duration
	// Patience is how long to wait for anything that should happen; DefaultPatience if zero.
	Patience time.Duration
	// Watch is how long a case is watched at least; one and a half session timeouts if zero.
	Watch time.Duration
	// Promises says that the target promises two things more than ZooKeeper does: a client is told
	// that it is cut off before its lock is given away, and members that hold the same show the
	// same digest (four-letter word hash). If not, a violation of them is a note.
	Promises bool
	// Extra are more lines for every member's zoo.cfg.
	Extra []string
	// Again is the command line that plays the same.
	Again string
	// Dir is for the members' files. It must exist.
	Dir string
	// Progress is called with each result as it comes, from the goroutine of Play; nil for nobody.
	Progress func(*Result)
}

// The defaults of a Config.
const (
	DefaultTick     = 500 * time.Millisecond
	DefaultPatience = time.Minute
)

// WithDefaults fills in zero fields.
func (cfg Config) WithDefaults() Config {
	cfg.Tick = cmp.Or(cfg.Tick, DefaultTick)
	cfg.Session = cmp.Or(cfg.Session, 4*cfg.Tick)
	cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	cfg.Watch = cmp.Or(cfg.Watch, cfg.Session*3/2)
	return cfg
}

// Play plays all cases. It returns what it has of them also with an error, which kept it from going
// on; that a case did not come as predicted is no error. When it returns, no process and no network
// is left.
func Play(ctx context.Context, cfg Config) (d *Document, err error) {
	cfg = cfg.WithDefaults()
	d = &Document{Config: cfg, Began: time.Now()}
	defer func() { d.Took = time.Since(d.Began) }()
	for number, cases := 1, cfg.Cases; len(cases) > 0; number++ {
		same := 1
		for same < len(cases) && cases[same].Cluster == cases[0].Cluster {
			same++
		}
		results, err := playShape(ctx, cfg, number, cases[:same])
		d.Results = append(d.Results, results...)
		if err != nil {
			return d, err
		}
		cases = cases[same:]
	}
	return d, nil
}

// A lab is a cluster on a network of its own.
type lab struct {
	cfg     Config
	shape   Group
	network *jepsen.Network
	cluster *jepsen.Cluster
	played  int
}

// playShape plays cases that have one shape.
func playShape(ctx context.Context, cfg Config, number int, cases []Case) (results []*Result, err error) {
	l := &lab{cfg: cfg, shape: cases[0].Cluster}
	dir := filepath.Join(cfg.Dir, fmt.Sprintf("cluster%d", number))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("splitbrain: %w", err)
	}
	if l.network, err = jepsen.NewNetwork(ctx, l.shape.size(), dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.network.Close()) }()
	starting, cancel := context.WithTimeout(ctx, cfg.Patience)
	defer cancel()
	l.cluster, err = jepsen.StartCluster(starting, jepsen.ClusterConfig{
		Target: cfg.Target, Members: l.shape.size(), Observers: l.shape.Observers, Dir: dir, TickTime: cfg.Tick,
		Places: l.network.Places(), Extra: cfg.Extra,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.cluster.Close()) }()
	for _, c := range cases {
		result, err := l.play(ctx, c)
		for tries := 1; errors.Is(err, errNotReady) && tries < mostTries; tries++ {
			result, err = l.play(ctx, c)
		}
		if err != nil {
			return results, fmt.Errorf("splitbrain: %v voters, %s: %w\n%s", c.Cluster, c, err, l.cluster.Logs())
		}
		complaints, err := l.cluster.Complaints()
		if err != nil {
			return results, err
		}
		for _, text := range complaints {
			result.check("no member has trouble of its own", false, text)
		}
		results = append(results, result)
		if cfg.Progress != nil {
			cfg.Progress(result)
		}
	}
	return results, nil
}

// errNotReady is that something moved before the break was made: a busy machine changes its
// leader, or loses a client's session, without being asked.
var errNotReady = errors.New("something moved before the break")

// mostTries is how often a case is begun.
const mostTries = 5

// play plays one case: everything in place, the break, a look until all has come as predicted or
// patience is over, the healing, and a comparison of all replicas.
func (l *lab) play(ctx context.Context, c Case) (*Result, error) {
	l.played++
	leader, err := l.settle(ctx)
	if err != nil {
		return nil, err
	}
	sides, dead := c.assign(leader.ID)
	s := &stage{
		session: l.cfg.Session, root: fmt.Sprintf("/case-%d", l.played), members: l.cluster.Members(),
		leader: leader.ID, sides: sides, dead: dead, rec: newRecorder(sides),
	}
	defer s.close()
	if err := l.prepare(ctx, s); err != nil {
		return nil, err
	}
	s.rec.breakBegins() // observations count from here on
	if now, err := l.settle(ctx); err != nil {
		return nil, err
	} else if now != leader {
		return nil, fmt.Errorf("%w: %s led, %s leads", errNotReady, leader, now)
	}
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	if err := l.breakCluster(s); err != nil {
		return nil, err
	}
	r := &Result{Case: c, Name: c.String(), LeaderBefore: leader.ID, Dead: dead}
	stop := s.watch(ctx)
	l.look(ctx, c, s.rec)
	stop()
	s.rec.finish(r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.mend(ctx, s); err != nil {
		return nil, err
	}
	s.close()
	if err := l.agree(ctx, s, r); err != nil {
		return nil, err
	}
	judge(r, l.cfg.Promises)
	return r, nil
}

// settle waits until every member serves and one of them leads.
func (l *lab) settle(ctx context.Context) (*jepsen.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	if err := l.cluster.AwaitServing(ctx); err != nil {
		return nil, err
	}
	return l.cluster.AwaitLeader(ctx)
}

// prepare brings the clients into their places.
func (l *lab) prepare(ctx context.Context, s *stage) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	if err := s.dial(ctx); err != nil {
		return err
	}
	return s.set(ctx)
}

// breakCluster kills those that are to die, then cuts the others apart. Observations count from
// here on.
func (l *lab) breakCluster(s *stage) error {
	errs := make([]error, len(s.dead)+1)
	var kills sync.WaitGroup
	for i, id := range s.dead {
		kills.Go(func() { errs[i] = s.members[id-1].Kill() })
	}
	kills.Wait()
	if len(s.sides) > 1 {
		errs[len(s.dead)] = jepsen.Partition(l.network, s.sides)
	}
	s.rec.breakEnds()
	return errors.Join(errs...)
}

// look waits until the expected events have come, or patience is over; in any case for cfg.Watch,
// for unexpected ones could still come.
func (l *lab) look(ctx context.Context, c Case, rec *recorder) {
	least, done := context.WithTimeout(ctx, l.cfg.Watch)
	defer done()
	patience, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	rec.until(patience, func(sides []Seen, told map[int]Instant) bool {
		for i, s := range sides {
			for _, id := range s.Members {
				if !c.Quorum(i) && !(told[id].Came() && s.Stopped[id].Came()) {
					return false
				}
			}
		}
		goes := c.Goes()
		if goes < 0 {
			return true
		}
		s := sides[goes]
		return len(s.Leading) == 1 && s.Writes > 0 && s.Lock.Came() &&
			len(s.Inherited) == c.Cluster.size()-len(s.Members)
	})
	<-least.Done()
	jepsen.Sleep(ctx, l.cfg.Session/8) // so that the end can be seen in the picture
}

// mend makes the network whole and starts the dead again.
func (l *lab) mend(ctx context.Context, s *stage) error {
	if err := jepsen.HealAll(l.network); err != nil {
		return err
	}
	for _, id := range s.dead {
		if err := s.members[id-1].Start(); err != nil {
			return err
		}
	}
	_, err := l.settle(ctx)
	return err
}

// digestPatience is how long members that promise no equal digests may take to show one.
const digestPatience = time.Second

// agree reads all replicas and removes the nodes of the case.
func (l *lab) agree(ctx context.Context, s *stage, r *Result) error {
	reading, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	replicas, err := readReplicas(reading, l.cluster.Members(), l.cfg.Session)
	for _, replica := range replicas {
		err = errors.Join(err, s.checkNumbers(replica))
	}
	if l.cfg.Promises {
		_, digests := l.cluster.AwaitAgreement(reading)
		err = errors.Join(err, digests)
	} else {
		brief, cancel := context.WithTimeout(reading, digestPatience)
		defer cancel()
		if _, digests := l.cluster.AwaitAgreement(brief); errors.Is(digests, jepsen.ErrReplicasDiffer) {
			r.Notes = append(r.Notes, "The trees are equal, and yet members show different digests: "+digests.Error())
		}
	}
	if r.Replicas = replicas; err != nil {
		r.Differ = err.Error()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := dial(strings.Split(l.cluster.Servers(), ","), l.cfg.Session, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.remove(reading, s.root)
}
