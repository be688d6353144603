package simtest

import (
	"slices"
	"time"

	"lockkeeper/wire"
)

// goals are the rare states of the model, by name, as the members and the events show them.
var goals = map[string]func(*player) bool{
	"deposed-unflushed":       (*player).deposedUnflushed,
	"two-leaders":             (*player).twoLeaders,
	"acknowledged-then-voted": (*player).acknowledgedThenVoted,
	"lost-in-change":          (*player).lostInChange,
	"early-then-lost":         (*player).earlyThenLost,
	"conflicting-log":         (*player).conflictingLog,
	"changed-twice":           (*player).changedTwice,
	"confirmed-by-deposed":    (*player).confirmedByDeposed,
}

// leaders calls f with each pair of members that lead, the second in a later term.
func (p *player) leaders(f func(old, now *member) bool) bool {
	for _, x := range p.members {
		for _, y := range p.members {
			if p.leads(x) && p.leads(y) && p.status(x).Term < p.status(y).Term && f(x, y) {
				return true
			}
		}
	}
	return false
}

// settled reports whether a member leads and has committed an entry of its own term.
func (p *player) settled(m *member) bool {
	s := p.status(m)
	p.d.mu.Lock()
	begins, ok := p.d.sight.begins[s.Term]
	p.d.mu.Unlock()
	return p.leads(m) && (!ok && s.Term <= p.base+2 || ok && s.CommitIndex >= begins.Index)
}

func (p *player) deposedUnflushed() bool {
	for _, x := range p.members {
		if p.d.unwritten(x) == 0 || p.leads(x) || x.running() == nil {
			continue
		}
		for _, y := range p.members {
			if p.settled(y) && p.status(y).Term == p.status(x).Term {
				return true
			}
		}
	}
	return false
}

func (p *player) twoLeaders() bool {
	return p.leaders(func(_, now *member) bool { return p.settled(now) })
}

func (p *player) acknowledgedThenVoted() bool {
	for x, m := range p.members {
		s := p.status(m)
		if !p.leads(m) {
			continue
		}
		for y := range p.members {
			d := p.disk(y)
			if y != x && d.acked[s.Term].Index > s.CommitIndex && d.voteTerm > s.Term && d.votedAt > d.ackedAt[s.Term] &&
				d.vote != p.servers[x] && d.vote != p.servers[y] {
				return true
			}
		}
	}
	return false
}

// pending reports whether a member leads, and the newest configuration in its log is not committed.
func (p *player) pending(x int) bool {
	m := p.members[x]
	return p.leads(m) && p.disk(x).change.Index > p.status(m).CommitIndex
}

func (p *player) lostInChange() bool {
	for x, m := range p.members {
		if p.pending(x) && p.settled(m) && p.replaced {
			return true
		}
	}
	return false
}

func (p *player) earlyThenLost() bool {
	for x, m := range p.members {
		commit, crashed := p.crashed[m]
		if !crashed {
			continue
		}
		for y := range p.members {
			if d := p.disk(y); y != x && d.applied.Index > commit {
				return true
			}
		}
	}
	return false
}

func (p *player) conflictingLog() bool {
	for _, y := range p.members {
		if !p.settled(y) {
			continue
		}
		p.d.mu.Lock()
		begins := p.d.sight.begins[p.status(y).Term]
		p.d.mu.Unlock()
		for x := range p.members {
			n := 0
			for _, at := range p.disk(x).log {
				if at.Term < begins.Term && at.Index >= begins.Index {
					n++
				}
			}
			if n >= 2 {
				return true
			}
		}
	}
	return false
}

func (p *player) changedTwice() bool {
	return p.leaders(func(old, now *member) bool {
		return p.pending(slices.Index(p.members, old)) && p.pending(slices.Index(p.members, now))
	})
}

// confirmedByDeposed has the client of the deposed leader read: it is answered while its lease is
// confirmed.
func (p *player) confirmedByDeposed() bool {
	return p.leaders(func(old, now *member) bool {
		r := p.clients[old]
		if r == nil || !p.settled(now) {
			return false
		}
		b, q := r.append(nil, wire.OpExists, wire.PathWatchRequest{Path: "/"})
		if _, err := r.Write(b); err != nil {
			return false
		}
		r.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		for {
			frame, err := wire.ReadFrame(r.r, nil, wire.DefaultMaxBuffer)
			if err != nil {
				return false
			}
			if h, _, err := wire.DecodeReply(frame); err == nil && h.Xid == q.xid {
				return h.Err == wire.CodeOK && p.leads(old) && p.leads(now)
			}
		}
	})
}
