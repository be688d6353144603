package run

import (
	"slices"
	"sync"
	"time"
)

// harm is the harm of an act: members that do not run, members that run and cannot be counted on,
// and directions of the network.
type harm struct {
	down []int
	weak []int // they may serve all the same
	cuts cut
}

// A planner decides which acts may begin, so that a majority of the members can act for a share of
// the time. Nemeses plan without knowing of each other: without a planner, partitions, kills and
// pauses together leave no majority for most of a run, and such a run shows nothing.
//
// A majority can act while one member that runs can talk, in both directions, with others that run,
// and they are more than half of all. The zero planner allows everything.
type planner struct {
	members int
	able    float64 // the least share of the time, 0 to 1
	now     func() time.Duration
	// changed is called, in order, when a majority can act no more and when it can again. It is
	// called with mu held.
	changed func(able bool)

	mu      sync.Mutex
	began   time.Duration
	active  map[*act]time.Duration // acts that have begun, with when they are planned to end
	lost    bool                   // no majority can act
	lostAt  time.Duration
	unable  time.Duration // for how long none could, up to lostAt
	skipped int           // acts that were not allowed
	calm    time.Duration // since when there is no act; of use only while there is none
}

// begin starts the clock.
func (p *planner) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.active = p.now(), map[*act]time.Duration{}
	p.calm = p.began
}

// admit takes note that an act begins that is planned to last for so long, or reports false: no
// majority could act then for longer than it may be.
func (p *planner) admit(a *act, lasts time.Duration) bool {
	if p.members == 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.active[a] = now + lasts
	until := p.backLocked(now)
	unable := p.unable + until - now
	if p.lost {
		unable += now - p.lostAt
	}
	if until > now && float64(unable) > (1-p.able)*float64(until-p.began) {
		delete(p.active, a)
		p.skipped++
		return false
	}
	p.lookLocked(now)
	return true
}

// majority reports whether a majority of the members can act.
func (p *planner) majority() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lost
}

// over takes note that an act has been mended.
func (p *planner) over(a *act) {
	if p.members == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.active, a)
	p.calm = p.now()
	p.lookLocked(p.calm)
}

// calmSince is since when nothing is broken; ok is false while something is.
func (p *planner) calmSince() (since time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calm, len(p.active) == 0
}

// lookLocked compares the members that can act with those that could.
func (p *planner) lookLocked(now time.Duration) {
	lost := !canAct(p.members, p.harmsLocked(now, false))
	if lost == p.lost {
		return
	}
	if p.lost = lost; lost {
		p.lostAt = now
	} else {
		p.unable += now - p.lostAt
	}
	p.changed(!lost)
}

// backLocked is when a majority can act again if no other act begins; now, if one can already.
func (p *planner) backLocked(now time.Duration) time.Duration {
	times := []time.Duration{now}
	for _, end := range p.active {
		times = append(times, max(now, end))
	}
	slices.Sort(times)
	for _, at := range times {
		if canAct(p.members, p.harmsLocked(at, at > now)) {
			return at
		}
	}
	return times[len(times)-1]
}

// harmsLocked are the harms of all acts, or of the acts that are planned to go on after a moment.
func (p *planner) harmsLocked(after time.Duration, planned bool) []harm {
	var harms []harm
	for a, end := range p.active {
		if !planned || end > after {
			harms = append(harms, a.harm)
		}
	}
	return harms
}

// canAct says whether a majority of members 1 to n can act under some harms.
func canAct(n int, harms []harm) bool {
	down := make([]bool, n+1)
	blocked := make(map[[2]int]bool)
	for _, h := range harms {
		for _, m := range slices.Concat(h.down, h.weak) {
			down[m] = true
		}
		for _, pair := range h.cuts {
			blocked[pair] = true
		}
	}
	for leader := 1; leader <= n; leader++ {
		if down[leader] {
			continue
		}
		reached := 0
		for m := 1; m <= n; m++ {
			if !down[m] && !blocked[[2]int{leader, m}] && !blocked[[2]int{m, leader}] {
				reached++
			}
		}
		if reached > n/2 {
			return true
		}
	}
	return false
}
