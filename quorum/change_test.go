package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// line is the server line of member i+1.
func line(i int, observer bool) znode.Member {
	return znode.Member{ID: uint8(i + 1), Host: hostName(i), PeerPort: 2888, ElectionPort: 3888, Observer: observer,
		ClientAddr: "0.0.0.0:2181"}
}

// inChanging runs f on a cluster of n members that can be changed.
func inChanging(t *testing.T, n int, f func(t *testing.T, c *cluster)) {
	t.Helper()
	var lines []znode.Member
	for i := range n {
		lines = append(lines, line(i, false))
	}
	inCluster(t, n, func(cfg *Config) {
		cfg.Flags |= znode.Reconfig
		if len(cfg.Members) == n { // otherwise it is one that joins
			cfg.ConfigText = znode.ConfigText(lines, 0)
		} else {
			ms := slices.Clone(lines)
			for _, m := range cfg.Members[n:] {
				ms = append(ms, line(int(m.ID)-1, m.Observer))
			}
			cfg.ConfigText = znode.ConfigText(ms, 0)
		}
	}, f)
}

// join starts member i+1, new, with the server lines of the present members and its own.
func (c *cluster) join(i int, observer bool) {
	c.t.Helper()
	for len(c.reps) <= i {
		c.disks, c.recs, c.reps = append(c.disks, nil), append(c.recs, nil), append(c.reps, nil)
	}
	c.disks[i] = simdisk.New()
	c.disks[i].SetSyncTime(time.Millisecond)
	if c.files[i] == nil {
		c.files[i] = append(slices.Clone(c.members), Member{ID: MemberID(i + 1), Addr: hostName(i) + ":2888", Observer: observer})
	}
	c.start(i)
	c.t.Cleanup(func() { c.stop(i) })
}

func (c *cluster) ctx(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), d)
	c.t.Cleanup(cancel)
	return ctx
}

