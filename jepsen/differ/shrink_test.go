package differ

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/wire"
)

// shrinker looks for the shortest sequence of steps about which the servers still differ. It need
// not be the same difference; any will do.
type shrinker struct {
	ar       *arena
	mood     mood // its settings count
	deadline time.Time
	duel     *duel // nil, or two servers in the same, empty state
	replays  int
	kept     int // the replays that still made a difference

	best []*Step
	diff *difference
}

// shrink shortens steps, which are known to end in diff, until nothing can be left out any more or
// the time is over.
func (ar *arena) shrink(ctx context.Context, m mood, steps []*Step, diff *difference,
	budget time.Duration) (*shrinker, error) {
	s := &shrinker{ar: ar, mood: m, best: steps, diff: diff, deadline: time.Now().Add(budget)}
	defer func() {
		if s.duel != nil {
			_ = s.duel.close()
		}
	}()
	// The steps before it are there already; only the last step of all can be the walk.
	if !s.try(ctx, steps) {
		return s, errors.New("differ: the difference does not come again")
	}
	for before := -1; before != s.kept && !s.over(ctx); {
		before = s.kept
		s.dropSteps(ctx)
		s.dropParts(ctx)
	}
	return s, nil
}

func (s *shrinker) over(ctx context.Context) bool {
	return ctx.Err() != nil || time.Now().After(s.deadline)
}

// try replays steps, and keeps them if the servers differ.
func (s *shrinker) try(ctx context.Context, steps []*Step) bool {
	s.replays++
	diff, err := s.replay(ctx, steps)
	if err != nil || diff == nil {
		return false
	}
	s.kept++
	s.best, s.diff = slices.Clone(steps), diff
	// The steps behind the difference are not needed.
	if i := slices.Index(s.best, diff.step); i >= 0 {
		s.best = s.best[:i+1]
	}
	return true
}

// replay does steps to servers that are as good as fresh.
func (s *shrinker) replay(ctx context.Context, steps []*Step) (diff *difference, err error) {
	if s.duel == nil {
		if s.duel, err = s.ar.open(ctx, s.mood); err != nil {
			return nil, err
		}
	}
	diff, err = s.duel.play(ctx, steps)
	if err == nil && !slices.ContainsFunc(steps, func(st *Step) bool { return st.Kind == Restart }) {
		// Behind a difference this may fail, as the states may differ. Most often it does not, and
		// starting servers takes time.
		if s.duel.reset(ctx) == nil {
			return diff, nil
		}
	}
	err = errors.Join(err, s.duel.close())
	s.duel = nil
	return diff, err
}

// play does steps and compares the whole trees in the end.
func (d *duel) play(ctx context.Context, steps []*Step) (*difference, error) {
	for _, st := range steps {
		if diff, err := d.do(ctx, st); diff != nil || err != nil {
			return diff, err
		}
	}
	return d.walk(ctx)
}

// dropSteps leaves out longer and shorter pieces of the sequence.
func (s *shrinker) dropSteps(ctx context.Context) {
	for size := len(s.best) / 2; size > 0; size /= 2 {
		for at := len(s.best) - size; at > -size && !s.over(ctx); at -= size {
			from := max(at, 0)
			if end := min(at+size, len(s.best)); end > from {
				s.try(ctx, slices.Delete(slices.Clone(s.best), from, end))
			}
			at = min(at, len(s.best))
		}
	}
}

// dropParts leaves out requests of steps that have several, or that have them behind a handshake,
// and parts of multis.
func (s *shrinker) dropParts(ctx context.Context) {
	for at := 0; !s.over(ctx); {
		shorter := withoutPart(s.best, at)
		if shorter == nil {
			return
		}
		if !s.try(ctx, shorter) {
			at++
		}
	}
}

// withoutPart leaves out a request, or a part of a multi: the nth of them all. It returns nil when
// there are fewer.
func withoutPart(steps []*Step, n int) []*Step {
	for i, st := range steps {
		for k, r := range st.Requests {
			multi, _ := r.Body.(wire.MultiRequest)
			if n > len(multi.Ops) {
				n -= 1 + len(multi.Ops)
				continue
			}
			shorter := *st
			shorter.Requests = slices.Clone(st.Requests)
			if n == 0 {
				shorter.Requests = slices.Delete(shorter.Requests, k, k+1)
			} else {
				shorter.Requests[k].Body = wire.MultiRequest{Ops: slices.Delete(slices.Clone(multi.Ops), n-1, n)}
			}
			steps = slices.Clone(steps)
			steps[i] = &shorter
			return steps
		}
	}
	return nil
}

// String is the sequence, as a person would write it down, and its result.
func (s *shrinker) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps, after %d replays, with %s:\n", len(s.best), s.replays,
		strings.Join(settings(s.mood), " "))
	for _, st := range s.best {
		fmt.Fprintf(&b, "%4d %v\n", st.ID, st)
	}
	fmt.Fprintf(&b, "%v", s.diff)
	return b.String()
}

// reset takes both servers back to the state in which they were opened, as far as requests can do
// that.
func (d *duel) reset(ctx context.Context) error {
	for i := range players {
		if d.a.slots[i].id == 0 {
			continue
		}
		if _, _, err := d.both(ctx, &Step{ID: -1, Kind: Attach, Slot: i,
			Handshake: Handshake{TimeoutMs: sessionTimeoutMs},
			Requests:  []Request{newRequest(wire.OpCloseSession, nil)}}); err != nil {
			return err
		}
	}
	clean := &Step{ID: -1, Slot: observer}
	if err := d.tree(func(level []string) ([]stream, error) {
		step := &Step{ID: -1, Slot: observer}
		for _, path := range level {
			step.Requests = append(step.Requests, newRequest(wire.OpGetChildren, wire.PathWatchRequest{Path: path}))
			if path != "/" {
				clean.Requests = append(clean.Requests,
					newRequest(wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1}))
			}
		}
		from, _, err := d.both(ctx, step)
		return from, err
	}); err != nil {
		return err
	}
	slices.Reverse(clean.Requests)
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"} {
		acl := wire.OpenACL
		if path == "/zookeeper/config" {
			acl = []wire.ACL{entry(wire.PermRead, "world", "anyone")}
		}
		clean.Requests = append(clean.Requests,
			newRequest(wire.OpSetACL, wire.SetACLRequest{Path: path, ACL: acl, Version: -1}),
			newRequest(wire.OpSetData, wire.SetDataRequest{Path: path, Data: []byte{}, Version: -1}))
	}
	if _, _, err := d.both(ctx, clean); err != nil {
		return err
	}
	d.cmp = newComparer()
	d.a.marks, d.b.marks = nil, nil
	steps := make([]*Step, players)
	for i := range steps {
		steps[i] = &Step{ID: -1, Kind: Connect, Slot: i, Handshake: usualHandshake}
	}
	if diff, err := d.play(ctx, steps); diff != nil || err != nil {
		return fmt.Errorf("differ: reset: %v %w", diff, err)
	}
	return nil
}
