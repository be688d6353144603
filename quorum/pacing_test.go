package quorum

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Who was answered is waited for, and without that a frame follows another one at a distance, while there are enough commands for it to matter.
func TestPacing(t *testing.T) {
	now := time.Now()
	ms := time.Millisecond
	p := newPacing()
	check := func(what string, waiting, underWay int, want time.Duration) {
		t.Helper()
		if got := p.left(now, waiting, underWay); got != want {
			t.Errorf("%s: waits for %v, want %v", what, got, want)
		}
	}
	applied := func(asked, answered, underWay int) {
		p.applying(asked)
		p.answered += answered
		p.applied(now, underWay)
	}
	check("the first command", 1, 0, 0)
	p.sent(now, 1)
	check("few are on their way", 1, paceFew-1, 0)
	check("a frame has just left", 1, paceFew, paceGap)
	now = now.Add(paceGap)
	check("a frame left a while ago", 1, paceFew, 0)

	now = now.Add(ms - paceGap)
	applied(0, paceFew-1, 0)
	check("few were answered", 1, 0, 0)
	p.sent(now, 1)
	now = now.Add(ms)
	applied(0, paceFew, 0)
	check("one of those who were answered has come", 1, 0, gatherFlights*ms)
	now = now.Add(ms)
	check("half the time has passed", paceFew-1, 0, gatherFlights*ms-ms)
	check("all have come", paceFew, 0, 0)
	p.sent(now, 1)
	now = now.Add(ms)
	applied(2, paceFew, 5)
	check("those who waited before count, too", paceFew+1, 5, gatherFlights*ms)
	check("and all have come", paceFew+2, 5, 0)
	now = now.Add(ms)
	applied(0, 0, 5)
	check("others were answered", 1, 0, 0)

	// Who was answered early in an entry, and has left again before all of it is applied, is not waited for.
	p = newPacing()
	p.sent(now, 1)
	now = now.Add(ms)
	p.applying(2)
	p.answered = 5
	p.sent(now, 3) // both who waited, and one who was answered
	p.applied(now, 3)
	check("one of four has come", 1, 3, gatherFlights*ms)
	check("the four who have not left have come", 4, 3, 0)

	// What was on its way when others were answered has been since then, at least.
	p = newPacing()
	p.sent(now, 1)
	now = now.Add(ms)
	applied(0, paceFew, paceFew)
	now = now.Add(ms)
	applied(0, paceFew, 0)
	check("the second entry took a millisecond", 1, 0, gatherFlights*ms)
}

// farOutbox is an outbox whose leader is another member, and what has been sent to it.
type farOutbox struct {
	*outbox
	sent []string // Lock: mu, the outbox's
	n    uint64
}

func newFarOutbox(t *testing.T) *farOutbox {
	f := &farOutbox{outbox: newOutbox()}
	f.way(t.Context())
	return f
}

// way opens a way to the leader, until ctx ends.
func (f *farOutbox) way(ctx context.Context) {
	go func() {
		_ = f.handOver(ctx, true, func(cmds [][]byte) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.sent = append(f.sent, string(slices.Concat(cmds...)))
			return nil
		})
	}()
	synctest.Wait()
}

func (f *farOutbox) propose(t *testing.T, cmds string) {
	for _, c := range cmds {
		f.n++
		if err := f.add(t.Context(), key(f.n), []byte{byte(c)}); err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
}

// answer applies the commands from first to last.
func (f *farOutbox) answer(first, last uint64) {
	f.applying()
	for n := first; n <= last; n++ {
		f.settle(key(n))
	}
	f.applied()
	synctest.Wait()
}

func (f *farOutbox) check(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.sent, want) {
		t.Fatalf("sent %q, want %q", f.sent, want)
	}
}

// forget has the next check see only what is sent from now on.
func (f *farOutbox) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = nil
}

// Clients of a follower who have been answered share a frame to the leader, if they come in time.
func TestCommandsForAnotherMemberShareFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarOutbox(t)
		f.propose(t, "abcd") // one at a time, for nobody has been answered
		f.check(t, "a", "b", "c", "d")
		f.propose(t, "e")
		f.check(t, "a", "b", "c", "d")
		time.Sleep(paceGap)
		synctest.Wait()
		f.check(t, "a", "b", "c", "d", "e")
		time.Sleep(time.Millisecond - paceGap)
		f.answer(1, 5)
		f.forget()
		f.propose(t, "f")
		time.Sleep(time.Millisecond)
		f.propose(t, "ghi")
		f.check(t)
		f.propose(t, "j")
		f.check(t, "fghij")

		time.Sleep(time.Millisecond)
		f.answer(6, 10)
		f.propose(t, "kl") // the others have nothing more to ask for
		time.Sleep(gatherFlights * time.Millisecond)
		synctest.Wait()
		f.check(t, "fghij", "kl")

		// A command that waits only because others are on their way goes when these are answered, and nobody is waited for.
		f.propose(t, "mno")
		f.check(t, "fghij", "kl", "m", "n")
		f.answer(11, 14)
		f.check(t, "fghij", "kl", "m", "n", "o")

		// What is to be handed over again waits for nobody.
		f.answer(15, 15)
		f.propose(t, "pqrs")
		f.forget()
		f.propose(t, "t")
		f.rewind()
		synctest.Wait()
		f.check(t, "pqrst")
		f.close()
	})
}

// What waits for others when the way to the leader ends goes over the next one, at once and in order, and over none before that.
func TestCommandsThatWaitOutliveTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &farOutbox{outbox: newOutbox()}
		ctx, cut := context.WithCancel(t.Context())
		f.way(ctx)
		f.propose(t, "abcde")
		time.Sleep(paceGap)
		synctest.Wait()
		f.answer(1, 5) // they are waited for
		f.propose(t, "fg")
		cut()
		synctest.Wait()
		f.propose(t, "h")
		time.Sleep(2 * gatherMax)
		synctest.Wait()
		f.check(t, "a", "b", "c", "d", "e")
		f.rewind() // as the route does
		f.way(t.Context())
		f.check(t, "a", "b", "c", "d", "e", "fgh")
		f.close()
	})
}

// Wherever clients are who ask again as soon as they are answered, they get into one entry.
func TestClientsOfAllMembersGatherInOneEntry(t *testing.T) {
	const clients, turns = 15, 40
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		got := takeTurns(t, c, clients, turns, 50*time.Microsecond, func(i int) int { return i % 3 })
		if got > turns*5/4 {
			t.Errorf("%d entries for %d turns of %d clients", got, turns, clients)
		}
		for i, r := range c.reps {
			r.outbox.mu.Lock()
			if far := r.outbox.far; far != (i != l) {
				t.Errorf("commands of member %d are paced: %t", i+1, far)
			}
			r.outbox.mu.Unlock()
		}
	})
}
