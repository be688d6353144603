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

// cost plays the story without a fault: A alone, and then all three at once. It returns how many
// requests an acquisition of A took, or -1.
func (s *Stage) cost(ctx context.Context, t *trio) (requests float64) {
	if t.failed() {
		return -1
	}
	loop := func(a *agent, times int) Event {
		e, err := a.do(ctx, Command{Do: "loop", Wait: s.Cost, Times: times})
		t.fail(err)
		return e
	}
	loop(t.a, warmTimes)
	from := t.history.len()
	before := s.sys.Requests(ctx)
	t.history.Note("lab", Healed, "A is alone")
	loop(t.a, aloneTimes)
	after := s.sys.Requests(ctx)
	if n := t.history.count(from, "A", Locked); before >= 0 && n > 0 {
		requests = float64(after-before) / float64(n)
	} else {
		requests = -1
	}
	t.history.Note("lab", Healed, "%s", TurnsText)
	times := s.Times
	if times > 0 {
		times = (times + 2) / 3
	}
	var all sync.WaitGroup
	for _, a := range []*agent{t.a, t.b, t.c} {
		all.Go(func() { loop(a, times) })
	}
	all.Wait()
	close(t.over)
	return requests
}

// count is how many events of a client there are, from number from on.
func (h *History) count(from int, who, what string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events[from:] {
		if e.Who == who && e.What == what {
			n++
		}
	}
	return n
}