// must requests a change from member i+1, which has to succeed.
func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// counted is what raft counts, as the leader has it: "1 2 3o", observers with an o.
func (c *cluster) counted(i int) string {
	var list []string
	for _, s := range c.reps[i].Servers() {
		mark := ""
		if s.Suffrage != raft.Voter {
			mark = "o"
		}
		list = append(list, fmt.Sprint(raftnet.IDOf(s.ID))+mark)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// agreed is what the state says of the members.
func (c *cluster) agreed(i int) string {
	ms, _ := c.reps[i].Members()
	var list []string
	for _, m := range ms {
		mark := ""
		if m.Observer {
			mark = "o"
		}
		list = append(list, fmt.Sprint(m.ID)+mark)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// settle waits until raft counts exactly the members of the state, and returns them.
func (c *cluster) settle() string {
	c.t.Helper()
	for range 6000 {
		for i, r := range c.reps {
			if r == nil || c.cut[i] {
				continue
			}
			if _, leads := r.leadership.settledTerm(); !leads {
				continue
			}
			r.state.mu.RLock()
			busy := r.state.store.Change() != nil
			r.state.mu.RUnlock()
			if got := c.counted(i); !busy && got == c.agreed(i) {
				return got
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	for i, r := range c.reps {
		if r != nil {
			c.t.Logf("member %d: raft counts %q, the members are %q, %s", i+1, c.counted(i), c.agreed(i), r.Status().Role)
		}
	}
	c.t.Fatal("raft does not come to count the members")
	return ""
}

func (c *cluster) anyone() *Replica {
	for i, r := range c.reps {
		if r != nil && !c.cut[i] {
			return r
		}
	}
	c.t.Fatal("nobody is left")
	return nil
}

func TestMembersAreAddedAndRemoved(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.propose(l, createSession(9))
		for i := range uint64(50) {
			c.propose(l, sequential(9, i+1, "/n-"))
		}
		c.join(3, false)
		time.Sleep(5 * time.Second)
		if got := c.reps[3].Status(); got.Role != "looking" {
			t.Fatalf("member 4 takes part before it is a member: %+v", got)
		}
		c.must(c.reps[(l+1)%3].AddMember(c.ctx(time.Minute), line(3, false)))
		if got := c.settle(); got != "1 2 3 4" {
			t.Fatal(got)
		}
		c.agree()
		if got := c.reps[3].Status(); got.Role != "follower" || got.Voters != 4 {
			t.Fatalf("%+v", got)
		}
		c.join(4, true)
		c.must(c.reps[3].AddMember(c.ctx(time.Minute), line(4, true)))
		if got := c.settle(); got != "1 2 3 4 5o" {
			t.Fatal(got)
		}
		// An observer becomes a voter.
		c.must(c.anyone().AddMember(c.ctx(time.Minute), line(4, false)))
		if got := c.settle(); got != "1 2 3 4 5" {
			t.Fatal(got)
		}
		c.must(c.anyone().AddMember(c.ctx(time.Minute), line(0, true))) // and a voter an observer
		if got := c.settle(); got != "1o 2 3 4 5" {
			t.Fatal(got)
		}
		c.must(c.anyone().RemoveMember(c.ctx(time.Minute), 1))
		if got := c.settle(); got != "2 3 4 5" {
			t.Fatal(got)
		}
		time.Sleep(10 * time.Second)
		if got := c.reps[0].Status(); got.Role != "looking" {
			t.Fatalf("the removed member is %+v", got)
		}
		// A restart changes nothing of that, whatever the file says.
		for i := range c.reps {
			c.crash(i)
		}
		for i := range c.reps {
			c.start(i)
		}
		if got := c.settle(); got != "2 3 4 5" {
			t.Fatal(got)
		}
		c.stop(0)
		l = c.leader()
		c.recs[l].result(t, c.propose(l, sequential(9, 51, "/n-")))
		c.agree()
	})
}

// A new voter that starts when the change has been requested gets its vote with the log. The change
// does not wait for more than 10 s for one that does not answer, if the others are a majority: raft
// counts it as soon as it has come and its disk is known.
func TestNewVoterThatStartsLate(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		added := make(chan error, 1)
		go func() { added <- c.reps[l].AddMember(c.ctx(time.Minute), line(3, false)) }()
		time.Sleep(3 * time.Second)
		if got := c.counted(l); got != "1 2 3" {
			t.Fatalf("before it answers raft counts %q", got)
		}
		// Meanwhile another one may be away for a moment, without which there is no majority.
		c.isolate((l + 1) % 3)
		time.Sleep(3 * time.Second)
		c.heal()
		c.join(3, false)
		c.must(<-added)
		c.must(c.reps[l].AddMember(c.ctx(time.Minute), line(4, false)))
		if counted, agreed := c.counted(l), c.agreed(l); counted != "1 2 3 4" || agreed != "1 2 3 4 5" {
			t.Fatalf("raft counts %s, the members are %s", counted, agreed)
		}
		c.join(4, false)
		if got := c.settle(); got != "1 2 3 4 5" {
			t.Fatal(got)
		}
	})
}

// The version is the zxid of the change, and a change to what the members are already is one, too.
func TestVersionOfTheMembers(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		time.Sleep(time.Second)
		check := func() wire.Zxid {
			ms, version := c.reps[l].Members()
			c.reps[l].View(func(s *znode.Store) {
				data, stat, _ := s.Get("/zookeeper/config", []znode.Identity{{Scheme: "super"}})
				if stat.Mzxid != version || string(data) != znode.ConfigText(ms, version) || version == 0 {
					t.Errorf("%s %v, want %v", data, stat, version)
				}
			})
			return version
		}
		first := check()
		c.must(c.reps[l].Reconfigure(c.ctx(time.Minute), wire.ReconfigRequest{NullNewMembers: true, CurConfigID: int64(first)}))
		if second := check(); second <= first {
			t.Errorf("version %v after %v", second, first)
		}
		err := c.reps[l].Reconfigure(c.ctx(time.Minute), wire.ReconfigRequest{NullNewMembers: true, CurConfigID: int64(first)})
		if !errors.Is(err, wire.CodeBadVersion) {
			t.Error(err)
		}
	})
}

// A leader that has just won an election, and does not propose yet, transfers its leadership all
// the same.
func TestTransferLeadershipAtOnce(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		leader := c.reps[(l+2)%3]
		for i := range 20 {
			to := MemberID((l+(i+1)%2)%3 + 1)
			if err := leader.TransferLeadership(c.ctx(10*time.Second), to, nil); err != nil {
				t.Fatalf("transfer %d, to member %d: %v", i, to, err)
			}
		}
	})
}

