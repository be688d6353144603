package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
)

// Stop stream, follower to leader, one question at a time:
//
//	question  | length u32 | wish u8 |
//	answer    | length u32 | status u8 | for (ms) u32 | n u8 | reason (n) |
//
// Wish is a StopWish, and status one of the constants below.
const (
	stopMay       byte = 1
	stopMayNot    byte = 2
	stopHopeless  byte = 3 // it may not, and waiting does not help
	stopNotLeader byte = 4 // the member that was asked does not lead, or cannot prove it

	// maxStopFrame bounds a frame of the stop stream.
	maxStopFrame = 512
	// maxStopWhy bounds the bytes of an answer's reason.
	maxStopWhy = 240
)

// May a member stop? The leader says yes if the voters that stay are a majority without it: each of
// them answers the leader's query, with the disk that is counted, has got everything that was
// committed within the last peerTimeout, says of itself that it has applied it (Replica.Ready), and
// has not been told itself that it may stop.
//
// A yes holds for a while, in which the member counts as stopped: so two that ask at the same time
// are not both told yes if only one can go. It is the member that was told yes which keeps this in
// mind, and says so (StopState) to each leader that queries it before it says yes to another. An
// answer may be under way for peerTimeout; for so long the leader has the member count as stopped
// itself. It keeps that in mind before it proves that it still leads (raftnet.Transport.ProvenAt)
// and answers; and a new leader says no to all until peerTimeout has passed. A member that has lost
// its memory has stopped, and counts again when it is ready.
//
// A yes ends by itself. Those who only ask again and again cannot keep others waiting: it is not
// renewed while another member waits that could go if this one stayed.
const (
	// stopAskFor is how long a yes holds for a member that only asks, stopWillFor for one that has
	// been told to stop.
	stopAskFor  = 10 * time.Second
	stopWillFor = time.Minute
	// stopWaits is for how long a member that was told no because of others counts as waiting: it
	// asks again more often than that.
	stopWaits = 3 * time.Second
	// stopGone is for how long a member that had been told to stop, and does not answer, counts as
	// one that stopped for that reason.
	stopGone = time.Minute
)

// StopWish is why a member asks whether it may stop.
type StopWish byte

// The wishes.
const (
	StopLook StopWish = 1 // somebody wants to know; a yes is not reserved
	StopAsk  StopWish = 2 // somebody is about to stop it
	StopWill StopWish = 3 // it has been told to stop, and waits for the yes
	StopTold StopWish = 4 // it has been told to stop: no question
)

// StopAnswer says whether a member may stop.
type StopAnswer struct {
	May bool
	// Why says why it may not. Hopeless says that waiting does not help.
	Why      string
	Hopeless bool
	// For is how long a yes holds; 0 if it is not reserved.
	For time.Duration
}

// errStop says that a question of the stop stream, or its answer, is malformed.
var errStop = errors.New("quorum: a question whether to stop")

// stops is a member's memory of members that may stop.
type stops struct {
	*engine
	leadership *leadership
	catchUp    *catchUp
	stream     leaderStream
	turn       chan struct{} // capacity 1: full while this leader decides

	mu   sync.Mutex
	may  time.Time // until when this member has been told that it may stop, by time.Now
	told bool      // this member has been told to stop
	// The leader's memory, by member; toldOf is known on any member.
	reserved map[MemberID]time.Time // until when a yes may be under way: it counts as stopped
	granted  map[MemberID]time.Time // until when a yes holds
	waiting  map[MemberID]stopWaiter
	toldOf   map[MemberID]time.Time // when it last said that it had been told to stop
}

// stopWaiter is a member that may not stop because another one may.
type stopWaiter struct{ since, last time.Time }

func newStops(e *engine, l *leadership, c *catchUp) *stops {
	return &stops{engine: e, leadership: l, catchUp: c,
		stream:   leaderStream{engine: e, leadership: l, kind: peer.StreamStop, maxFrame: maxStopFrame},
		turn:     make(chan struct{}, 1),
		reserved: map[MemberID]time.Time{}, granted: map[MemberID]time.Time{},
		waiting: map[MemberID]stopWaiter{}, toldOf: map[MemberID]time.Time{}}
}

// reported is this member's report of its own stop.
func (s *stops) reported() (state peer.StopState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.may) {
		state |= peer.MayStop
	}
	if s.told {
		state |= peer.ToldToStop
	}
	return state
}

// MayStop is Replica.MayStop.
func (s *stops) MayStop(ctx context.Context, wish StopWish) (a StopAnswer, err error) {
	if s.cfg.alone() {
		return StopAnswer{Why: "it stands alone: nobody else serves its clients", Hopeless: true}, nil
	}
	if wish == StopWill {
		s.mu.Lock()
		first := !s.told
		s.told = true
		s.mu.Unlock()
		if first {
			s.announceStop(ctx)
		}
	}
	err = s.stream.ask(ctx, func(ctx context.Context) error {
		a, err = s.judgeStop(ctx, s.cfg.ID, wish)
		return err
	}, func(c *codec.Codec) { codec.U8(c, &wish) }, a.decode)
	if err != nil && wish == StopWill && s.allToldToStop() {
		return StopAnswer{Why: whyAllStop, Hopeless: true}, nil // those who could lead may be gone
	}
	if err != nil {
		return a, err
	}
	if a.May && a.For > 0 {
		s.mu.Lock()
		s.may = time.Now().Add(a.For)
		s.mu.Unlock()
	}
	return a, nil
}

