package play

import (
	"context"
	"sync"
)

// aloneTimes is how often one client takes the lock alone; the first few do not count, so that
// connections are warm.
const (
	aloneTimes = 200
	warmTimes  = 20
)

// TurnsText is the text of the event after which all clients take turns.
const TurnsText = "all take turns"

// cost plays the story without a fault: A alone, and then all three at once. It returns the number
// of requests for an acquisition, alone and in turn, or -1.
func (s *Stage) cost(ctx context.Context, t *trio) (alone, inTurn float64) {
	if t.failed() {
		return -1, -1
	}
	loop := func(a *agent, times int) Event {
		e, err := a.do(ctx, Command{Do: "loop", Wait: s.Cost, Times: times})
		t.fail(err)
		return e
	}
	loop(t.a, warmTimes)
	t.history.Note("lab", Healed, "A is alone")
	alone = s.requests(ctx, t, func() { loop(t.a, aloneTimes) })
	t.history.Note("lab", Healed, "%s", TurnsText)
	times := s.Times
	if times > 0 {
		times = (times + 2) / 3
	}
	inTurn = s.requests(ctx, t, func() {
		var all sync.WaitGroup
		for _, a := range []*agent{t.a, t.b, t.c} {
			all.Go(func() { loop(a, times) })
		}
		all.Wait()
	})
	close(t.over)
	return alone, inTurn
}

// requests is the number of requests that the servers answer for each acquisition, or -1.
func (s *Stage) requests(ctx context.Context, t *trio, do func()) float64 {
	from, before := t.history.len(), s.sys.Requests(ctx)
	do()
	after, n := s.sys.Requests(ctx), t.history.count(from, Locked)
	if before < 0 || after < 0 || n == 0 {
		return -1
	}
	return float64(after-before) / float64(n)
}

// count is the number of events, from number from on.
func (h *History) count(from int, what string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events[from:] {
		if e.What == what {
			n++
		}
	}
	return n
}
