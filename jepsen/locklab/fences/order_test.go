package fences

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/recipes/fence"
)

// orders are all interleavings of the steps of two transactions, n[0] and n[1] of them: a sequence
// of 0 and 1 says which makes its next step.
func orders(n [2]int) (all [][]int) {
	if n == [2]int{} {
		return [][]int{nil}
	}
	for i := range n {
		if n[i] == 0 {
			continue
		}
		less := n
		less[i]--
		for _, o := range orders(less) {
			all = append(all, append([]int{i}, o...))
		}
	}
	return all
}

// A story is two transactions that show a token each, and the order of their steps.
type story struct {
	before int64 // the token that the row has; 0: there is no row
	tokens [2]int64
	early  [2]bool // which of them reads before its check
	order  []int
}

func (s story) String() string {
	return fmt.Sprintf("row %d, tokens %d, early reads %v, order %v", s.before, s.tokens, s.early, s.order)
}

// stories are all of them at a level. Where BEGIN locks nothing and fixes no snapshot, it is a part
// of the transaction's next step, unless every is set. Where BEGIN locks the database, an early
// read adds nothing.
func stories(l level, every bool) (all []story) {
	for _, tokens := range [][2]int64{{5, 9}, {5, 5}} {
		for _, early := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
			if l.shut && early != [2]bool{} && !every {
				continue
			}
			n := [2]int{3, 3} // check, write, commit
			for i := range n {
				if early[i] {
					n[i]++
				}
				if l.shut || every {
					n[i]++
				}
			}
			for _, before := range []int64{0, 5} {
				for _, order := range orders(n) {
					if tokens[0] == tokens[1] && (order[0] != 0 || early[0] && !early[1]) {
						continue // the mirror image of another
					}
					all = append(all, story{before, tokens, early, order})
				}
			}
		}
	}
	return all
}

// check is Table.CheckTx, or a twin of it with a bug.
type check func(ctx context.Context, tx *sql.Tx, resource string, token int64) error

// A stage plays stories, one after the other, in tables of its own.
type stage struct {
	*database
	level level
	db    *sql.DB
	// other is the level of the second of the two, otherDB its connections; both as above but where
	// levels are mixed.
	other    level
	otherDB  *sql.DB
	table    *fence.Table
	check    check
	name     string // of that table
	log      string // the table that is protected: resource, token, the number of rows before
	resource string // of the present story
	clock    int    // counts the beginnings and ends of steps
}

func newStage(t *testing.T, d *database, l level, name string) *stage {
	t.Helper()
	s := &stage{database: d, level: l, db: d.open(name, l.params), name: "fence_" + name, log: "log_" + name}
	s.other, s.otherDB = l, s.db
	var err error
	s.table, err = fence.NewTable(s.db, d.options(s.name))
	must(t, err)
	s.check = s.table.CheckTx
	must(t, s.table.Create(t.Context()))
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS " + s.log + " (resource VARCHAR(64) NOT NULL, token BIGINT NOT NULL, seen BIGINT NOT NULL)",
		"CREATE INDEX IF NOT EXISTS " + s.log + "_resource ON " + s.log + " (resource)",
	} {
		must(t, s.do(t.Context(), s.db, statement))
	}
	return s
}

// A holder is one of the two, in a goroutine of its own.
type holder struct {
	stage *stage
	level level
	db    *sql.DB
	token int64
	early bool
	tx    *sql.Tx
	steps []step

	due    int           // steps that the order has reached, and that have not begun
	done   chan error    // of the step that is under way; nil: none is
	next   int           // the step that begins next
	err    error         // the error that ended it early; it is rolled back
	seen   int64         // rows of the log before its own
	waited bool          // for the other's lock, or seemed to
	work   chan<- func() // to its goroutine

	all, checked, committed span
}

// A step is something that a holder does, which is over before its next one begins.
type step struct {
	do   func(context.Context) error
	span *span // nil: only the span of the whole transaction counts
}

