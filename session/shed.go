package session

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// shedStep is the longest time between two connections that are shed: few are done soon.
	shedStep = 50 * time.Millisecond
	// shedPatience is for how long, after its time is over, shedding waits for requests under way.
	shedPatience = time.Second
)

// Shed moves the clients of a share of the sessions to other members: it ends their connections,
// one after the other within about that time, each when none of its requests is under way. The
// sessions stay. It returns the number of connections that it has ended, when all are or when ctx
// ends. A client may come back to this member, if that still accepts connections.
func (m *Manager) Shed(ctx context.Context, percent int, over time.Duration) (ended int) {
	var left []*Session
	for _, s := range m.all() {
		if !s.local {
			left = append(left, s)
		}
	}
	rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	left = left[:(len(left)*min(max(percent, 0), 100)+99)/100]
	if len(left) == 0 {
		return 0
	}
	step := min(over/time.Duration(len(left)), shedStep)
	for until := time.Now().Add(over + shedPatience); len(left) > 0; {
		late := time.Now().After(until)
		s := left[0]
		left = left[1:]
		switch {
		case s.ended.Load():
			continue
		case late || s.quiet():
			s.end("this member sheds its clients: they go to others")
			ended++
		default:
			left = append(left, s) // it has its turn again
		}
		if late || len(left) == 0 {
			continue
		}
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return ended
		}
	}
	return ended
}

// quiet reports whether no request of the session is under way, and no output unsent.
func (s *Session) quiet() bool {
	unsent, _, _ := s.out.holds()
	return unsent == 0 && s.queued() == 0
}
