package play

import (
	"context"
	"fmt"
	"time"

	"lockkeeper/jepsen"
)

func (s *Stage) setClock(i int, ahead time.Duration) error {
	return s.sys.Servers()[i].SetClock(ahead)
}

// hitClocks sets the wall clock of one server or of a majority, the one that decides among them.
func (s *Stage) hitClocks(ctx context.Context, f Fault, trios []*trio, primary int, plan Plan) error {
	ahead := plan.Ahead
	if f.Name == "clock-back" {
		ahead = -ahead
	}
	servers := s.sys.Servers()
	n := len(servers)/2 + 1
	if f.hit == hitClockOne {
		n = 1
	}
	for i := range n {
		i = (primary + i) % len(servers)
		s.set = append(s.set, i)
		if f.hit == hitClockDrift {
			s.note(trios, Broke, "the wall clock of %s runs at twice the speed", servers[i].Name())
			continue
		}
		s.note(trios, Broke, "the wall clock of %s jumps by %+.1f s", servers[i].Name(), ahead.Seconds())
		if err := s.setClock(i, ahead); err != nil {
			return fmt.Errorf("play: clock of %s: %w", servers[i].Name(), err)
		}
	}
	if f.hit == hitClockDrift {
		return s.drift(ctx, plan.Hold)
	}
	return nil
}

// driftStep is how often a clock that drifts is set anew.
const driftStep = 10 * time.Millisecond

// drift has the clocks that are set run at twice the speed for some time. Then they run as they
// should, and are ahead.
func (s *Stage) drift(ctx context.Context, during time.Duration) error {
	began := time.Now()
	for since := time.Duration(0); since < during && ctx.Err() == nil; since = time.Since(began) {
		for _, i := range s.set {
			if err := s.setClock(i, since); err != nil {
				return fmt.Errorf("play: clock of %s: %w", s.sys.Servers()[i].Name(), err)
			}
		}
		jepsen.Sleep(ctx, driftStep)
	}
	return nil
}

// hitClientClock has A's wall clock jump ahead, and then back.
func (t *trio) hitClientClock(ctx context.Context) error {
	for _, ahead := range []time.Duration{t.plan.Ahead, -t.plan.Ahead} {
		t.history.Note("A", Broke, "its wall clock is %+.1f s off", ahead.Seconds())
		if err := t.a.host.clock.Set(ahead); err != nil {
			return fmt.Errorf("play: clock of A: %w", err)
		}
		jepsen.Sleep(ctx, t.plan.Hold/2)
	}
	return nil
}