func TestTransferLeadership(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		to, third := (l+1)%3, (l+2)%3
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.must(c.reps[third].TransferLeadership(c.ctx(10*time.Second), MemberID(to+1), nil))
		if got := c.leader(); got != to {
			t.Fatalf("member %d leads", got+1)
		}
		c.must(c.reps[to].TransferLeadership(c.ctx(10*time.Second), NoMember, nil))
		if got := c.leader(); got == to {
			t.Fatal("the leader is as before")
		}
		if err := c.reps[c.leader()].TransferLeadership(c.ctx(10*time.Second), 77, nil); err == nil || !strings.Contains(err.Error(), "no member 77") {
			t.Error(err)
		}
	})
}

// The leadership goes to the member that was named also while raft is being made to count other
// members, at whatever moment of a step.
func TestTransferBesideAChange(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		for i := range 100 {
			l := c.leader()
			c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
			if i == 0 {
				c.join(3, true)
			} else {
				c.start(3)
			}
			c.must(c.reps[l].AddMember(c.ctx(time.Minute), line(3, true)))
			c.settle()
			c.must(c.reps[l].RemoveMember(c.ctx(time.Minute), 4))
			// Raft takes the last step one or two pauses after the reply.
			after := time.Duration(1+i%2)*changePause + 3*time.Millisecond + time.Duration(i)*30*time.Microsecond
			time.Sleep(after)
			to := MemberID((l+1)%3 + 1)
			if err := c.reps[l].TransferLeadership(c.ctx(10*time.Second), to, nil); err != nil {
				t.Fatalf("%v after the change, to member %d: %v", after, to, err)
			}
			if got := c.settle(); got != "1 2 3" {
				t.Fatal(got)
			}
			c.crash(3)
		}
	})
}

// A transfer to a voter that takes nothing fails, as often as it is tried, and then all is as
// before, also when this member has lost the leadership meanwhile and leads again. After the
// library's own transfer the leader might refuse all entries then.
func TestTransferToAVoterThatTakesNothing(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		to := (l + 1) % 3
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.isolate(to)
		c.recs[l].result(t, c.propose(l, createSession(9)))
		time.Sleep(30 * time.Second) // by now the leader only tries now and then
		for range 4 {
			if err := c.reps[l].leadership.transferTo(MemberID(to + 1)); err == nil {
				t.Fatal("transferred to one that is cut off")
			}
		}
		c.recs[l].result(t, c.propose(l, sequential(9, 1, "/n-")))
		c.isolate(l)
		c.recs[l].await(t, "end of leadership", func() bool { return !c.recs[l].leads })
		c.heal()
		if now := c.leader(); now != l {
			c.must(c.reps[now].TransferLeadership(c.ctx(10*time.Second), MemberID(l+1), nil))
		}
		c.recs[l].result(t, c.propose(l, sequential(9, 2, "/n-")))
	})
}

// A change that would leave no majority of those alive is refused, and nothing of it remains.
func TestChangeWithoutAMajorityIsRefused(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		dead := (l + 1) % 3
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		time.Sleep(time.Second)
		c.crash(dead)
		_, before := c.reps[l].Members()
		err := c.reps[l].RemoveMember(c.ctx(time.Minute), MemberID((l+2)%3+1))
		want := fmt.Sprintf("would leave 1 of 2 live: missing server.%d (10.0.0.%d:2888)", dead+1, dead+1)
		if !errors.Is(err, wire.CodeNewConfigNoQuorum) || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
		if got := c.settle(); got != "1 2 3" {
			t.Fatal(got)
		}
		if _, after := c.reps[l].Members(); after != before {
			t.Fatalf("version %v, was %v", after, before)
		}
		// The dead one can be replaced, and only then.
		c.join(3, false)
		c.must(c.reps[l].Reconfigure(c.ctx(time.Minute), wire.ReconfigRequest{Leaving: fmt.Sprint(dead + 1), Joining: line(3, false).String(),
			NullNewMembers: true, CurConfigID: -1}))
		if got := c.settle(); strings.Contains(got, fmt.Sprint(dead+1)) || !strings.Contains(got, "4") {
			t.Fatal(got)
		}
		c.agree()
	})
}

