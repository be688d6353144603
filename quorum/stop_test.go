package quorum

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/quorum/peer"
)

// What the leader says, by what it knows of the other voters. Each is a letter: r is ready, b is
// behind, d does not answer, m has been told that it may stop, t has been told to stop, T both.
func TestDecideStop(t *testing.T) {
	for _, tt := range []struct {
		others   string
		votes    bool
		may      bool
		hopeless bool
		why      string
	}{
		{"rr", true, true, false, ""},
		{"rb", true, false, false, "member 3 does not count: it is behind"},
		{"dr", true, false, false, "member 2 does not answer"},
		{"rm", true, false, false, "member 3 has been told that it may stop"},
		{"rt", true, true, false, ""}, // it waits
		{"rT", true, false, false, "member 3 has been told that it may stop"},
		{"tT", true, false, true, "all members have been told to stop"},
		{"td", true, false, false, "member 3 does not answer"},
		{"rb", false, true, false, ""}, // an observer
		{"", true, false, true, "a cluster of 1 voters serves nobody without it"},
		{"r", true, false, true, "a cluster of 2 voters serves nobody without it"},
		{"rrrr", true, true, false, ""},
		{"rrrb", true, true, false, ""},
		{"rrmb", true, false, false, "member 4 has been told that it may stop; member 5 does not count: it is behind"},
	} {
		round := &stopRound{of: 1, votes: tt.votes, voters: len(tt.others)}
		if tt.votes {
			round.voters++
		}
		for i, letter := range tt.others {
			v := stopVoter{id: MemberID(i + 2), answers: letter != 'd'}
			if letter == 'b' {
				v.why = "it is behind"
			}
			v.state = map[rune]peer.StopState{'m': peer.MayStop, 't': peer.ToldToStop, 'T': peer.MayStop | peer.ToldToStop}[letter]
			round.others = append(round.others, v)
		}
		s := newStops(nil, nil, nil)
		a := s.decide(round, StopAsk, time.Now(), time.Second)
		if a.May != tt.may || a.Hopeless != tt.hopeless || a.May && (a.For != stopAskFor || a.Why != "") || !strings.Contains(a.Why, tt.why) {
			t.Errorf("%q, votes: %v: %+v, want %v and %q", tt.others, tt.votes, a, tt.may, tt.why)
		}
	}
}

// Of members that only ask, again and again, each gets its turn.
func TestStopsAreFair(t *testing.T) {
	s, now := newStops(nil, nil, nil), time.Now()
	may := map[MemberID]time.Time{} // as the members report it
	turns := map[MemberID]int{}
	for range 1200 {
		now = now.Add(100 * time.Millisecond)
		stopping := 0
		for of := MemberID(1); of <= 3; of++ {
			round := &stopRound{of: of, votes: true, voters: 3}
			for id := MemberID(1); id <= 3; id++ {
				if id != of {
					v := stopVoter{id: id, answers: true}
					if now.Before(may[id]) {
						v.state = peer.MayStop
					}
					round.others = append(round.others, v)
				}
			}
			if a := s.decide(round, StopAsk, now, time.Second); a.May {
				may[of] = now.Add(a.For)
				turns[of]++
				stopping++
			}
		}
		if stopping > 1 {
			t.Fatalf("%d of 3 members may stop", stopping)
		}
	}
	if len(turns) != 3 {
		t.Errorf("only some members got a yes: %v", turns)
	}
}

// Of three members that ask at the same time one is told yes, whoever leads and also when the
// leader changes meanwhile.
func TestOneOfThreeMayStop(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.awaitReady(0, 1, 2)
		until := make([]time.Time, 3) // a member was told that it may stop
		ask := func(i int, wish StopWish) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if a, err := c.reps[i].MayStop(ctx, wish); err == nil && a.May {
				until[i] = time.Now().Add(a.For)
			}
		}
		yes := func() (n int) {
			for _, u := range until {
				if time.Now().Before(u) {
					n++
				}
			}
			return n
		}
		all := func() {
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() { ask(i, StopAsk) })
			}
			wg.Wait()
			if n := yes(); n > 1 {
				t.Fatalf("%d of three members may stop: %v", n, until)
			}
		}
		told := 0
		for round := range 60 {
			if round%7 == 3 {
				l := c.leader()
				var wg sync.WaitGroup
				wg.Go(func() { _ = c.reps[l].TransferLeadership(t.Context(), NoMember, nil) })
				all()
				wg.Wait()
			}
			all()
			told += yes()
			time.Sleep(time.Second)
		}
		if told < 30 {
			t.Errorf("one was told yes in %d of 60 rounds", told)
		}
	})
}

// A member that has been told to stop, stopped and started again holds up nobody any more.
func TestStopIsOverWithTheRestart(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f, g := (l+1)%3, (l+2)%3
		c.awaitReady(0, 1, 2)
		await := func(i int, wish StopWish, may bool, why string) StopAnswer {
			t.Helper()
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				a, err := c.reps[i].MayStop(t.Context(), wish)
				if err == nil && a.May == may && strings.Contains(a.Why, why) {
					return a
				}
				if time.Now().After(deadline) {
					t.Fatalf("member %d: %+v, %v; want %v", i+1, a, err, may)
				}
			}
		}
		await(f, StopWill, true, "")
		await(g, StopAsk, false, fmt.Sprintf("member %d has been told that it may stop", f+1))
		c.stop(f)
		await(g, StopAsk, false, fmt.Sprintf("member %d does not answer", f+1))
		c.start(f)
		c.awaitReady(f)
		began := time.Now()
		await(g, StopAsk, true, "")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the next one may stop only after %v", took)
		}
		if a := await(l, StopLook, false, "has been told"); a.For != 0 {
			t.Errorf("a look is reserved: %+v", a)
		}
	})
}

// When all members have been told to stop, none waits for the others, also when the leader is gone
// first.
func TestAllAreToldToStop(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.awaitReady(0, 1, 2)
		time.Sleep(5 * time.Second)
		l := c.leader()
		ended := make([]bool, 3)
		ask := func(i int) bool {
			a, err := c.reps[i].MayStop(t.Context(), StopWill)
			return err == nil && (a.May || a.Hopeless)
		}
		if !ask(l) {
			t.Fatal("the first one may not stop")
		}
		c.stop(l)
		for range 20 {
			for _, i := range []int{(l + 1) % 3, (l + 2) % 3} {
				ended[i] = ended[i] || ask(i)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if !ended[(l+1)%3] || !ended[(l+2)%3] {
			t.Error("those that are left wait for the one that has stopped")
		}
	})
}
