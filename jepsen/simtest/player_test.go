package simtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum"
	"lockkeeper/quorum/model"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
)

// player leads the members of a cluster through a script of the model, step by step. Where they
// can't be led exactly it goes on with the next step, and takes note.
type player struct {
	c        *cluster
	d        *director
	s        script
	rng      *rand.Rand
	members  []*member       // by the model's number
	servers  []raft.ServerID // of the disks, by the model's number; empty: it has none yet
	base     uint64          // the real term of the model's term 0
	commits  map[*member]uint64
	clients  map[*member]*rawConn
	asking   sync.WaitGroup     // operators
	crashed  map[*member]uint64 // the commit index of leaders that have crashed
	changing bool               // an operator has requested a change of the members
	replaced bool               // a disk was lost
	followed []bool
	reached  int // the steps after which the goal was reached; -1: it was not
}

// scriptPatience is how long a step may take.
const scriptPatience = 60 * time.Millisecond

// scriptHost is where the clients of scripts run.
const scriptHost = "10.0.8.1"

// play plays a script on a cluster in which nothing is wrong, and reports false if that cannot be
// begun. Afterwards nothing is held back any more: what was is delivered, in any order.
func (c *cluster) play(s script, rng *rand.Rand) (*player, bool) {
	p := &player{c: c, d: c.director, s: s, rng: rng, commits: map[*member]uint64{}, clients: map[*member]*rawConn{},
		crashed: map[*member]uint64{}, reached: -1}
	if !p.prepare() {
		p.release()
		return nil, false
	}
	for i := range s.steps {
		p.note("%s", s.lines[i])
		ok := p.step(i)
		p.followed = append(p.followed, ok)
		if !ok {
			p.note("not followed")
		}
		if s.goal != nil && p.reached < 0 && s.goal(p) {
			p.reached = i + 1
			p.note("reached")
		}
	}
	p.release()
	return p, true
}

func (p *player) note(format string, args ...any) {
	p.c.journal.printf("script %s: %s", p.s.name, fmt.Sprintf(format, args...))
}

// steps is the number of steps that were followed.
func (p *player) steps() (n int) {
	for _, ok := range p.followed {
		if ok {
			n++
		}
	}
	return n
}

// missed lists the steps that were not followed.
func (p *player) missed() string {
	var list []string
	for i, ok := range p.followed {
		if !ok {
			list = append(list, p.s.lines[i])
		}
	}
	return strings.Join(list, "; ")
}

// even reports whether all members run, in one term, with a leader, and have all entries.
func (p *player) even() bool {
	l := p.c.leader()
	if l == nil {
		return false
	}
	want := l.running().Replica().Status()
	for _, m := range p.c.members {
		r := m.running()
		if r == nil || r.failure() != nil {
			return false
		}
		if s := r.Replica().Status(); s.Term != want.Term || s.LastIndex != want.LastIndex ||
			s.CommitIndex != want.CommitIndex || s.Leader == quorum.NoMember {
			return false
		}
	}
	return want.Role == "leader" && want.CommitIndex == want.LastIndex
}