// A span is when something began and ended, by the stage's clock; 0: it did not.
type span struct{ from, to int }

// before says that a was over when b began.
func (a span) before(b span) bool { return 0 < a.to && a.to < b.from }

// newHolder returns one that has as many steps as the order has for it.
func newHolder(s *stage, token int64, early bool, steps int) *holder {
	work := make(chan func())
	go func() {
		for f := range work {
			f()
		}
	}()
	h := &holder{stage: s, level: s.level, db: s.db, token: token, early: early, work: work}
	h.steps = []step{{do: h.begin}}
	if early {
		h.steps = append(h.steps, step{do: h.read})
	}
	h.steps = append(h.steps, step{h.check, &h.checked}, step{do: h.write}, step{h.commit, &h.committed})
	if steps < len(h.steps) {
		first := h.steps[1]
		h.steps = h.steps[1:]
		h.steps[0].do = func(ctx context.Context) error {
			if err := h.begin(ctx); err != nil {
				return err
			}
			return first.do(ctx)
		}
	}
	return h
}

func (h *holder) begin(ctx context.Context) (err error) {
	h.tx, err = h.db.BeginTx(ctx, &sql.TxOptions{Isolation: h.level.isolation})
	return err
}

// read fixes the snapshot, where there are any.
func (h *holder) read(ctx context.Context) (err error) {
	h.seen, err = h.stage.count(ctx, h.tx, "SELECT COUNT(*) FROM "+h.stage.log+" WHERE resource = ?", h.stage.resource)
	return err
}

func (h *holder) check(ctx context.Context) error {
	return h.stage.check(ctx, h.tx, h.stage.resource, h.token)
}

// write reads and writes the protected row. It conflicts with no other write: nothing but the fence
// keeps the two apart.
func (h *holder) write(ctx context.Context) error {
	if err := h.read(ctx); err != nil {
		return err
	}
	return h.stage.do(ctx, h.tx, "INSERT INTO "+h.stage.log+" (resource, token, seen) VALUES (?, ?, ?)", h.stage.resource, h.token, h.seen)
}

func (h *holder) commit(context.Context) error { return h.tx.Commit() }

// over says that it has no step left.
func (h *holder) over() bool { return h.err != nil || h.next == len(h.steps) && h.done == nil }

// start begins the next step. An error ends the transaction, as CheckTx demands.
func (h *holder) start(ctx context.Context) {
	step := h.steps[h.next]
	done := make(chan error, 1)
	h.due--
	h.next++
	h.done = done
	h.stage.clock++
	if step.span != nil {
		step.span.from = h.stage.clock
	}
	if h.all.from == 0 {
		h.all.from = h.stage.clock
	}
	h.work <- func() {
		err := step.do(ctx)
		if err != nil && h.tx != nil {
			_ = h.tx.Rollback()
		}
		done <- err
	}
}

// end takes the result of a step.
func (h *holder) end(err error) {
	h.err, h.done = err, nil
	h.stage.clock++
	if span := h.steps[h.next-1].span; span != nil {
		span.to = h.stage.clock
	}
	h.all.to = h.stage.clock
}

// grace is how long a step may take before it is taken to wait for the other transaction's lock. If
// it is only slow, the two steps run at once: another order, and a valid one.
const grace = 15 * time.Millisecond

// advance makes the steps that are due. One that waits for the other transaction goes on waiting.
func (h *holder) advance(ctx context.Context, other *holder) {
	for !h.over() && (h.done != nil || h.due > 0) {
		if h.done == nil {
			h.start(ctx)
		}
		var waits <-chan time.Time
		if last := h.next == len(h.steps); !other.over() && (!last || h.stage.commitWaits) {
			waits = time.After(grace)
		}
		select {
		case err := <-h.done:
			h.end(err)
		case <-waits:
			h.waited = true
			return
		}
	}
}

