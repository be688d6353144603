package quorum

import "time"

const (
	// gatherMax bounds how long commands wait for others, and so do gatherFlights, how many times as long as it was under way what
	// has been answered, and gatherEach, how long for each command that is expected, the longer of the two: many clients need
	// longer to hear their answers and to ask again, the more so where they share a machine with the members.
	gatherMax     = 8 * time.Millisecond
	gatherFlights = 2
	gatherEach    = 80 * time.Microsecond
	// gatherRestMax is how many times as long as was waited nobody is waited for, at the most, after waiting has brought too little.
	gatherRestMax = 32
)

// gathering says how long commands wait in the batcher when an entry is through and no other is under way, and in the outbox of a
// follower when commands of its own have been applied. Those who have just been answered are likely to ask for more at once. If what has
// come in the meantime went without them, there would be two groups that take turns, each half as large, and each would wait for the
// other; and what an entry costs hardly depends on what it holds.
//
// Whether they do ask at once only time can tell: if they did not in time, nobody is waited for for as long again, and each time twice as
// many times as long. So waiting that is in vain each time takes one thirty-third of the time in the end.
type gathering struct {
	few     int // fewer commands than that wait for nobody
	waiting bool
	want    int           // so many commands are enough
	bound   time.Duration // for how long they are waited for,
	until   time.Time     // which is until then
	again   time.Time     // before that nobody is waited for
	rest    int           // again was so many times bound away; 0: waiting was worth it
}

// landed takes note of an answer to so many commands that were under way for so long, while so many were waiting in the queue when it was
// about to come: an entry is through and none is under way, or a follower has applied commands of its own.
func (g *gathering) landed(now time.Time, flight time.Duration, commands, queued int) {
	g.waiting = false
	if queued+commands < g.few || now.Before(g.again) {
		return
	}
	g.waiting = true
	g.want = queued + commands - commands/16
	g.bound = min(max(gatherFlights*flight, time.Duration(g.want)*gatherEach), gatherMax)
	g.until = now.Add(g.bound)
}

// left is how long those in the queue are to wait for more; 0: they are not.
func (g *gathering) left(now time.Time, queued int) time.Duration {
	if !g.waiting {
		return 0
	}
	left := g.until.Sub(now)
	switch {
	case queued >= g.want:
		g.waiting, g.rest = false, 0
		return 0
	case left <= 0:
		g.waiting = false
		g.rest = min(max(1, 2*g.rest), gatherRestMax)
		g.again = now.Add(time.Duration(g.rest) * g.bound)
		return 0
	}
	return left
}
