package quorum

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/znode"
)

// plan is a leader's knowledge when it decides on a step.
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
	// replacedBy has the disk that replaces a server: its member has come back with that.
	replacedBy map[raft.ServerID]raft.ServerID
	steps      []step
	problem    string
}

type serverSet = map[raft.ServerID]bool

// step changes one server.
type step struct {
	kind stepKind
	id   raft.ServerID
	// replaces is the disk that an added one replaces; empty: the member had none.
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

// changer is the change loop's memory of the change under way. A new leader finds all of it again.
type changer struct {
	term      uint64
	led       time.Time // since when this member has led
	change    *znode.Change
	begun     time.Time
	possible  bool      // a step has been possible
	stuck     time.Time // since when no step is possible; zero while one is
	transfers int       // how often the leadership could not be transferred
	look      time.Time // when to look at the configuration files again (adoptFile)
}

// catchUpLimit is how long a new voter may take to get all of the log.
const catchUpLimit = 2 * time.Minute

// plan finds the steps that make raft count the wanted members. Members that have not caught up
// when catchUpLimit has passed count as dead.
func (ms *members) plan(ctx context.Context, ch *changer, wanted []znode.Member) *plan {
	p := &plan{self: ms.self, wanted: wanted, servers: ms.Servers(), alive: serverSet{ms.self: true},
		voters: serverSet{}, others: serverSet{}, target: serverSet{},
		chosen: map[MemberID]raft.ServerID{}, replacedBy: map[raft.ServerID]raft.ServerID{}}
	votes := map[MemberID]bool{}
	for _, s := range p.servers {
		if s.Suffrage == raft.Voter {
			p.voters[s.ID], votes[raftnet.IDOf(s.ID)] = true, true
		} else {
			p.others[s.ID] = true
		}
	}
	members, _ := ms.state.Members()
	for _, m := range members {
		p.begun = p.begun || votes[MemberID(m.ID)] == m.Observer
	}
	if p.isDone(ms.recentNewcomers()) {
		ms.choose(p, ch, nil)
		p.order()
		return p
	}
	// They are queried now: an answer of a moment ago would be no reason to take somebody's vote.
	query := map[MemberID]bool{}
	for _, s := range p.servers {
		query[raftnet.IDOf(s.ID)] = s.Suffrage == raft.Voter || query[raftnet.IDOf(s.ID)]
	}
	for _, m := range wanted {
		query[MemberID(m.ID)] = true
	}
	delete(query, ms.cfg.ID)
	p.queried = true
	p.answers = ms.helloAll(ctx, slices.Sorted(maps.Keys(query)))
	ms.choose(p, ch, p.answers)
	late := time.Since(ch.begun) > catchUpLimit
	for id := range p.target {
		if late && !p.voters[id] && !ms.caughtUp(id, ms.raft.CommitIndex()) {
			delete(p.alive, id)
		}
	}
	p.order()
	return p
}

// choose finds the disk that each wanted member is to have. A member that answers with a blank disk
// while the one that raft counts is silent has lost that one. answers are nil if nobody was
// queried.
func (ms *members) choose(p *plan, ch *changer, answers map[MemberID]peer.Hello) {
	for _, m := range p.wanted {
		id := MemberID(m.ID)
		counted := raftnet.DisksOf(p.servers, id)
		h, answered := answers[id]
		present := raftnet.ServerID(id, h.Disk)
		switch {
		case id == ms.cfg.ID:
			p.chosen[id] = ms.self
		case answered && (p.voters[present] || p.others[present] || len(counted) == 0 && ms.mayJoin(h)):
			p.chosen[id] = present
		case answered && ms.mayJoin(h) && ms.mayReplace(ch, m.Observer, counted, h):
			p.chosen[id] = present
		case len(counted) > 0:
			p.chosen[id] = counted[0].ID
		}
		if answered && p.chosen[id] == present && (h.Cluster == 0 || h.Cluster == ms.roster.Cluster()) {
			p.alive[present] = true
		}
		if c, ok := p.chosen[id]; ok && !m.Observer {
			p.target[c] = true
		}
		for _, s := range counted {
			if s.ID != p.chosen[id] {
				p.replacedBy[s.ID] = p.chosen[id]
			}
		}
	}
	for id, h := range answers { // voters that are to go count until then
		if present := raftnet.ServerID(id, h.Disk); p.voters[present] && h.Cluster == ms.roster.Cluster() {
			p.alive[present] = true
		}
	}
}

// mayJoin reports whether a disk that raft does not count can become one of this cluster: it
// belongs to the cluster, because it was replaced and has come back, for example; or it is blank.
func (ms *members) mayJoin(h peer.Hello) bool {
	if h.Cluster != 0 {
		return h.Cluster == ms.roster.Cluster()
	}
	return h.State != peer.Used && h.Imported == (peer.Imported{})
}

// mayReplace reports whether a member has lost the disk that raft counts: it answers with another
// one, and the old one has been silent for a while. A disk without the vote that the member is to
// have is one of a member that was removed, and has come back.
func (ms *members) mayReplace(ch *changer, observer bool, counted []raft.Server, h peer.Hello) bool {
	if ms.cfg.KeepDisks && (observer || counted[0].Suffrage == raft.Voter) {
		ms.trouble.Warn("keep "+string(counted[0].ID), "a member has come back with another disk, and "+
			"replaceDisks=false "+
			"leaves it to the operator: remove it from the cluster and add it again",
			"member", raftnet.IDOf(counted[0].ID), "disk", h.Disk)
		return false
	}
	if time.Since(ch.led) < ms.peerTimeout() {
		return false // a new leader has not heard of anybody yet
	}
	for _, s := range counted {
		if !ms.heardOf(s.ID) {
			continue
		}
		if ms.persists(raftnet.IDOf(s.ID)) {
			ms.trouble.Warn("number in use "+string(s.ID), "a second process has the number of a member that "+
				"answers: it is not taken in",
				"member", raftnet.IDOf(s.ID), "disk", raftnet.DiskOf(s.ID), "other", h.Disk)
		}
		return false
	}
	return true
}

// isDone reports whether raft counts just the wanted members, each with one disk, and none has
// come with another one.
func (p *plan) isDone(newcomers []peer.Identity) bool {
	for _, m := range p.wanted {
		of := raftnet.DisksOf(p.servers, MemberID(m.ID))
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
		s, margin := p.bestStep(now)
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

// bestStep is the step after which the voters that are alive are furthest above a majority. Of
// equal ones a disk that was replaced goes first, and the leader's own vote last. No member has two
// votes.
func (p *plan) bestStep(now serverSet) (s step, margin int) {
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
		if !now[id] && !slices.ContainsFunc(sortedIDs(now),
			func(v raft.ServerID) bool { return raftnet.IDOf(v) == raftnet.IDOf(id) }) {
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

// hasVote reports whether a member has answered with a disk that has a vote now.
func (p *plan) hasVote(id MemberID) bool {
	h, answered := p.answers[id]
	return answered && p.voters[raftnet.ServerID(id, h.Disk)]
}

func sortedIDs(set serverSet) []raft.ServerID { return slices.Sorted(maps.Keys(set)) }

func (p *plan) possible() bool { return p.problem == "" }

func (p *plan) missing() string { return p.problem }

// nextStep is the step to take. Removing comes after the end of the change, so it is not among them
// before.
func (p *plan) nextStep() step {
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

// liveVoters counts the wanted voters, and the live ones among them.
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