// All members are replaced in one change, the leader among them.
func TestAllMembersAreReplaced(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.propose(l, createSession(9))
		const n = 100
		var joining []string
		for i := 3; i < 6; i++ {
			c.join(i, false)
			joining = append(joining, line(i, false).String())
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range uint64(n) {
				if c.reps[3].Propose(t.Context(), sequential(9, i+1, "/n-")) != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		err := c.reps[l].Reconfigure(c.ctx(time.Minute), wire.ReconfigRequest{NewMembers: strings.Join(joining, ","), CurConfigID: -1})
		if err != nil && !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		<-done
		if got := c.settle(); got != "4 5 6" {
			t.Fatal(got)
		}
		for i := range 3 {
			c.stop(i)
		}
		c.leader()
		for i := 3; i < 6; i++ {
			if r := c.recs[i].result(t, sequential(9, n, "").Key()); r.Path != fmt.Sprintf("/n-%010d", n-1) {
				t.Fatalf("member %d: %+v", i+1, r)
			}
		}
		c.agree()
	})
}

// The leader dies in the middle of a change, at every step of it: the change is carried out all the
// same, or was not begun.
func TestLeaderDiesInAChange(t *testing.T) {
	for _, wait := range []time.Duration{0, 2, 4, 6, 8, 10, 14, 18, 22, 30, 40, 60} {
		t.Run(fmt.Sprintf("after %d ms", wait), func(t *testing.T) {
			inChanging(t, 5, func(t *testing.T, c *cluster) {
				l := c.leader()
				c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
				time.Sleep(time.Second)
				c.propose(l, createSession(9))
				c.join(5, false)
				time.Sleep(time.Second)
				asker := (l + 1) % 5
				gone := (l + 2) % 5
				result := make(chan error, 1)
				go func() {
					result <- c.reps[asker].Reconfigure(c.ctx(time.Minute), wire.ReconfigRequest{Leaving: fmt.Sprint(gone + 1),
						Joining: line(5, false).String(), NullNewMembers: true, CurConfigID: -1})
				}()
				time.Sleep(wait * time.Millisecond)
				c.crash(l)
				if err := <-result; err != nil {
					// The command is in the member's outbox, so it takes effect in the end.
					t.Fatal(err)
				}
				got := c.settle()
				for i := range 6 {
					if want := i != gone; strings.Contains(got, fmt.Sprint(i+1)) != want {
						t.Errorf("members %q, and %d was to go", got, gone+1)
					}
				}
				c.start(l)
				if again := c.settle(); again != got {
					t.Errorf("members %q, then %q", got, again)
				}
				c.stop(gone)
				at := c.leader()
				c.recs[at].result(t, c.propose(at, sequential(9, 1, "/n-")))
				c.agree()
			})
		})
	}
}

// Members come and go while the leader is cut off again and again. Whatever happens, raft ends up
// counting what the state says, and no command is lost or doubled.
func TestChangesUnderPartitions(t *testing.T) {
	inChanging(t, 5, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		c.join(5, false)
		var seq uint64
		for round := range 8 {
			l := c.leader()
			asker := (l + 1) % 5
			result := make(chan error, 1)
			go func() {
				if round%2 == 0 {
					result <- c.reps[asker].AddMember(c.ctx(time.Minute), line(5, round%4 == 2))
				} else {
					result <- c.reps[asker].RemoveMember(c.ctx(time.Minute), 6)
				}
			}()
			for range 20 {
				seq++
				c.propose((l+2)%5, sequential(9, seq, "/n-"))
			}
			time.Sleep(time.Duration(round*7) * time.Millisecond)
			c.isolate(l)
			time.Sleep(5 * time.Second)
			c.heal()
			if err := <-result; err != nil && !errors.Is(err, wire.CodeBadVersion) {
				t.Fatalf("round %d: %v", round, err)
			}
			c.settle()
			want := "1 2 3 4 5"
			if round%2 == 0 {
				want += map[bool]string{true: " 6o", false: " 6"}[round%4 == 2]
			} else {
				c.stop(5) // a removed member is started again as a new one
				c.join(5, false)
			}
			if got := c.settle(); got != want {
				t.Fatalf("round %d: members %q, want %q", round, got, want)
			}
		}
		c.stop(5)
		for i := range 5 {
			if r := c.recs[i].result(t, sequential(9, seq, "").Key()); r.Path != fmt.Sprintf("/n-%010d", seq-1) {
				t.Fatalf("member %d: %+v", i+1, r)
			}
		}
		c.agree()
	})
}

