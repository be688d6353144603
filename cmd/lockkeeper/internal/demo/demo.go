package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config says where the story is told.
type Config struct {
	Out io.Writer // gets lines of text
	// Command is how a user calls this program, for commands to copy.
	Command string
	// For ends the story; 0: it goes on until ctx ends.
	For time.Duration
}

// pauses are between the events of a story.
type pauses struct{ kill, back, cut, heal time.Duration }

// usualPauses have all events happen within half a minute.
var usualPauses = pauses{kill: 6 * time.Second, back: 4 * time.Second, cut: 3 * time.Second, heal: 2 * time.Second}

// handOnPatience is for how long a lock may take to get from a holder that is cut off to the next.
const handOnPatience = 30 * time.Second

// story is a run of the demo.
type story struct {
	Config
	pauses     pauses
	teller     *teller
	cluster    *cluster
	contenders []*contender
	granted    chan grantedAt
	lost       atomic.Int64 // grants that ended before their contenders released them
}

// grantedAt is the moment at which a contender got its lock.
type grantedAt struct {
	*contender
	at time.Time
}

// Run tells the story until ctx ends, and leaves nothing behind: no file, no port, no goroutine. It
// returns nil when ctx ends. Other errors are why the members could not start or stop.
func Run(ctx context.Context, cfg Config) error { return run(ctx, cfg, usualPauses) }

func run(ctx context.Context, cfg Config, p pauses) (err error) {
	dir, err := os.MkdirTemp("", "lockkeeper-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if cfg.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.For)
		defer cancel()
	}
	s := &story{Config: cfg, pauses: p, teller: newTeller(cfg.Out), granted: make(chan grantedAt, 16)}
	if s.cluster, err = newCluster(3, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cluster.close()) }()
	for _, m := range s.cluster.members {
		if err := s.cluster.start(m); err != nil {
			return err
		}
	}
	if err = s.play(ctx, dir); ctx.Err() != nil {
		err = nil
	}
	return err
}

// play tells the story, with contenders that have ended when it returns.
func (s *story) play(ctx context.Context, dir string) error {
	leader, err := s.cluster.leader(ctx)
	if err != nil {
		return err
	}
	s.introduce(leader, dir)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		for _, c := range s.contenders {
			c.session.Close()
		}
		s.teller.tell("the end: the contenders have released their locks, the members stop, and %s is removed", dir)
	}()
	for _, one := range []struct {
		role
		names []string
	}{{worker, []string{"anna", "ben", "carla"}}, {reader, []string{"reader-1", "reader-2"}},
		{writer, []string{"writer"}}, {candidate, []string{"blue", "green"}}} {
		for _, name := range one.names {
			c := &contender{role: one.role, name: name, story: s}
			if err := c.connect(); err != nil {
				return err
			}
			s.contenders = append(s.contenders, c)
			running.Go(func() { c.run(ctx) })
		}
	}
	for {
		for _, act := range []func(context.Context) error{s.kill, s.cut} {
			if err := act(ctx); err != nil {
				return err
			}
		}
	}
}

// introduce says what runs, and where to look at it.
func (s *story) introduce(leader *member, dir string) {
	var consoles []string
	for _, m := range s.cluster.members {
		consoles = append(consoles, "http://"+m.cfg.HTTP.Addr+"/")
	}
	servers := strings.Join(s.cluster.servers(), ",")
	s.teller.text(fmt.Sprintf(`Three members of lockkeeper run in this process, and %v leads. Ctrl-C ends it.

  console, of each member    %s
  in another terminal        %s locks -servers %s
  files, removed at the end  %s

  %-13s  a lock for one at a time: the others wait in a queue
  %-13s  a lock that readers share, and that the writer has alone
  %-13s  an election: one leads, the other stands by

Different here: a client learns that it is cut off before anybody else can get its lock. And each
lock comes with a fencing token, a number that grows, by which storage can refuse a late write.

`, leader, strings.Join(consoles, "  "), s.Command, servers, filepath.Clean(dir), reportPath, catalogPath, primaryPath))
}