// whyAllStop says why nothing is gained by waiting until the others can do without a member.
const whyAllStop = "all members have been told to stop"

// allToldToStop reports whether every other voter has said that it has been told to stop.
func (s *stops) allToldToStop() bool {
	servers := s.Servers()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, srv := range servers {
		told, known := s.toldOf[raftnet.IDOf(srv.ID)]
		if srv.ID != s.self && srv.Suffrage == raft.Voter && (!known || time.Since(told) >= stopGone) {
			return false
		}
	}
	return true
}

// announceStop tells the other members that this one has been told to stop: the next leader is to
// know the reason. Nobody needs to hear it.
func (s *stops) announceStop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.heartbeatTimeout())
	defer cancel()
	var wg sync.WaitGroup
	for _, srv := range s.Servers() {
		if srv.ID == s.self {
			continue
		}
		wg.Go(func() {
			c, err := s.port.Dial(ctx, raftnet.IDOf(srv.ID), peer.StreamStop)
			if err != nil {
				return
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			wish := StopTold
			e := codec.Encode(peer.BeginFrame(nil))
			codec.U8(&e, &wish)
			if _, err := c.Write(peer.EndFrame(e.Encoded(), 0)); err == nil {
				_, _ = c.ReadFrame(maxStopFrame, nil)
			}
		})
	}
	wg.Wait()
}

// serveStop is the leader's end of a stop stream.
func (s *stops) serveStop(from peer.Identity, stream *peer.Stream) error {
	return answerQuestions(stream, maxStopFrame, func(question, answer *codec.Codec) error {
		var wish StopWish
		if codec.U8(question, &wish); question.Err() != nil || wish < StopLook || wish > StopTold {
			return fmt.Errorf("%w: %w", peer.ErrRefused, errStop)
		}
		var a StopAnswer
		var err error
		if wish == StopTold {
			s.note(from.Member, time.Now())
		} else {
			a, err = s.judgeStop(context.Background(), from.Member, wish)
		}
		a.encode(answer, err)
		return nil
	})
}

func (a *StopAnswer) encode(c *codec.Codec, err error) {
	status := stopMayNot
	switch {
	case err != nil:
		status = stopNotLeader
	case a.May:
		status = stopMay
	case a.Hopeless:
		status = stopHopeless
	}
	forMs := uint32(a.For.Milliseconds())
	why := a.Why[:min(len(a.Why), maxStopWhy)]
	codec.U8(c, &status)
	codec.U32(c, &forMs)
	c.Text(&why)
}

func (a *StopAnswer) decode(c *codec.Codec) error {
	var status byte
	var forMs uint32
	codec.U8(c, &status)
	codec.U32(c, &forMs)
	c.Text(&a.Why)
	a.May, a.Hopeless, a.For = status == stopMay, status == stopHopeless, time.Duration(forMs)*time.Millisecond
	switch {
	case c.Err() != nil:
		return fmt.Errorf("%w: %w", errStop, c.Err())
	case status == stopNotLeader:
		return ErrNoLeader
	}
	return nil
}

// judgeStop decides on the leader whether a member may stop. Errors: ErrNoLeader, ctx's.
func (s *stops) judgeStop(ctx context.Context, of MemberID, wish StopWish) (a StopAnswer, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return a, ctx.Err()
	}
	term, leads := s.leadership.settledTerm()
	if !leads {
		return a, ErrNoLeader
	}
	if since, _ := s.leadership.LeaderKnown(); time.Since(since) < s.peerTimeout() {
		return StopAnswer{Why: "the leader has just begun to lead"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.heartbeatTimeout())
	defer cancel()
	round := s.newStopRound(ctx, of)
	a = s.decide(round, wish, time.Now(), s.peerTimeout())
	if !a.May {
		return a, nil
	}
	return a, s.leadership.proveSince(ctx, term, s.cfg.Clock.Now())
}

// stopRound is a leader's knowledge of the voters when it decides whether one member may stop.
type stopRound struct {
	of     MemberID
	votes  bool // it is a voter
	voters int
	others []stopVoter // in ascending order
}

// stopVoter is another voter than the one that asks.
type stopVoter struct {
	id MemberID
	// answers says that it answers, and state is then its answer.
	answers bool
	state   peer.StopState
	why     string // it would not count; empty: it would
}

