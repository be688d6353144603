package quorum

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

// Who was answered is waited for, and without that a frame follows another one at a distance, while there are enough commands for it to matter.
func TestPacing(t *testing.T) {
	now := time.Now()
	ms := time.Millisecond
	var p pacing
	check := func(what string, waiting, underWay int, want time.Duration) {
		t.Helper()
		if got := p.left(now, waiting, underWay); got != want {
			t.Errorf("%s: waits for %v, want %v", what, got, want)
		}
	}
	check("the first command", 1, 0, 0)
	p.sent(now)
	check("few are on their way", 1, paceFew-1, 0)
	check("a frame has just left", 1, paceFew, paceGap)
	now = now.Add(paceGap)
	check("a frame left a while ago", 1, paceFew, 0)

	now = now.Add(ms - paceGap)
	p.applied(now, paceFew-1, 0)
	check("few were answered", 1, 0, 0)
	p.sent(now)
	now = now.Add(ms)
	p.applied(now, paceFew, 0)
	check("one of those who were answered has come", 1, 0, gatherFlights*ms)
	now = now.Add(ms)
	check("half the time has passed", paceFew-1, 0, gatherFlights*ms-ms)
	check("all have come", paceFew, 0, 0)
	p.sent(now)
	p.asked = 2
	now = now.Add(ms)
	p.applied(now, paceFew, 5)
	check("those who waited before count, too", paceFew+1, 5, gatherFlights*ms)
	check("and all have come", paceFew+2, 5, 0)
	now = now.Add(ms)
	p.applied(now, 0, 5)
	check("others were answered", 1, 0, 0)

	// What was on its way when others were answered has been since then, at least.
	p = pacing{}
	p.sent(now)
	p.applied(now.Add(ms), paceFew, paceFew)
	now = now.Add(2 * ms)
	p.applied(now, paceFew, 0)
	check("the second entry took a millisecond", 1, 0, gatherFlights*ms)
}

// farOutbox is an outbox whose leader is another member, and what has been sent to it.
type farOutbox struct {
	*outbox
	sent []string
	n    uint64
}

func newFarOutbox(t *testing.T) *farOutbox {
	f := &farOutbox{outbox: newOutbox()}
	go func() {
		_ = f.handOver(t.Context(), true, func(cmds [][]byte) error {
			f.sent = append(f.sent, string(slices.Concat(cmds...)))
			return nil
		})
	}()
	synctest.Wait()
	return f
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
	if !slices.Equal(f.sent, want) {
		t.Fatalf("sent %q, want %q", f.sent, want)
	}
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
		f.sent = nil
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
		f.sent = nil
		f.propose(t, "t")
		f.rewind()
		synctest.Wait()
		f.check(t, "pqrst")
		f.close()
	})
}

// Wherever clients are who ask again as soon as they are answered, they get into one entry.
func TestClientsOfAllMembersGatherInOneEntry(t *testing.T) {
	const clients, turns = 15, 40
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		for i := range clients {
			c.recs[i%3].result(t, c.propose(i%3, createSession(wire.SessionID(i+1))))
		}
		for _, d := range c.disks {
			d.SetSyncTime(time.Millisecond)
		}
		before := c.reps[l].raft.LastIndex()
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				for n := range turns {
					time.Sleep(time.Duration(i) * 50 * time.Microsecond)
					c.recs[i%3].result(t, c.propose(i%3, sequential(wire.SessionID(i+1), uint64(n+1), "/n-")))
				}
			})
		}
		wg.Wait()
		if got := c.reps[l].raft.LastIndex() - before; got > turns*3/2 {
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