// A member that starts with another list takes part in what there is. It takes no part in the birth
// of a cluster.
func TestAgreedMembersCountNotThoseOfTheFile(t *testing.T) {
	differs := true
	other := func(cfg *Config) {
		if cfg.ID == 3 && differs {
			cfg.Members = append(cfg.Members[:3:3], Member{ID: 4, Addr: "10.0.0.4:2888"}, Member{ID: 5, Addr: "10.0.0.5:2888"})
		}
	}
	inCluster(t, 3, other, func(t *testing.T, c *cluster) {
		time.Sleep(time.Minute)
		for i := range 3 {
			if s := c.reps[i].Status(); s.Voters != 0 {
				t.Errorf("member %d: %+v", i+1, s)
			}
		}
		restart := func(with bool) {
			differs = with
			c.stop(2)
			c.start(2)
			c.leader()
		}
		restart(false)
		restart(true)
		created := c.propose(c.leader(), createSession(9))
		for i := range 3 {
			c.recs[i].result(t, created)
			if got := c.reps[i].Status().Voters; got != 3 {
				t.Errorf("member %d counts %d voters", i+1, got)
			}
		}
	})
}

// New members must not become a cluster of their own, though they would be a majority of what they
// know.
func TestNewMembersWaitForTheCluster(t *testing.T) {
	inChanging(t, 2, func(t *testing.T, c *cluster) {
		c.leader()
		all := slices.Clone(c.members)
		for i := 2; i < 5; i++ {
			all = append(all, Member{ID: MemberID(i + 1), Addr: hostName(i) + ":2888"})
		}
		for i := 2; i < 5; i++ {
			c.files[i] = all
			c.join(i, false)
		}
		time.Sleep(time.Minute)
		for i := 2; i < 5; i++ {
			if s := c.reps[i].Status(); s.Role != "looking" || s.Voters != 0 {
				t.Errorf("member %d: %+v", i+1, s)
			}
		}
	})
}

// Members of two clusters whose addresses were mixed up do not exchange an entry.
//
// Defends: C1.
func TestMembersOfAnotherClusterAreTurnedAway(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.stop((l + 1) % 3)
		i := (l + 1) % 3
		if err := (&store.Stores{Stable: c.disks[i]}).SetNumber(store.Cluster, 77); err != nil {
			t.Fatal(err)
		}
		c.start(i)
		time.Sleep(time.Minute)
		if id := c.reps[i].Leader(); id != NoMember {
			t.Fatalf("a member of another cluster follows %d", id)
		}
		if id := c.reps[l].Leader(); id == MemberID(i+1) || id == NoMember {
			t.Fatalf("member %d follows %d", l+1, id)
		}
	})
}

// A voter that has lost its disk must not help to elect a leader that lacks what it once had: what
// was answered would be lost.
//
// Defends: C1.
func TestVoterWithoutItsDiskDoesNotVote(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		behind, lost := (l+1)%3, (l+2)%3
		c.propose(l, createSession(9))
		c.recs[behind].result(t, createSession(9).Key())
		c.isolate(behind)
		const n = 50
		for i := range uint64(n) {
			c.propose(l, sequential(9, i+1, "/n-"))
		}
		c.recs[l].result(t, sequential(9, n, "").Key())
		// Now the leader goes, and the other one that has all of it loses its disk.
		c.crash(lost)
		c.crash(l)
		c.disks[lost] = simdisk.New()
		c.heal()
		c.start(lost)
		time.Sleep(time.Minute)
		for _, i := range []int{behind, lost} {
			if id := c.reps[i].Leader(); id != NoMember {
				t.Fatalf("member %d follows %d, and what was committed is gone", i+1, id)
			}
		}
		c.start(l)
		at := c.leader()
		if r := c.recs[at].result(t, c.propose(at, sequential(9, n+1, "/n-"))); r.Path != fmt.Sprintf("/n-%010d", n) {
			t.Fatalf("%+v", r)
		}
		c.agree()
		// Its disk is replaced by the new one, which votes, also after a restart.
		c.settle()
		for range 2 {
			c.stop(l)
			c.leader()
			c.stop(lost)
			c.start(l)
			c.start(lost)
			c.leader()
		}
	})
}

// A member that was down while the members changed knows none of the new ones, and has to listen to
// them all the same.
func TestMemberComesBackToOtherMembers(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		away := (l + 1) % 3
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		time.Sleep(time.Second)
		c.crash(away)
		c.join(3, false)
		c.must(c.reps[l].AddMember(c.ctx(time.Minute), line(3, false)))
		c.must(c.reps[l].TransferLeadership(c.ctx(time.Minute), 4, nil))
		time.Sleep(5 * time.Second) // nothing of the old leader's is on its way any more
		c.start(away)
		if got := c.leader(); got != 3 {
			t.Fatalf("member %d leads", got+1)
		}
		c.propose(away, createSession(9))
		c.recs[away].result(t, createSession(9).Key())
		c.agree()
	})
}

