package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"lockkeeper/jepsen"
)

// processNemeses stop processes: members, for good or for a while, and clients.
func processNemeses() []nemesis {
	killLasts := seconds(0, 5)
	kills := []nemesis{
		killer("kill-one", "kill -9 of one member", func(n int, _ *rand.Rand) int { return 1 }),
		killer("kill-some", "kill -9 of as many as the others can do without", func(n int, _ *rand.Rand) int { return max((n-1)/2, 1) }),
		killer("kill-all", "kill -9 of all members", func(n int, _ *rand.Rand) int { return n }),
		{
			name: "kill-leader", help: "kill -9 of the leader",
			rest: seconds(3, 8), lasts: killLasts,
			plan: func(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
				leader := f.leader(ctx)
				if leader == nil {
					return nil, nil
				}
				return killAct(f, "kill-leader", rng, []*jepsen.Member{leader}, 1), nil
			},
		},
	}
	return append(append([]nemesis{oneOf("kill", "kill -9 and restart, one of the following kinds each time", kills)}, kills...),
		nemesis{
			name: "pause", help: "SIGSTOP of one or some members, for up to 8 s",
			rest: seconds(3, 8), lasts: seconds(0.5, 8), plan: planPause,
		},
		nemesis{
			name: "pause-client", help: "SIGSTOP of one client's process, for up to 10 s",
			rest: seconds(2, 6), lasts: seconds(0.5, 10), plan: planPauseClient,
		},
	)
}

// killer kills as many members as howMany says, of n.
func killer(name, help string, howMany func(n int, rng *rand.Rand) int) nemesis {
	return nemesis{
		name: name, help: help, rest: seconds(3, 8), lasts: seconds(0, 5),
		plan: func(_ context.Context, f *field, rng *rand.Rand) (*act, error) {
			all := f.cluster.Members()
			return killAct(f, name, rng, all, howMany(len(all), rng)), nil
		},
	}
}

// killAct kills up to n of the members.
func killAct(f *field, name string, rng *rand.Rand, from []*jepsen.Member, n int) *act {
	victims, release := f.claimMembers(name, rng, from, n)
	if len(victims) == 0 {
		return nil
	}
	return &act{
		on:    names(victims),
		begin: memberOps(jepsen.FKill, victims),
		end:   memberOps(jepsen.FRestart, victims),
		start: func(context.Context) error {
			return each(victims, func(m *jepsen.Member) error { return m.Kill() })
		},
		// It need not serve yet: others may have cut it off.
		mend: func(context.Context) error {
			return each(victims, func(m *jepsen.Member) error { return m.Start() })
		},
		release: release,
		harm:    stopped(victims),
	}
}

// stopped is the harm of members that do not run.
func stopped(members []*jepsen.Member) harm {
	var h harm
	for _, m := range members {
		h.down = append(h.down, m.ID)
	}
	return h
}

// each does something to all members, also if it fails for one.
func each(members []*jepsen.Member, do func(*jepsen.Member) error) error {
	var errs []error
	for _, m := range members {
		errs = append(errs, do(m))
	}
	return errors.Join(errs...)
}

func planPause(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
	all := f.cluster.Members()
	n, leads := 1+rng.IntN(max((len(all)-1)/2, 1)), rng.IntN(2) == 0
	from := all
	if leader := f.leader(ctx); leader != nil && leads {
		from = []*jepsen.Member{leader}
	}
	victims, release := f.claimMembers("pause", rng, from, n)
	if len(victims) == 0 {
		return nil, nil
	}
	return &act{
		on:    names(victims),
		begin: memberOps(jepsen.FPause, victims),
		end:   memberOps(jepsen.FResume, victims),
		start: func(ctx context.Context) error {
			return each(victims, func(m *jepsen.Member) error { return m.Pause(ctx) })
		},
		mend: func(context.Context) error {
			return each(victims, func(m *jepsen.Member) error { return m.Resume() })
		},
		release: release,
		harm:    stopped(victims),
	}, nil
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