// newStopRound queries the voters.
func (s *stops) newStopRound(ctx context.Context, of MemberID) *stopRound {
	round := &stopRound{of: of}
	query := map[MemberID]bool{}
	servers := s.Servers()
	for _, srv := range servers {
		if id := raftnet.IDOf(srv.ID); id != s.cfg.ID && id != of && srv.Suffrage == raft.Voter {
			query[id] = true
		}
	}
	answers := s.helloAll(ctx, slices.Sorted(maps.Keys(query)))
	since := s.cfg.Clock.Now().Add(-s.peerTimeout())
	for _, srv := range servers {
		id := raftnet.IDOf(srv.ID)
		if srv.Suffrage != raft.Voter {
			continue
		}
		round.voters++
		if id == of {
			round.votes = true
			continue
		}
		v := stopVoter{id: id}
		if id == s.cfg.ID {
			v.answers, v.state = true, s.reported()
			_, v.why = s.catchUp.Ready()
		} else if h, ok := answers[id]; ok {
			v.answers, v.state = true, h.Stop
			switch {
			case h.Disk != raftnet.DiskOf(srv.ID):
				v.why = "it has another disk than the one that is counted"
			case h.Ready == peer.IsNotReady:
				v.why = h.NotReady
			case !s.transport.SyncedSince(srv.ID, since):
				v.why = "it is behind the leader"
			}
		}
		round.others = append(round.others, v)
	}
	slices.SortFunc(round.others, func(a, b stopVoter) int { return int(a.id) - int(b.id) })
	return round
}

// decide decides, and reserves a yes for the member that asks. grace is for how long the answer may
// be under way.
func (s *stops) decide(round *stopRound, wish StopWish, now time.Time, grace time.Duration) StopAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(round, wish, now)
	left, able, staying := 0, 0, 0
	var why []string
	for _, v := range round.others {
		stops := v.state&peer.MayStop != 0 || now.Before(s.reserved[v.id])
		if v.state&peer.ToldToStop == 0 && (v.answers || now.Sub(s.toldOf[v.id]) >= stopGone) {
			staying++
		}
		switch {
		case !v.answers:
			why = append(why, fmt.Sprintf("member %d does not answer", v.id))
		case v.why != "":
			why = append(why, fmt.Sprintf("member %d does not count: %s", v.id, v.why))
		case stops:
			able++
			why = append(why, fmt.Sprintf("member %d has been told that it may stop", v.id))
		default:
			able++
			left++
		}
	}
	need := NewMaj(max(1, round.voters)).Size()
	a := StopAnswer{May: !round.votes || left >= need}
	switch {
	case a.May:
	case round.voters-1 < need:
		a.Hopeless, why = true, append(why, fmt.Sprintf("a cluster of %d voters serves nobody without it",
			round.voters))
	case staying == 0:
		a.Hopeless, why = true, append(why, whyAllStop)
	case able >= need && wish != StopLook:
		s.waitLocked(round.of, now)
	}
	if first := s.firstLocked(round.of); a.May && round.votes && wish != StopWill && first != NoMember {
		a.May, why = false, append(why, fmt.Sprintf("member %d has waited for longer", first))
		if until := s.granted[round.of]; now.Before(until) {
			return StopAnswer{May: true, For: until.Sub(now)} // the earlier yes holds
		}
		if wish != StopLook {
			s.waitLocked(round.of, now)
		}
	}
	if a.Why = strings.Join(why, "; "); a.May {
		a.Why = ""
		s.reserveLocked(&a, round.of, wish, now, grace)
	}
	return a
}

// note records that a member has been told to stop.
func (s *stops) note(of MemberID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.toldOf[of] = now
}

// noteLocked keeps in mind who has been told to stop, and forgets what is over.
func (s *stops) noteLocked(round *stopRound, wish StopWish, now time.Time) {
	over := func(_ MemberID, until time.Time) bool { return !now.Before(until) }
	maps.DeleteFunc(s.reserved, over)
	maps.DeleteFunc(s.granted, over)
	maps.DeleteFunc(s.waiting, func(_ MemberID, w stopWaiter) bool { return now.Sub(w.last) >= stopWaits })
	for _, v := range round.others {
		if v.state&peer.ToldToStop != 0 {
			s.toldOf[v.id] = now
		} else if v.answers {
			delete(s.toldOf, v.id) // it has started again
		}
	}
	if wish == StopWill {
		s.toldOf[round.of] = now
	}
}

// waitLocked records that a member waits for others that may stop.
func (s *stops) waitLocked(of MemberID, now time.Time) {
	w, ok := s.waiting[of]
	if !ok {
		w.since = now
	}
	w.last = now
	s.waiting[of] = w
}

// firstLocked is a member that has waited for longer than this one; NoMember if there is none.
func (s *stops) firstLocked(of MemberID) MemberID {
	own, waits := s.waiting[of]
	for id, w := range s.waiting {
		if id != of && (!waits || w.since.Before(own.since)) {
			return id
		}
	}
	return NoMember
}

// reserveLocked has a member count as stopped for a while.
func (s *stops) reserveLocked(a *StopAnswer, of MemberID, wish StopWish, now time.Time, grace time.Duration) {
	delete(s.waiting, of)
	switch wish {
	case StopAsk:
		a.For = stopAskFor
	case StopWill:
		a.For = stopWillFor
	default:
		return
	}
	s.granted[of], s.reserved[of] = now.Add(a.For), now.Add(grace)
}