// A disk that was replaced comes back, and the member that leads joined meanwhile: the disk knows
// nothing of the leader, which has to see it by itself.
func TestReplacedDiskComesBackToANewLeader(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		at := (l + 1) % 3
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.crash(at)
		old := c.disks[at]
		c.wipe(at)
		c.start(at)
		c.takenIn(at)
		c.join(3, false)
		c.must(c.reps[l].AddMember(c.ctx(time.Minute), line(3, false)))
		c.must(c.reps[l].TransferLeadership(c.ctx(time.Minute), 4, nil))
		time.Sleep(5 * time.Second) // nothing of the old leader's is on its way any more
		c.crash(at)
		c.disks[at] = old
		out, change := &logged{}, c.change
		c.change = func(cfg *Config) { change(cfg); cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) }
		c.start(at)
		c.takenIn(at)
		if out.lines("another disk has replaced the one of this member") == 0 || out.lines("has been removed") > 0 {
			t.Errorf("the member says of its disk:\n%s", out.b.String())
		}
		if got := c.leader(); got != 3 {
			t.Fatalf("member %d leads", got+1)
		}
		c.agree()
	})
}

// A new member gets a snapshot, with the change that is under way in it, when the log does not
// reach back far enough.
func TestNewMemberGetsASnapshot(t *testing.T) {
	inChanging(t, 3, func(t *testing.T, c *cluster) {
		old := c.change
		c.change = func(cfg *Config) { old(cfg); cfg.TrailingEntries = 1 }
		for i := range 3 {
			c.stop(i)
		}
		for i := range 3 {
			c.start(i)
		}
		l := c.leader()
		c.propose(l, createSession(9))
		const n = 300
		for i := range uint64(n) {
			c.propose(l, sequential(9, i+1, "/n-"))
			if i%50 == 49 {
				c.recs[l].result(t, sequential(9, i+1, "").Key())
			}
		}
		for i := range 3 {
			c.recs[i].result(t, sequential(9, n, "").Key())
			c.must(c.reps[i].raft.Snapshot().Error())
		}
		c.join(3, false)
		c.must(c.reps[l].AddMember(c.ctx(time.Minute), line(3, false)))
		c.recs[3].await(t, "a snapshot", func() bool { return c.recs[3].restored > 0 })
		c.settle()
		c.agree()
		if r := c.recs[3].result(t, c.propose(3, sequential(9, n+1, "/n-"))); r.Path != fmt.Sprintf("/n-%010d", n) {
			t.Fatalf("%+v", r)
		}
	})
}

// A disk has the identity of a member, the cluster, and the first configuration, and nothing more:
// it lost its power right after the birth. The member has been replaced since, and the disk that
// did so is gone. The old one is taken in again.
func TestDiskFromTheBirthIsTakenInAgain(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		at := (c.leader() + 1) % 3
		cluster, servers := c.reps[at].roster.Cluster(), c.reps[at].Servers()
		old := c.reps[at].self
		c.wipe(at)
		c.recs[c.leader()].result(t, c.propose(c.leader(), createSession(9)))
		c.start(at)
		c.takenIn(at)
		c.wipe(at)
		// Nobody knows that the disk acknowledged anything: the others start again.
		others := []int{(at + 1) % 3, (at + 2) % 3}
		for _, i := range others {
			c.crash(i)
		}
		for _, i := range others {
			c.start(i)
		}
		stores := simStores(t, c.disks[at])
		id := store.Identity{Owner: uint64(at + 1), Disk: uint64(raftnet.DiskOf(old))}
		birth := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
			Data: raft.EncodeConfiguration(raft.Configuration{Servers: servers})}
		if err := errors.Join(stores.SetIdentity(id), stores.SetNumber(store.Cluster, uint64(cluster)),
			stores.SetNumber(store.Term, 1), stores.Log.StoreLogs([]*raft.Log{birth}), stores.Close()); err != nil {
			t.Fatal(err)
		}
		c.start(at)
		c.takenIn(at)
		if c.reps[at].self != old {
			t.Errorf("the disk is %v, and was to be %v", c.reps[at].self, old)
		}
		c.agree()
	})
}
