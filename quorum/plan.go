package quorum

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// plan is what a leader knows when it decides on a step.
type plan struct {
	self    raft.ServerID
	wanted  []znode.Member
	servers []raft.Server              // that raft counts now
	chosen  map[MemberID]raft.ServerID // the disk of each wanted member; none while it is not known
	voters  serverSet                  // that raft counts now
	others  serverSet                  // non-voters that raft knows now
	target  serverSet                  // voters as wanted
	alive   serverSet
	queried bool // the members were; otherwise alive has this one only
	answers map[MemberID]peer.Hello
	begun   bool // raft does not count the members of /zookeeper/config any more
	// replacedBy has the disk that replaces a server, whose member has come back with that.
	replacedBy map[raft.ServerID]raft.ServerID
	steps      []step
	problem    string
}

type serverSet = map[raft.ServerID]bool

// step changes one server.
type step struct {
	kind stepKind
	id   raft.ServerID
	// replaces is what an added disk replaces; empty: the member had none.
	replaces raft.ServerID
}

type stepKind string

const (
	stepNone   stepKind = ""
	stepAdd    stepKind = "add"    // make it a non-voter
	stepVote   stepKind = "vote"   // give it a vote
	stepDemote stepKind = "demote" // take its vote
	stepRemove stepKind = "remove" // forget it
)

// settled reports whether raft counts just the wanted members, each with one disk, and none has
// come with another one.
func (p *plan) settled(newcomers []peer.Identity) bool {
	for _, m := range p.wanted {
		of := peer.DisksOf(p.servers, MemberID(m.ID))
		if len(of) != 1 || (of[0].Suffrage == raft.Voter) == m.Observer {
			return false
		}
	}
	return len(p.servers) == len(p.wanted) && !slices.ContainsFunc(newcomers, func(n peer.Identity) bool {
		return slices.ContainsFunc(p.wanted, func(m znode.Member) bool { return MemberID(m.ID) == n.Member })
	})
}

// order finds an order of steps in which the voters that are alive are a majority after each.
func (p *plan) order() {
	listed := serverSet{}
	for _, m := range p.wanted {
		if id, ok := p.chosen[MemberID(m.ID)]; ok {
			listed[id] = true
			if !p.voters[id] && !p.others[id] {
				add := step{kind: stepAdd, id: id}
				for old, by := range p.replacedBy {
					if by == id {
						add.replaces = old
					}
				}
				p.steps = append(p.steps, add)
			}
		}
	}
	now := maps.Clone(p.voters)
	for {
		s, margin := p.best(now)
		if s.kind == stepNone {
			break
		}
		if margin < 0 {
			p.problem = p.whoIsMissing()
			return
		}
		p.steps = append(p.steps, s)
		if s.kind == stepVote {
			now[s.id] = true
		} else {
			delete(now, s.id)
		}
	}
	for _, s := range p.servers {
		if !listed[s.ID] && !p.voters[s.ID] {
			p.steps = append(p.steps, step{kind: stepRemove, id: s.ID})
		}
	}
}

// best is the step after which the voters that are alive are furthest above a majority. Of equal
// ones a disk that was replaced goes first, and the leader's own vote last. No member has two
// votes.
func (p *plan) best(now serverSet) (s step, margin int) {
	try := func(kind stepKind, id raft.ServerID) {
		next := maps.Clone(now)
		if kind == stepVote {
			next[id] = true
		} else {
			delete(next, id)
		}
		if len(next) == 0 {
			return
		}
		alive := 0
		for v := range next {
			if p.alive[v] {
				alive++
			}
		}
		if m := alive - NewMaj(len(next)).Size(); s.kind == stepNone || m > margin {
			s, margin = step{kind: kind, id: id}, m
		}
	}
	var replaced, vote, demote, own []raft.ServerID
	for _, id := range sortedIDs(now) {
		switch {
		case p.target[id]:
		case id == p.self:
			own = append(own, id)
		case p.replacedBy[id] != "":
			replaced = append(replaced, id)
		default:
			demote = append(demote, id)
		}
	}
	for _, id := range sortedIDs(p.target) {
		if !now[id] && !slices.ContainsFunc(sortedIDs(now), func(v raft.ServerID) bool { return peer.IDOf(v) == peer.IDOf(id) }) {
			vote = append(vote, id)
		}
	}
	for _, id := range replaced {
		try(stepDemote, id)
	}
	for _, id := range vote {
		try(stepVote, id)
	}
	for _, id := range demote {
		try(stepDemote, id)
	}
	if s.kind == stepNone {
		for _, id := range own {
			try(stepDemote, id)
		}
	}
	return s, margin
}

// votes reports whether a member has answered with a disk that has a vote now.
func (p *plan) votes(id MemberID) bool {
	h, answered := p.answers[id]
	return answered && p.voters[peer.ServerID(id, h.Disk)]
}

func sortedIDs(set serverSet) []raft.ServerID { return slices.Sorted(maps.Keys(set)) }

func (p *plan) possible() bool { return p.problem == "" }

func (p *plan) missing() string { return p.problem }

// next is the step to take. Removing comes after the end of the change, so it is not among them
// before.
func (p *plan) next() step {
	if len(p.steps) == 0 {
		return step{}
	}
	return p.steps[0]
}

// wantedMajority reports whether a majority of the wanted voters is alive. One that has never
// answered is not alive: raft cannot count it before its disk is known.
func (p *plan) wantedMajority() bool {
	alive, voters := p.liveVoters()
	return NewMaj(voters).Quorum(alive)
}

// liveVoters counts the wanted voters, and those of them that are alive.
func (p *plan) liveVoters() (alive, voters int) {
	for _, m := range p.wanted {
		if m.Observer {
			continue
		}
		voters++
		if c, ok := p.chosen[MemberID(m.ID)]; ok && p.alive[c] {
			alive++
		}
	}
	return alive, voters
}

// whoIsMissing says in words why there would be no majority.
func (p *plan) whoIsMissing() string {
	alive, voters := p.liveVoters()
	var missing []string
	for _, m := range p.wanted {
		if c, ok := p.chosen[MemberID(m.ID)]; !m.Observer && !(ok && p.alive[c]) {
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Key(), m.PeerAddr()))
		}
	}
	if len(missing) == 0 {
		return "on the way there would be no majority of live voters"
	}
	return fmt.Sprintf("would leave %d of %d live: missing %s", alive, voters, strings.Join(missing, ", "))
}
