package session

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// shedStep is the longest time between two connections that are shed: few are done soon.
	shedStep = 50 * time.Millisecond
	// shedPatience is for how long, after its time is over, shedding waits for requests under way.
	shedPatience = time.Second
	// stalledAfter is the time after which a client that receives nothing of its output counts as
	// one that does not read.
	stalledAfter = time.Second
	// shedPause is the time between two calls of shed: the memory of the connections that the first
	// has ended is free when their writes have failed.
	shedPause = 500 * time.Millisecond
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

// memoryLoop ends connections when all together hold too much.
func (m *Manager) memoryLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.gate.Memory.High():
		}
		m.shed()
		select {
		case <-ctx.Done():
			return
		case <-time.After(shedPause):
		}
	}
}

// holding is what the output of a connection holds.
type holding struct {
	s       *Session
	bytes   int
	stalled bool
}

// shed ends connections until the others hold less than the mark. It ignores connections that have
// ended before, even if their last write has not failed yet.
func (m *Manager) shed() {
	now := time.Now()
	var list []holding
	excess := m.gate.Memory.Shared() - m.gate.Memory.Mark()
	for _, s := range m.all() {
		bytes, shared, since := s.out.holds()
		excess += int64(bytes - shared)
		if bytes > 0 {
			list = append(list, holding{s, bytes, now.Sub(since) >= stalledAfter})
		}
	}
	slices.SortFunc(list, func(a, b holding) int {
		if a.stalled != b.stalled {
			if a.stalled {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.bytes, a.bytes)
	})
	for _, h := range list {
		if excess <= 0 {
			return
		}
		excess -= int64(h.bytes)
		m.gate.Memory.Ended()
		m.log.Warn("connection ended: the connections of this member hold too much that is not sent (maxClientMemory)",
			"session", h.s.id, "client", h.s.addr, "bytes", h.bytes, "reads", !h.stalled)
		h.s.end("the connections of this member hold too much that is not sent")
	}
}
