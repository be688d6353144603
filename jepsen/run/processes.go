package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"lockkeeper/jepsen"
)

// FSuspend, FWake: a member's machine is suspended, its monotonic clock with it; it goes on.
// (jepsen.Op.F)
const (
	FSuspend = "suspend"
	FWake    = "wake"
)

// A strike is a nemesis's fault of members that it chooses. No two strikes share a member.
type strike struct {
	// began and over are the operations in the history, one for each member.
	began, over string
	choose      choice
	start, mend step
	// forGood says that the member loses its data. There is one such member at a time: two of three
	// could not be rebuilt.
	forGood bool
	// weakens says that the members run, and may serve, until it is over.
	weakens bool
}

// A choice returns the members among which at most n are chosen by chance.
type choice func(ctx context.Context, f *field, rng *rand.Rand) (from []*jepsen.Member, n int)

// A step does something to all members that were chosen.
type step func(ctx context.Context, f *field, victims []*jepsen.Member) error

// nemesis makes a nemesis of a strike. usable may be nil.
func (s strike) nemesis(name, help string, rest, lasts span, usable func(*field) error) nemesis {
	plan := func(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
		from, n := s.choose(ctx, f, rng)
		victims, release := f.claimMembers(name, rng, from, n)
		if s.forGood && len(victims) > 0 {
			only, releaseOnly := f.claim(name, []any{"membership"})
			releaseMembers := release
			release = func() { releaseMembers(); releaseOnly() }
			if len(only) == 0 {
				release()
				return nil, nil
			}
		}
		if len(victims) == 0 {
			return nil, nil
		}
		var h harm
		for _, m := range victims {
			h.down = append(h.down, m.ID)
		}
		if s.weakens {
			h = harm{weak: h.down}
		}
		return &act{
			on: names(victims), begin: memberOps(s.began, victims), end: memberOps(s.over, victims), release: release,
			harm:  h,
			start: func(ctx context.Context) error { return s.start(ctx, f, victims) },
			mend:  func(ctx context.Context) error { return s.mend(ctx, f, victims) },
		}, nil
	}
	return nemesis{name: name, help: help, usable: usable, rest: rest, lasts: lasts, plan: plan}
}

// each is a step that does the same to each member, also if it fails for one.
func each(do func(ctx context.Context, f *field, m *jepsen.Member) error) step {
	return func(ctx context.Context, f *field, victims []*jepsen.Member) error {
		var errs []error
		for _, m := range victims {
			errs = append(errs, do(ctx, f, m))
		}
		return errors.Join(errs...)
	}
}

// inTurn are several steps, each of which ends before the next one begins.
func inTurn(steps ...step) step {
	return func(ctx context.Context, f *field, victims []*jepsen.Member) error {
		var errs []error
		for _, s := range steps {
			errs = append(errs, s(ctx, f, victims))
		}
		return errors.Join(errs...)
	}
}

// Faults of a member.
func killMember(_ context.Context, _ *field, m *jepsen.Member) error    { return m.Kill() }
func startMember(_ context.Context, _ *field, m *jepsen.Member) error   { return m.Start() }
func pauseMember(ctx context.Context, _ *field, m *jepsen.Member) error { return m.Pause(ctx) }
func resumeMember(_ context.Context, _ *field, m *jepsen.Member) error  { return m.Resume() }

// amongAll chooses among all members as many as howMany says, of n.
func amongAll(howMany func(n int, rng *rand.Rand) int) choice {
	return func(_ context.Context, f *field, rng *rand.Rand) ([]*jepsen.Member, int) {
		all := f.cluster.Members()
		return all, howMany(len(all), rng)
	}
}

// minority is the number of n members that the others can do without, at least 1.
func minority(n int) int { return max((n-1)/2, 1) }

// anyOne chooses one member, theLeader the one that leads.
var anyOne = amongAll(func(int, *rand.Rand) int { return 1 })

func theLeader(ctx context.Context, f *field, _ *rand.Rand) (from []*jepsen.Member, n int) {
	if m := f.leader(ctx); m != nil {
		from = append(from, m)
	}
	return from, 1
}

// someOrTheLeader chooses one or some members, half of the time the leader.
func someOrTheLeader(ctx context.Context, f *field, rng *rand.Rand) (from []*jepsen.Member, n int) {
	all := f.cluster.Members()
	n, leads := 1+rng.IntN(minority(len(all))), rng.IntN(2) == 0
	if from, _ := theLeader(ctx, f, rng); leads && len(from) > 0 {
		return from, 1
	}
	return all, n
}

// processNemeses stop processes: members, for good or for a while, and clients.
func processNemeses() []nemesis {
	kill := func(name, help string, choose choice) nemesis {
		return strike{
			began: jepsen.FKill, over: jepsen.FRestart, choose: choose,
			// It need not serve when it is mended: another nemesis may have cut it off.
			start: each(killMember), mend: each(startMember),
		}.nemesis(name, help, seconds(3, 8), seconds(0, 5), nil)
	}
	kills := oneOf("kill", "kill -9 and restart, one of the following kinds each time",
		kill("kill-one", "kill -9 of one member", anyOne),
		kill("kill-some", "kill -9 of as many as the others can do without",
			amongAll(func(n int, _ *rand.Rand) int { return minority(n) })),
		kill("kill-all", "kill -9 of all members", amongAll(func(n int, _ *rand.Rand) int { return n })),
		kill("kill-leader", "kill -9 of the leader", theLeader),
	)
	return append(kills,
		strike{
			began: jepsen.FPause, over: jepsen.FResume, choose: someOrTheLeader, start: each(pauseMember),
			mend: each(resumeMember),
		}.nemesis("pause", "SIGSTOP of one or some members, for up to 8 s", seconds(3, 8), seconds(0.5, 8), nil),
		strike{
			began: FSuspend, over: FWake, choose: someOrTheLeader,
			start: each(func(ctx context.Context, _ *field, m *jepsen.Member) error { return m.Suspend(ctx) }),
			mend:  each(func(_ context.Context, _ *field, m *jepsen.Member) error { return m.Wake() }),
		}.nemesis("suspend", "the machines of one or some members are suspended, for up to 8 s, and their clocks with them",
			seconds(3, 8), seconds(0.5, 8), onlyLockkeeper),
		nemesis{
			name: "pause-client", help: "SIGSTOP of one client's process, for up to 10 s",
			rest: seconds(2, 6), lasts: seconds(0.5, 10), plan: planPauseClient,
		},
	)
}

func planPauseClient(_ context.Context, f *field, rng *rand.Rand) (*act, error) {
	if len(f.clients) == 0 {
		return nil, fmt.Errorf("%w: there are no clients", errUnusable)
	}
	c := f.clients[rng.IntN(len(f.clients))]
	got, release := f.claim("pause-client", []any{c})
	if len(got) == 0 {
		return nil, nil
	}
	a := &act{
		on:      c.String(),
		start:   c.process.Pause,
		mend:    func(context.Context) error { return c.process.Resume() },
		release: release,
	}
	for _, worker := range c.workers {
		a.begin = append(a.begin, jepsen.Op{F: jepsen.FPause, Worker: worker})
		a.end = append(a.end, jepsen.Op{F: jepsen.FResume, Worker: worker})
	}
	return a, nil
}