// kill kills the leader and starts it again.
func (s *story) kill(ctx context.Context) error {
	if err := wait(ctx, s.pauses.kill); err != nil {
		return err
	}
	victim, err := s.cluster.leader(ctx)
	if err != nil {
		return err
	}
	begin, lost := time.Now(), s.lost.Load()
	s.teller.tell("*** %v, which leads, is killed: all of its connections break, without a goodbye", victim)
	s.cluster.kill(victim)
	next, err := s.cluster.leader(ctx)
	if err != nil {
		return err
	}
	s.teller.tell("*** %v leads, after %s", next, since(begin))
	if err := wait(ctx, s.pauses.back); err != nil {
		return err
	}
	begin = time.Now()
	if err := s.cluster.start(victim); err != nil {
		return err
	}
	if err := s.cluster.serving(ctx, victim); err != nil {
		return err
	}
	s.teller.tell("*** %v is back, with its files, and serves after %s; its clients went to the others meanwhile, "+
		"and lost %d locks", victim, since(begin), s.lost.Load()-lost)
	return wait(ctx, s.pauses.cut)
}

// cut cuts the holder of the mutex off, together with the member that it is connected to, until
// another contender has the lock.
func (s *story) cut(ctx context.Context) error {
	holder, lost, victim, err := s.isolate(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	s.teller.tell("*** %s, which holds %s, and %v are cut off from the other two (its session times out after %v)",
		holder.name, holder.path, victim, sessionTimeout)
	select {
	case <-lost:
	case <-ctx.Done():
		return ctx.Err()
	}
	told := time.Now()
	s.teller.tell("*** %s learns, %.1f s after the cut, that it has lost the lock; nobody else has it yet", holder.name,
		told.Sub(begin).Seconds())
	next, err := s.awaitOther(ctx, holder)
	if err != nil {
		return err
	}
	if next.at.Before(told) {
		return fmt.Errorf("%s got %s %v before %s learned that it had lost it", next.name, next.path, told.Sub(next.at),
			holder.name)
	}
	s.teller.tell("*** %s got the lock %.1f s after the cut: nobody held it for %.1f s, and no two at any time",
		next.name, next.at.Sub(begin).Seconds(), next.at.Sub(told).Seconds())
	if err := wait(ctx, s.pauses.heal); err != nil {
		return err
	}
	s.cluster.heal()
	holder.mend()
	s.teller.tell("*** the cut is healed: %v follows again, and %s has a new session", victim, holder.name)
	return nil
}

// isolate waits until a contender holds the mutex, and cuts it off with its member.
func (s *story) isolate(ctx context.Context) (*contender, <-chan struct{}, *member, error) {
	const pause = 10 * time.Millisecond
	for {
		for _, c := range s.contenders {
			if c.path != reportPath {
				continue
			}
			if server, lost, ok := c.keep(); ok {
				victim := s.cluster.at(server)
				s.cluster.isolate(victim)
				for len(s.granted) > 0 {
					<-s.granted // of before the cut
				}
				return c, lost, victim, nil
			}
		}
		if err := wait(ctx, pause); err != nil {
			return nil, nil, nil, err
		}
	}
}

// awaitOther waits until another contender gets the lock of holder.
func (s *story) awaitOther(ctx context.Context, holder *contender) (next grantedAt, err error) {
	timeout := time.NewTimer(handOnPatience)
	defer timeout.Stop()
	for {
		select {
		case c := <-s.granted:
			if c.contender != holder && c.path == holder.path {
				return c, nil
			}
		case <-timeout.C:
			return next, fmt.Errorf("nobody got %s within %v", holder.path, handOnPatience)
		case <-ctx.Done():
			return next, ctx.Err()
		}
	}
}

// since formats the time since begin.
func since(begin time.Time) string { return fmt.Sprintf("%.1f s", time.Since(begin).Seconds()) }
