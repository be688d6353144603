package quorum

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

var (
	changeSeeds = flag.Int("changes.seeds", 4, "how many random histories of changes to try")
	changeSeed  = flag.Uint64("changes.seed", 1, "the first of them")
)

// TestRandomChanges has members come, go and change their role in random order, while others crash,
// are cut off, and transfer the leadership. Whatever happens, raft ends up counting what the state
// says, every command takes effect exactly once, and all members have the same state.
//
// Defends: C1.
func TestRandomChanges(t *testing.T) {
	for i := range few(*changeSeeds) {
		seed := *changeSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inChanging(t, 5, func(t *testing.T, c *cluster) {
				r := &randomChanges{cluster: c, rand: rand.New(rand.NewPCG(seed, 1)), present: map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}}
				r.run()
			})
		})
	}
}

// randomChanges is one history. Member 1 stays a member, requests the changes, and proposes the
// commands.
type randomChanges struct {
	*cluster
	rand    *rand.Rand
	present map[int]bool // members, as of the last settled change
	seq     uint64
	made    []string // changes that were made, for the log
}

func (r *randomChanges) run() {
	r.leader()
	r.propose(0, createSession(9))
	for range 12 {
		r.round()
	}
	counted := r.settle()
	for i, rep := range r.reps {
		if rep != nil && !strings.Contains(counted, fmt.Sprint(i+1)) {
			r.stop(i)
		}
	}
	r.leader()
	for i, rep := range r.reps {
		if rep == nil {
			continue
		}
		if res := r.recs[i].result(r.t, r.last().Key()); res.Code != wire.CodeOK {
			r.t.Errorf("member %d: %+v", i+1, res)
		}
	}
	r.agree()
	var children []string
	r.reps[0].View(func(s *znode.Store) { children, _, _ = s.Children("/", nil) })
	if got := len(children) - 1; got != int(r.seq) { // -1: /zookeeper
		r.t.Errorf("%d nodes from %d creates", got, r.seq)
	}
	for i := range r.recs {
		if r.recs[i] == nil {
			continue
		}
		for k, n := range r.recs[i].times {
			if n != 1 && k.Session == 9 {
				r.t.Errorf("member %d applied %v %d times", i+1, k, n)
			}
		}
	}
	r.t.Logf("members %s after %s", counted, strings.Join(r.made, ", "))
}

// last is a command that has been proposed by now, the newest.
func (r *randomChanges) last() *znode.Command { return sequential(9, r.seq, "/n-") }

func (r *randomChanges) some(n int) {
	for range n {
		r.seq++
		r.propose(0, r.last())
	}
}

// round requests a change, and breaks something while it is carried out.
func (r *randomChanges) round() {
	result := make(chan error, 1)
	name, change := r.pick()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	go func() { result <- change(ctx) }()
	r.some(r.rand.IntN(20))
	time.Sleep(time.Duration(r.rand.IntN(150)) * time.Millisecond)
	crashed := r.disturb()
	r.some(r.rand.IntN(20))
	time.Sleep(time.Duration(r.rand.IntN(4000)) * time.Millisecond)
	r.heal()
	for _, i := range crashed {
		r.start(i)
	}
	err := <-result
	refused := wire.CodeOK
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrOutcomeUnknown) {
		r.t.Fatalf("%s: %v", name, err)
	}
	if err == nil {
		r.made = append(r.made, name)
	}
	counted := r.settle()
	for i := 1; i < len(r.reps); i++ {
		member := strings.Contains(counted, fmt.Sprint(i+1))
		if r.present[i] = member; !member && r.reps[i] != nil {
			r.stop(i) // it comes back as a new one, if it does
		}
	}
}

// pick chooses a change: a new member, one that leaves, or another role.
func (r *randomChanges) pick() (string, func(context.Context) error) {
	i := 1 + r.rand.IntN(6)
	asker := r.reps[0]
	if r.present[i] && r.rand.IntN(2) == 0 {
		return fmt.Sprintf("-%d", i+1), func(ctx context.Context) error { return asker.RemoveMember(ctx, MemberID(i+1)) }
	}
	if !r.present[i] {
		if i < len(r.members) {
			r.files[i] = r.members
		}
		r.join(i, false)
	}
	observer := r.rand.IntN(3) == 0
	mark := map[bool]string{true: "o"}[observer]
	return fmt.Sprintf("+%d%s", i+1, mark), func(ctx context.Context) error { return asker.AddMember(ctx, line(i, observer)) }
}

// disturb breaks something, or nothing. It returns the members that it has crashed.
func (r *randomChanges) disturb() (crashed []int) {
	var up []int
	at := -1
	for i, rep := range r.reps {
		if rep == nil {
			continue
		}
		if _, leads := rep.leadership.leadingTerm(); leads {
			at = i
		}
		if i > 0 {
			up = append(up, i)
		}
	}
	victim := up[r.rand.IntN(len(up))]
	if at > 0 && r.rand.IntN(2) == 0 {
		victim = at
	}
	switch r.rand.IntN(5) {
	case 0:
		r.isolate(victim)
	case 1:
		r.crash(victim)
		crashed = append(crashed, victim)
	case 2:
		if at >= 0 {
			go func() { _ = r.reps[at].TransferLeadership(r.t.Context(), NoMember, nil) }()
		}
	case 3:
		r.isolate(0)
	}
	return crashed
}