func (p *player) awaitEven() bool {
	for range 2000 {
		if p.even() {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

// prepare chooses the members, and has requests to stand for election wait for those that the
// script lets stand. These requests are of leaders of now, and come late.
func (p *player) prepare() bool {
	if !p.awaitEven() {
		return false
	}
	stands := p.stands()
	l := p.c.leader()
	var voters []*member
	for _, i := range p.rng.Perm(p.c.shape.voters) {
		if m := p.c.members[i]; m != l || !p.s.led {
			voters = append(voters, m)
		}
	}
	if p.s.led {
		voters = append([]*member{l}, voters...)
	}
	p.members = voters
	if p.s.members > len(voters) {
		p.members = append(p.members, p.c.spare)
	}
	p.d.mu.Lock()
	p.d.elections = true
	p.d.mu.Unlock()
	for x, n := range stands {
		if n > 0 && p.members[x] == p.c.leader() && !p.moveTo(p.members[(x+1)%len(voters)]) {
			return false
		}
		for range n {
			if !p.keepElection(p.members[x]) {
				break
			}
		}
	}
	if p.s.led && p.c.leader() != p.members[0] && !p.moveTo(p.members[0]) || !p.awaitEven() {
		return false
	}
	for _, m := range p.members {
		if m.running() != nil {
			p.client(m)
		}
	}
	if !p.awaitEven() {
		return false
	}
	p.d.begin()
	p.base = p.members[0].running().Replica().Term() - 1
	if p.s.led {
		p.base--
	}
	for _, m := range p.members {
		p.servers = append(p.servers, "")
		if m.running() != nil {
			p.commits[m] = m.running().Replica().Status().CommitIndex
		}
	}
	p.know()
	return true
}

// stands is how often each member stands for election before it crashes.
func (p *player) stands() []int {
	n, gone := make([]int, p.s.members), map[int]bool{}
	for _, s := range p.s.steps {
		switch s.Action {
		case model.Crash, model.Replace, model.Return, model.Damage, model.Half, model.Cut:
			gone[int(s.A)] = true
		case model.Stand:
			if !gone[int(s.A)] {
				n[int(s.A)]++
			}
		}
	}
	return n
}

// keepElection has the leader request an election of a member, whom the request does not reach yet.
func (p *player) keepElection(m *member) bool {
	l := p.c.leader()
	if l == nil || l == m {
		return false
	}
	before := p.d.count(p.election(m))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = l.running().Replica().TransferLeadership(ctx, quorum.MemberID(m.id), nil) // it must fail
	return p.d.count(p.election(m)) > before
}

func (p *player) election(m *member) func(*message) bool {
	return func(x *message) bool {
		_, is := x.request.(*raft.TimeoutNowRequest)
		return is && x.at == m && x.start == m.starts.Load() && x.answer == nil
	}
}

// moveTo has another member lead.
func (p *player) moveTo(m *member) bool {
	p.d.mu.Lock()
	p.d.elections = false
	p.d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l := p.c.leader()
	if l == nil {
		return false
	}
	err := l.running().Replica().TransferLeadership(ctx, quorum.MemberID(m.id), nil)
	p.d.mu.Lock()
	p.d.elections = true
	p.d.mu.Unlock()
	return err == nil && p.awaitEven()
}

// client connects a client to a member.
func (p *player) client(m *member) {
	p.c.net.Host(scriptHost)
	if r, err := p.c.dialRaw(scriptHost, m.clientAddr(), 20*p.c.shape.tick); err == nil {
		p.clients[m] = r
	}
}

// write has the client of a member request a write, and does not wait for the answer.
func (p *player) write(m *member) bool {
	r := p.clients[m]
	if r == nil {
		return false
	}
	b, _ := r.append(nil, wire.OpCreate, wire.CreateRequest{Path: fmt.Sprintf("/script-%d-%d", m.id, p.c.journal.age()),
		ACL: wire.OpenACL})
	_, err := r.Write(b)
	return err == nil
}

// know takes note of the servers that the members are.
func (p *player) know() {
	for x, m := range p.members {
		if r := m.running(); r != nil && r.Replica().Disk() != 0 {
			p.servers[x] = r.serverID()
		}
	}
}

// release lets everything go on, in any order, and waits for the operators.
func (p *player) release() {
	for _, m := range p.members {
		if m != p.c.spare || m.used {
			m.start()
		}
	}
	held := p.d.end()
	p.rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	for _, x := range held {
		close(x.pass)
		time.Sleep(time.Duration(p.rng.IntN(10_000)) * time.Microsecond)
	}
	p.asking.Wait()
	for _, m := range p.members {
		if r := p.clients[m]; r != nil {
			r.Close()
		}
	}
}

// term is the real term of a term of the model.
func (p *player) term(t uint8) uint64 { return p.base + uint64(t) }

// server is the real server of one of the model; false: the member has no such disk.
func (p *player) server(v uint8) (raft.ServerID, bool) {
	id := p.servers[int(v)/model.Disks]
	return id, id != ""
}

func (p *player) status(m *member) quorum.Status {
	if r := m.running(); r != nil {
		return r.Replica().Status()
	}
	return quorum.Status{}
}

// leads reports whether a member leads, for raft: it may not have applied the entries before.
func (p *player) leads(m *member) bool { return m.running() != nil && p.c.witness.role(m) == "leader" }

// disk is a copy of the events of the disk of a member.
func (p *player) disk(x int) sightDisk {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	d := *p.d.sight.disk(p.servers[x])
	d.log, d.acked, d.ackedAt = maps.Clone(d.log), maps.Clone(d.acked), maps.Clone(d.ackedAt)
	return d
}

// step takes a step, and reports whether the members have followed.
func (p *player) step(i int) bool {
	p.know()
	s := p.s.steps[i]
	x := int(s.A)
	m := p.members[x]
	if s.Action != model.Crash && m.running() == nil && s.Action != model.Add {
		return false
	}
	switch s.Action {
	case model.Crash:
		p.crash(m)
		return true
	case model.Replace:
		return p.replace(x)
	case model.Flush:
		p.d.holdWrites(m, false)
		return p.await(func() bool { return p.d.unwritten(m) == 0 })
	case model.Stand:
		return p.stand(x, p.term(p.s.states[i+1].Disks[p.server0(i+1, x)].Term))
	case model.Adopt:
		return p.d.let(p.asks(m, "", p.term(s.B), voteRequests), scriptPatience, func() bool {
			return p.status(m).Term == p.term(s.B)
		})
	case model.Vote, model.Half:
		return p.vote(m, x, s)
	case model.Lead:
		return p.lead(x, p.term(p.s.states[i+1].Disks[p.server0(i+1, x)].Term))
	case model.Store, model.Ack, model.Cut:
		return p.append(m, x, s)
	case model.Commit:
		return p.commit(m, x)
	case model.Propose:
		return p.propose(m)
	case model.Add, model.Remove:
		return p.change(m, s)
	case model.Notice:
		return p.d.unwritten(m) == 0 && p.await(func() bool { return true })
	case model.Heed:
		return p.heed(m, x, s)
	case model.Raise:
		return p.d.let(p.asks(m, "", p.term(s.B), beats), 5*scriptPatience, func() bool {
			return p.status(m).Term == p.term(s.B)
		})
	case model.Join:
		return p.d.let(func(*message) bool { return false }, time.Second, func() bool {
			return m.running().Replica().Cluster() != 0
		})
	case model.Connect:
		return p.clients[m] != nil
	case model.Contact, model.Prove:
		return p.contact(m, int(s.B)/model.Disks)
	case model.Confirm:
		return p.await(func() bool { return true })
	}
	return false
}

// server0 is the index of the disk of a member, in the state after n steps.
func (p *player) server0(n, x int) int { return x*model.Disks + int(p.s.states[n].Members[x].Disk) }

// await waits until done, with everything held back.
func (p *player) await(done func() bool) bool {
	time.Sleep(2 * time.Millisecond) // a message takes less
	return p.d.let(func(*message) bool { return false }, scriptPatience, done)
}

// The kinds of messages.
func voteRequests(x *message) bool {
	_, is := x.request.(*raft.RequestVoteRequest)
	return is && x.answer == nil
}

func voteAnswers(x *message) bool {
	a, is := x.answer.(*raft.RequestVoteResponse)
	return is && a.Granted
}

func preVotes(x *message) bool {
	_, is := x.request.(*raft.RequestPreVoteRequest)
	return is
}

func appends(x *message) bool {
	q, is := x.request.(*raft.AppendEntriesRequest)
	return is && x.answer == nil && (q.PrevLogEntry > 0 || len(q.Entries) > 0)
}

func beats(x *message) bool {
	q, is := x.request.(*raft.AppendEntriesRequest)
	return is && x.answer == nil && q.PrevLogEntry == 0 && len(q.Entries) == 0
}

func appendAnswers(x *message) bool {
	_, is := x.answer.(*raft.AppendEntriesResponse)
	return is
}

func termOf(request any) uint64 {
	switch q := request.(type) {
	case *raft.AppendEntriesRequest:
		return q.Term
	case *raft.RequestVoteRequest:
		return q.Term
	}
	return 0
}

// asks is the messages of a kind at a member, in a term, about a request of a server; empty: of
// anyone.
func (p *player) asks(at *member, from raft.ServerID, term uint64, kind func(*message) bool) func(*message) bool {
	return func(x *message) bool {
		return x.at == at && (from == "" || x.from == from) && termOf(x.request) == term && kind(x)
	}
}

// crash has the power of a member fail. Of writes that wait, nothing is on its disk.
func (p *player) crash(m *member) {
	if p.leads(m) {
		p.crashed[m] = p.status(m).CommitIndex
	}
	m.die(p.c.net.Reset, func(d *simdisk.Disk, _ *rand.Rand) *simdisk.Disk { return d.Crash() })
	m.start()
}

func (p *player) replace(x int) bool {
	m := p.members[x]
	if !m.replaceDisk(p.c.net.Reset, func(d *simdisk.Disk, _ *rand.Rand) *simdisk.Disk { return d.Crash() },
		func(old *simdisk.Disk) *simdisk.Disk {
			m.put(old)
			return blank()
		}) {
		return false
	}
	p.replaced, p.servers[x] = true, ""
	m.start()
	return true
}

// stand has a member stand for election, in that term: it is sent the request that was held back,
// or it has not heard of a leader for long enough, and the others neither.
func (p *player) stand(x int, term uint64) bool {
	m := p.members[x]
	if p.s.parallel {
		p.d.holdWrites(m, false)
	}
	stood := func() bool {
		d := p.disk(x)
		return p.status(m).Term >= term && d.voteTerm == term && d.vote == p.servers[x]
	}
	if p.d.release(p.election(m)) {
		return p.await(stood)
	}
	return p.d.let(func(y *message) bool { return preVotes(y) && y.from == p.servers[x] }, 5*time.Second, stood)
}

func (p *player) vote(m *member, x int, s model.Step) bool {
	from, ok := raft.ServerID(""), true
	if s.Action == model.Vote {
		from, ok = p.server(s.C)
	}
	if !ok {
		return false
	}
	voted := func() bool {
		d := p.disk(x)
		return d.voteTerm == p.term(s.B) && (from == "" || d.vote == from)
	}
	if s.Action == model.Vote {
		return p.d.let(p.asks(m, from, p.term(s.B), voteRequests), scriptPatience, voted)
	}
	m.cutAtValue.Store(&valueWrite{key: string(store.VoteTerm), done: make(chan struct{})})
	cut := p.d.let(p.asks(m, "", p.term(s.B), voteRequests), scriptPatience, func() bool {
		return m.cutAtValue.Load() == nil
	})
	m.cutAtValue.Store(nil)
	p.crash(m)
	return cut && !voted()
}

func (p *player) lead(x int, term uint64) bool {
	m := p.members[x]
	if p.s.parallel {
		p.d.holdWrites(m, true)
	}
	return p.d.let(func(y *message) bool {
		return voteAnswers(y) && y.from == p.servers[x] && termOf(y.request) == term
	}, scriptPatience, func() bool { return p.leads(m) && p.status(m).Term == term })
}

// append has a member take entries of the leader of a term.
func (p *player) append(m *member, x int, s model.Step) bool {
	if s.Action == model.Store && p.s.parallel {
		p.d.holdWrites(m, false)
	}
	before := p.disk(x)
	done := func() bool {
		now := p.disk(x)
		switch s.Action {
		case model.Store:
			return now.stores > before.stores && p.status(m).Term == p.term(s.B)
		case model.Cut:
			return now.removals > before.removals
		}
		return now.answers > before.answers
	}
	asked := p.asks(m, "", p.term(s.B), appends)
	ok := p.d.let(asked, scriptPatience/4, done)
	if !ok { // the leader may wait for an answer before it goes on
		answers := p.asks(m, "", p.term(s.B), appendAnswers)
		ok = p.d.let(func(y *message) bool { return asked(y) || answers(y) }, scriptPatience, done)
	}
	if s.Action == model.Cut {
		time.Sleep(2 * time.Millisecond) // it is durable by then
		p.crash(m)
	}
	return ok
}

// commit has a leader commit what the others have acknowledged.
func (p *player) commit(m *member, x int) bool {
	term := p.status(m).Term
	ok := p.d.let(func(y *message) bool {
		return y.from == p.servers[x] && appendAnswers(y) && termOf(y.request) == term
	}, scriptPatience, func() bool { return p.leads(m) && p.status(m).CommitIndex > p.commits[m] })
	p.commits[m] = p.status(m).CommitIndex
	return ok
}

func (p *player) propose(m *member) bool {
	if p.s.parallel {
		p.d.holdWrites(m, true)
	}
	before := p.status(m).LastIndex
	return p.leads(m) && p.write(m) && p.await(func() bool { return p.status(m).LastIndex > before })
}

// heed has a member apply an early commit. The notice is behind the leader's requests, and is read
// when those are answered.
func (p *player) heed(m *member, x int, s model.Step) bool {
	before := p.commits[m]
	asked, answered := p.asks(m, "", p.term(s.B), appends), p.asks(m, "", p.term(s.B), appendAnswers)
	return p.d.let(func(y *message) bool { return asked(y) || answered(y) }, scriptPatience, func() bool {
		return p.status(m).CommitIndex > before && p.disk(x).applied.Term == p.term(s.B)
	})
}

// contact has a member answer a heartbeat of a leader.
func (p *player) contact(leader *member, y int) bool {
	m := p.members[y]
	before := p.disk(y).answers
	term := p.status(leader).Term
	return p.d.let(func(x *message) bool {
		return x.at == m && termOf(x.request) == term && (beats(x) || appendAnswers(x))
	}, 4*scriptPatience, func() bool { return p.disk(y).answers > before })
}

// change has an operator add or remove a member; a later leader goes on with the change of the one
// before by itself. All that it needs before the leader appends a configuration is delivered; the
// configuration reaches nobody.
func (p *player) change(leader *member, s model.Step) bool {
	m := p.members[int(s.B)/model.Disks]
	before, term := leader.running().Replica().Servers(), p.status(leader).Term
	if !p.changing {
		p.changing = true
		p.request(leader, m, s.Action == model.Add)
	}
	return p.d.let(func(x *message) bool {
		q, is := x.request.(*raft.AppendEntriesRequest)
		return is && q.Term == term && !slices.ContainsFunc(q.Entries, func(e *raft.Log) bool {
			return e.Type == raft.LogConfiguration
		})
	}, 2*time.Second, func() bool { return !slices.Equal(leader.running().Replica().Servers(), before) })
}

// request has an operator request a change, of the member that leads.
func (p *player) request(leader, m *member, add bool) {
	var joining, leaving []string
	if add {
		m.disk, m.used = blank(), true
		p.c.witness.replaced(m)
		m.start()
		joining = []string{m.line(false).String()}
	} else {
		leaving = []string{fmt.Sprint(m.id)}
	}
	p.asking.Go(func() {
		p.c.reconfigAt([]string{leader.clientAddr()}, "as a script says", func(conn *zk.Conn) error {
			_, err := conn.IncrementalReconfig(joining, leaving, -1)
			return err
		})
	})
}
