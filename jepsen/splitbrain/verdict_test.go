package splitbrain

import (
	"strings"
	"testing"
	"time"
)

// at is an instant.
func at(ms int) Instant { return Instant{time.Duration(ms) * time.Millisecond, true} }

// played is the case 1 | 2 of three voters, with the leader left, as it should come: m1 | m2 m3.
func played() *Result {
	c := Cases(3)[0]
	left, right := newSeen([]int{1}), newSeen([]int{2, 3})
	left.Stopped[1] = at(500)
	right.Leading[2], right.Writes, right.Wrote, right.Lock = at(1000), 80, at(1010), at(1020)
	right.Inherited[1] = at(3200)
	replica := func(id int) Replica {
		return Replica{Member: id, Zxid: "100000007", Tree: "abc", Nodes: 8}
	}
	return &Result{
		Case: c, Name: c.String(), LeaderBefore: 1, Sides: []Seen{left, right}, Told: map[int]Instant{1: at(1300)},
		Dropped:  map[int]Instant{1: at(1300)},
		Replicas: []Replica{replica(1), replica(2), replica(3)}, Watched: 3300 * time.Millisecond,
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(r *Result)
		wrong string // a part of the check that fails; empty: none
	}{
		{"as it should be", func(*Result) {}, ""},
		{"a write on the wrong side", func(r *Result) { r.Sides[0].Writes = 1 }, "m1 acknowledges no write"},
		{"a lock on the wrong side", func(r *Result) { r.Sides[0].Lock = at(900) }, "m1 grants no lock"},
		{"a lock is inherited on the wrong side", func(r *Result) { r.Sides[0].Inherited[2] = at(900) },
			"m1 grants no lock"},
		{"the old leader still leads", func(r *Result) { r.Sides[0].Leading[1] = at(0) },
			"m1 has no leader in the end"},
		{"the wrong side serves", func(r *Result) { delete(r.Sides[0].Stopped, 1) }, "m1 stops serving"},
		{"a client is never told", func(r *Result) { delete(r.Told, 1) }, "m1 disconnects its clients"},
		{"a client is told too late", func(r *Result) { r.Told[1] = at(3201) }, "every holder is told before"},
		{"nobody leads", func(r *Result) { delete(r.Sides[1].Leading, 2) }, "m2 m3 has one leader"},
		{"two lead", func(r *Result) { r.Sides[1].Leading[3] = at(1) }, "m2 m3 has one leader"},
		{"no write", func(r *Result) { r.Sides[1].Writes = 0 }, "m2 m3 accepts writes"},
		{"no lock", func(r *Result) { r.Sides[1].Lock = Instant{} }, "m2 m3 grants the lock"},
		{"a lock stays with the dead", func(r *Result) { delete(r.Sides[1].Inherited, 1) },
			"gives away the lock that a client of m1 held"},
		{"replicas differ", func(r *Result) { r.Differ = "m1 differs" }, "one history"},
		{"no replica was read", func(r *Result) { r.Replicas = nil }, "one history"},
	} {
		r := played()
		test.spoil(r)
		judge(r, true)
		var wrong []string
		for _, c := range r.Checks {
			if !c.OK {
				wrong = append(wrong, c.What)
			}
		}
		text := strings.Join(wrong, "; ")
		if r.OK() != (test.wrong == "") || !strings.Contains(text, test.wrong) {
			t.Errorf("%s: what is wrong is %q, want %q", test.name, text, test.wrong)
		}
	}
}

// Two holders of one lock are a broken promise only where it was given; they are always measured,
// and said.
func TestJudgeWindow(t *testing.T) {
	for _, promised := range []bool{true, false} {
		r := played()
		r.Told[1] = at(3700)
		r.Watched = 4 * time.Second
		judge(r, promised)
		if r.OK() == promised || r.Window != 500*time.Millisecond || r.Margin != -500*time.Millisecond {
			t.Errorf("promised %v: OK %v, window %v, margin %v", promised, r.OK(), r.Window, r.Margin)
		}
		if said := strings.Join(r.Sentences(), " "); !strings.Contains(said,
			"For 0.5 s one of them was still told that it is connected") {
			t.Errorf("it is not said: %s", said)
		}
	}
	r := played()
	judge(r, true)
	if r.Window != 0 || r.Margin != 1900*time.Millisecond {
		t.Errorf("window %v, margin %v", r.Window, r.Margin)
	}
}

// A cut into halves, with nobody who goes on.
func TestJudgeHalves(t *testing.T) {
	c := Case{Cluster: Group{Voters: 4}, Sides: []Group{{Voters: 2}, {Voters: 2}}}
	r := &Result{Case: c, LeaderBefore: 1, Told: map[int]Instant{}, Replicas: played().Replicas,
		Watched: 3 * time.Second}
	for _, ids := range [][]int{{1, 2}, {3, 4}} {
		s := newSeen(ids)
		for _, id := range ids {
			s.Stopped[id], r.Told[id] = at(900), at(1300)
		}
		r.Sides = append(r.Sides, s)
	}
	judge(r, true)
	if !r.OK() {
		t.Errorf("not as predicted: %+v", r.Checks)
	}
	r.Checks = nil
	r.Sides[1].Writes = 1
	if judge(r, true); r.OK() {
		t.Error("a write in one of two halves is as predicted")
	}
}

func TestCompareReplicas(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(r *Replica)
		want  string
	}{
		{"equal", func(*Replica) {}, ""},
		{"another tree", func(r *Replica) { r.Tree = "abd" }, "differ"},
		{"another zxid", func(r *Replica) { r.Zxid = "100000008" }, "100000008"},
	} {
		replicas := played().Replicas
		test.spoil(&replicas[2])
		err := compare(replicas)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// News before a client is connected again does not count.
func TestRecorder(t *testing.T) {
	rec := newRecorder([][]int{{1}, {2, 3}})
	s := &stage{sides: [][]int{{1}, {2, 3}}, rec: rec}
	s.heard(1, false) // before the break
	rec.breakBegins()
	s.heard(2, false) // while it is made
	rec.breakEnds()
	s.heard(1, false)
	s.heard(1, true)
	var r Result
	rec.finish(&r)
	s.heard(3, false) // after the end
	if len(r.Told) != 1 || r.Told[2] != at(0) || !r.Dropped[1].Came() {
		t.Errorf("told %v, dropped %v", r.Told, r.Dropped)
	}
}