// play plays a story to its end.
func (s *stage) play(ctx context.Context, st story) (two [2]*holder) {
	steps := [2]int{}
	for _, i := range st.order {
		steps[i]++
	}
	for i := range two {
		two[i] = newHolder(s, st.tokens[i], st.early[i], steps[i])
		if i == 1 {
			two[i].level, two[i].db = s.other, s.otherDB
		}
		defer close(two[i].work)
	}
	for _, i := range st.order {
		two[i].due++
		two[i].advance(ctx, two[1-i])
		if two[i].over() {
			two[1-i].advance(ctx, two[i])
		}
	}
	for !two[0].over() || !two[1].over() { // both wait for each other, until the database sees it
		two[0].advance(ctx, two[1])
		two[1].advance(ctx, two[0])
	}
	return two
}

// figures count the outcomes of stories.
type figures struct {
	stories, both, stale, failed, waited, old atomic.Int64
}

func (f *figures) String() string {
	return fmt.Sprintf("%d orders: both committed %d, one refused as stale %d, one failed %d; one waited %d",
		f.stories.Load(), f.both.Load(), f.stale.Load(), f.failed.Load(), f.waited.Load())
}

// errUnsafe is the fault of a fence that does not exclude.
var errUnsafe = errors.New("not excluded")

// judge returns the fault at the end of a story.
func (s *stage) judge(ctx context.Context, st story, two [2]*holder, f *figures) (wrong error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	unsafe := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errUnsafe}, args...)...))
	}
	f.stories.Add(1)
	commits, largest := int64(0), st.before
	for i, h := range two {
		other := two[1-i]
		var stale *fence.StaleError
		switch refused := errors.As(h.err, &stale); {
		case h.err == nil:
			commits++
			largest = max(largest, h.token)
		case refused:
			f.stale.Add(1)
			if stale.Newest != other.token || other.token <= h.token || other.err != nil || h.checked.before(other.committed) {
				fault("token %d: %v, and it was not", h.token, h.err)
			}
		default:
			f.failed.Add(1)
			if h.all.before(other.all) || other.all.before(h.all) {
				fault("token %d: %v, and there was no other transaction", h.token, h.err)
			}
			if (h.level.current || !h.early) && other.err == nil && other.token > h.token && other.committed.before(h.checked) {
				fault("token %d: %v, want ErrStale", h.token, h.err)
			}
		}
	}
	if two[0].waited || two[1].waited {
		f.waited.Add(1)
	}
	if commits == 2 {
		f.both.Add(1)
		first, second := two[0], two[1]
		if after(first, second) {
			first, second = second, first
		}
		switch {
		case first.token > second.token:
			unsafe("token %d was committed after %d", second.token, first.token)
		case second.checked.before(first.committed):
			unsafe("token %d was accepted before the commit of %d, which had been accepted", second.token, first.token)
		case first.seen == 0 && second.seen == 0 && second.level.oldReads && second.early:
			f.old.Add(1)
		case first.seen != 0 || second.seen != 1:
			unsafe("token %d saw %d writes, and %d after it %d", first.token, first.seen, second.token, second.seen)
		}
	}
	if n, err := s.count(ctx, s.db, "SELECT COUNT(*) FROM "+s.log+" WHERE resource = ?", s.resource); err != nil || n != commits {
		fault("%d writes, %v, and %d commits", n, err, commits)
	}
	newest, err := s.count(ctx, s.db, "SELECT COALESCE(MAX(token), 0) FROM "+s.name+" WHERE resource = ?", s.resource)
	if err != nil || newest != largest {
		fault("%d is remembered, %v, and %d was committed", newest, err, largest)
	}
	return errors.Join(errs...)
}

// after says that a committed after b. If one commit waited for the other, the one that saw the
// other's write was the later one.
func after(a, b *holder) bool {
	if !a.committed.before(b.committed) && !b.committed.before(a.committed) {
		return a.seen > b.seen
	}
	return b.committed.before(a.committed)
}

