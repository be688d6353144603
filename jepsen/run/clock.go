package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"lockkeeper/jepsen"
)

// FClock, FClockRight: members' wall clocks are wrong; they are right again. (jepsen.Op.F)
const (
	FClock      = "clock"
	FClockRight = "clock-right"
)

// clockNemeses set clocks.
func clockNemeses() []nemesis {
	return []nemesis{{
		name: "clock", help: "the wall clocks of some members jump, by 100 ms to a year, some to and fro",
		usable: onlyLockkeeper, rest: seconds(2, 5), lasts: seconds(2, 8), plan: planClock,
	}}
}

// onlyLockkeeper says that the target cannot do something, if so.
func onlyLockkeeper(f *field) error {
	if f.target.Name != "lockkeeper" {
		return fmt.Errorf("%w: %s has nothing for that", errUnusable, f.target.Name)
	}
	return nil
}

// strobeInterval is how long a clock that jumps to and fro stays.
const strobeInterval = 50 * time.Millisecond

// planClock sets clocks that nobody else sets. It claims the clocks, not the members.
func planClock(_ context.Context, f *field, rng *rand.Rand) (*act, error) {
	all := f.cluster.Members()
	var victims []*jepsen.Member
	for _, i := range rng.Perm(len(all))[:1+rng.IntN(len(all))] {
		victims = append(victims, all[i])
	}
	// As many of each size: 100 ms, 1 s, ... a year.
	sizes := []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
		24 * time.Hour, 365 * 24 * time.Hour}
	wrong := sizes[rng.IntN(len(sizes))]
	if rng.IntN(2) == 0 {
		wrong = -wrong
	}
	strobe := rng.IntN(3) == 0
	set := func(d time.Duration) error {
		var errs []error
		for _, m := range victims {
			errs = append(errs, m.SetClock(d))
		}
		return errors.Join(errs...)
	}
	on := fmt.Sprintf("%s: %v", names(victims), wrong)
	if strobe {
		on += ", to and fro"
	}
	var flicker chan error
	stop := make(chan struct{})
	return &act{
		on: on, begin: memberOps(FClock, victims), end: memberOps(FClockRight, victims),
		start: func(context.Context) error {
			if !strobe {
				return set(wrong)
			}
			flicker = make(chan error, 1)
			go func() { flicker <- strobing(set, wrong, stop) }()
			return nil
		},
		mend: func(context.Context) error {
			close(stop)
			if flicker != nil {
				if err := <-flicker; err != nil {
					return err
				}
			}
			return set(0)
		},
	}, nil
}

// strobing sets the clocks wrong and right until stop is closed.
func strobing(set func(time.Duration) error, wrong time.Duration, stop <-chan struct{}) error {
	tick := time.NewTicker(strobeInterval)
	defer tick.Stop()
	for d := wrong; ; d = wrong - d {
		if err := set(d); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stop:
			return nil
		}
	}
}
