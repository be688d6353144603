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

// shrinker looks for the shortest sequence of steps about which the servers still differ. It need not be the same
// difference; any will do.
type shrinker struct {
	ar       *arena
	mood     mood // its settings count
	deadline time.Time
	duel     *duel // nil, or two servers in the same, empty state
	replays  int

	best []*Step
	diff *difference
}

// shrink shortens steps, which are known to end in diff, until nothing can be left out any more or the
// time is over.
func (ar *arena) shrink(ctx context.Context, m mood, steps []*Step, diff *difference, budget time.Duration) (*shrinker, error) {
	s := &shrinker{ar: ar, mood: m, best: steps, diff: diff, deadline: time.Now().Add(budget)}
	defer func() {
		if s.duel != nil {
			_ = s.duel.close()
		}
	}()
	// What comes before it is there already; only the last step of all can be the walk.
	if !s.try(ctx, steps) {
		return s, errors.New("differ: the difference does not come again")
	}
	for size := -1; size != s.size() && !s.over(ctx); {
		size = s.size()
		s.dropSteps(ctx)
		s.dropRequests(ctx)
		s.dropParts(ctx)
	}
	return s, nil
}

// size is how many things there are to leave out.
func (s *shrinker) size() int {
	n := len(s.best)
	for _, st := range s.best {
		n += len(st.Requests)
		for i := range st.Requests {
			if q, ok := st.Requests[i].Body.(wire.MultiRequest); ok {
				n += len(q.Ops)
			}
		}
	}
	return n
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
	s.best, s.diff = slices.Clone(steps), diff
	// What comes behind the difference is not needed.
	for i, st := range s.best {
		if st == diff.step {
			s.best = s.best[:i+1]
		}
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
		// Behind a difference this may fail, as the states may differ. Most often it does not, and starting servers is
		// what takes time.
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

// dropRequests leaves out requests of steps that have several, or that have them behind a handshake.
func (s *shrinker) dropRequests(ctx context.Context) {
	for i := len(s.best) - 1; i >= 0; i-- {
		for k := len(s.best[min(i, len(s.best)-1)].Requests) - 1; k >= 0 && !s.over(ctx); k-- {
			if i >= len(s.best) || k >= len(s.best[i].Requests) {
				break
			}
			shorter := *s.best[i]
			shorter.Requests = slices.Delete(slices.Clone(shorter.Requests), k, k+1)
			s.try(ctx, replaced(s.best, i, &shorter))
		}
		i = min(i, len(s.best))
	}
}

// dropParts leaves out parts of multis.
func (s *shrinker) dropParts(ctx context.Context) {
	for i := len(s.best) - 1; i >= 0 && i < len(s.best); i-- {
		for k := range s.best[i].Requests {
			s.dropPartsOf(ctx, i, k)
			if i >= len(s.best) {
				return
			}
		}
	}
}

func (s *shrinker) dropPartsOf(ctx context.Context, i, k int) {
	for p := 0; !s.over(ctx) && i < len(s.best) && k < len(s.best[i].Requests); {
		q, ok := s.best[i].Requests[k].Body.(wire.MultiRequest)
		if !ok || p >= len(q.Ops) {
			return
		}
		shorter := *s.best[i]
		shorter.Requests = slices.Clone(shorter.Requests)
		shorter.Requests[k].Body = wire.MultiRequest{Ops: slices.Delete(slices.Clone(q.Ops), p, p+1)}
		if !s.try(ctx, replaced(s.best, i, &shorter)) {
			p++
		}
	}
}

func replaced(steps []*Step, i int, st *Step) []*Step {
	steps = slices.Clone(steps)
	steps[i] = st
	return steps
}

// String is the sequence, as a person would write it down, and what comes of it.
func (s *shrinker) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps, after %d replays, with %s:\n", len(s.best), s.replays, strings.Join(settings(s.mood), " "))
	for _, st := range s.best {
		fmt.Fprintf(&b, "%4d %v\n", st.ID, st)
	}
	fmt.Fprintf(&b, "%v", s.diff)
	return b.String()
}

// reset takes both servers back to the state in which they were opened, as far as requests can do that.
func (d *duel) reset(ctx context.Context) error {
	quiet := func(st *Step) ([]stream, error) {
		from, _, err := d.both(ctx, st)
		return from, err
	}
	for i := range players {
		if d.a.slots[i].id == 0 {
			continue
		}
		if _, err := quiet(&Step{ID: -1, Kind: Attach, Slot: i, Handshake: Handshake{TimeoutMs: sessionTimeoutMs},
			Requests: []Request{newRequest(wire.OpCloseSession, nil)}}); err != nil {
			return err
		}
	}
	paths, err := d.tree(quiet)
	if err != nil {
		return err
	}
	clean := &Step{ID: -1, Slot: observer}
	for _, path := range slices.Backward(paths) {
		clean.Requests = append(clean.Requests, newRequest(wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1}))
	}
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"} {
		acl := wire.OpenACL
		if path == "/zookeeper/config" {
			acl = []wire.ACL{entry(wire.PermRead, "world", "anyone")}
		}
		clean.Requests = append(clean.Requests,
			newRequest(wire.OpSetACL, wire.SetACLRequest{Path: path, ACL: acl, Version: -1}),
			newRequest(wire.OpSetData, wire.SetDataRequest{Path: path, Data: []byte{}, Version: -1}))
	}
	if _, err := quiet(clean); err != nil {
		return err
	}
	d.cmp = newComparer()
	for _, s := range []*side{d.a, d.b} {
		s.marks = nil
	}
	for i := range players {
		st := &Step{ID: -1, Kind: Connect, Slot: i, Handshake: Handshake{TimeoutMs: sessionTimeoutMs, HasReadOnly: true}}
		if diff, err := d.do(ctx, st); diff != nil || err != nil {
			return fmt.Errorf("differ: reset: %v %w", diff, err)
		}
	}
	if diff, err := d.walk(ctx); diff != nil || err != nil {
		return fmt.Errorf("differ: reset: %v %w", diff, err)
	}
	return nil
}

// tree lists all paths, parents first.
func (d *duel) tree(quiet func(*Step) ([]stream, error)) ([]string, error) {
	var all []string
	for level := []string{"/"}; len(level) > 0; {
		st := &Step{ID: -1, Slot: observer}
		for _, path := range level {
			st.Requests = append(st.Requests, newRequest(wire.OpGetChildren, wire.PathWatchRequest{Path: path}))
		}
		from, err := quiet(st)
		if err != nil {
			return nil, err
		}
		level = nil
		for _, it := range from[0].items {
			var q wire.GetChildrenResponse
			if it.request == nil || wire.Decode(it.body, &q) != nil {
				continue
			}
			for _, name := range q.Children {
				level = append(level, strings.TrimSuffix(it.request.path(), "/")+"/"+name)
			}
		}
		all = append(all, level...)
	}
	return all, nil
}