// stages is the number of stories that are played at once. They wait most of the time.
const stages = 12

// playAll plays all stories at a level, with resources named after name, until maxFaults are wrong,
// and returns the faults.
func playAll(t *testing.T, d *database, l level, name string, twin *twin) (*figures, []error) {
	t.Helper()
	return playStories(t, d, [2]level{l, l}, stories(l, *every), name, twin)
}

// playStories plays stories of two transactions, each at a level of its own.
func playStories(t *testing.T, d *database, levels [2]level, all []story, name string, twin *twin,
) (*figures, []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var f figures
	var next, enough atomic.Int64
	var mu sync.Mutex
	var wrong []error
	var wg sync.WaitGroup
	for i := range stages {
		s := newStage(t, d, levels[0], fmt.Sprint(i))
		if levels[1] != levels[0] {
			s.other, s.otherDB = levels[1], d.open(fmt.Sprint(i), levels[1].params)
		}
		if twin != nil {
			s.check = twin.check(s)
		}
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(all)); n = next.Add(1) - 1 {
				st := all[n]
				s.resource = fmt.Sprintf("%s %d", name, n)
				err := error(nil)
				if st.before > 0 {
					err = s.table.Check(ctx, s.resource, st.before)
				}
				if err == nil {
					err = s.judge(ctx, st, s.play(ctx, st), &f)
				}
				if err == nil || twin != nil && !errors.Is(err, errUnsafe) {
					continue
				}
				mu.Lock()
				wrong = append(wrong, fmt.Errorf("%v: %w", st, err))
				mu.Unlock()
				if enough.Add(1) >= maxFaults {
					next.Store(int64(len(all)))
				}
			}
		})
	}
	wg.Wait()
	return &f, wrong
}

// testMixed has the two transactions run at different levels, each level first against each other.
// Of the orders it plays one in mixedPart, another one for each pair.
func testMixed(t *testing.T, d *database) {
	if d.commitWaits {
		return // SQLite's levels are modes of the whole database
	}
	pair, both := 0, int64(0)
	for _, a := range d.levels {
		for _, b := range d.levels {
			if a == b {
				continue
			}
			pair++
			var some []story
			for n, st := range stories(a, *every) {
				if *every || (n+pair)%mixedPart == 0 {
					some = append(some, st)
				}
			}
			name := a.name + " with " + b.name
			f, wrong := playStories(t, d, [2]level{a, b}, some, name, nil)
			for _, err := range wrong {
				t.Errorf("%s: %v", name, err)
			}
			if f.stale.Load()+f.failed.Load() == 0 {
				t.Errorf("%s: the orders show nothing: %v", name, f)
			}
			both += f.both.Load()
		}
	}
	if both == 0 {
		t.Error("no two were committed")
	}
}

// mixedPart is the share of the orders that testMixed plays, as a divisor.
const mixedPart = 16

const maxFaults = 5

var every = flag.Bool("fences.every", false, "TestTable also varies when transactions begin that lock nothing then")

// Two transactions that show tokens 5 and 9, or 5 twice, and write, in every order of their steps,
// at every isolation level, with the row of the resource there and missing. A write with a smaller
// token is never committed after a larger one, and nobody who is accepted misses a write of those
// before.
func testOrders(t *testing.T, d *database) {
	for _, l := range d.levels {
		t.Run(l.name, func(t *testing.T) {
			began := time.Now()
			f, wrong := playAll(t, d, l, l.name, nil)
			for _, err := range wrong {
				t.Error(err)
			}
			if f.both.Load() == 0 || f.stale.Load() == 0 || f.waited.Load() == 0 && !l.fails {
				t.Errorf("the orders show nothing: %v", f)
			}
			if l.oldReads && f.old.Load() == 0 {
				t.Error("nobody has read old data")
			}
			t.Logf("figures: %v; %.1f s", f, time.Since(began).Seconds())
		})
	}
}
