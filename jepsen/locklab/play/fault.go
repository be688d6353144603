package play

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// A Fault is a story that is played with every way to lock. The fault hits client A, the holder, or
// its servers; B and C wait for the lock and get it in turn.
type Fault struct {
	Name string
	// Text describes the fault, for people.
	Text string
	// Leases is the ratio of this story's lease to the lab's: servers need time to come back.
	Leases int
	// Least is the number of servers that the system needs for it.
	Least int
	// NeedsClock says that it sets the wall clocks of servers, NeedsClientClock A's clock.
	NeedsClock, NeedsClientClock bool

	// A's part. All but crashing has it lock and read first, then comes the fault.
	hit    hit     // its effect while A holds the lock, or asks for it
	during step    // during which of A's steps; 0 is: while it holds the lock
	hold   float64 // leases for which A holds the lock if nobody else is let in
	next   bool    // A goes on when another has been let in, if that is sooner
	past   bool    // A looks at the lock before the fault and not before it writes

	// Left and Right are the numbers of servers that a cut leaves on A's side and on the other one;
	// 0 if the story is about something else.
	Left, Right int
}

// A hit is the effect of a fault.
type hit int

const (
	hitNothing hit = iota
	hitPause
	hitPauseWrite // at a moment of chance while A writes
	hitDelay
	hitCutOut
	hitCutIn
	hitCutBoth
	hitLate  // A's write is under way when A dies
	hitReply // the servers' answers to A are held back while it asks for the lock
	hitCrash
	hitServerPause
	hitServerKill
	hitFailover
	hitClockOne
	hitClockMost
	hitClockDrift
	hitClientClock
	hitDisk
	hitApart
)

// A step of A.
type step int

const (
	stepHeld step = iota
	stepLock
	stepUnlock
)

// None is the story without a fault: the cost of a lock.
const None = "none"

// Faults are all stories, in the order of tables.
var Faults = []Fault{
	{Name: None, Text: "No fault: three clients take turns, then one alone."},
	{Name: "pause-short", Text: "A is stopped (SIGSTOP) for about half a lease before it writes.",
		hit: hitPause, hold: 0.45},
	{Name: "pause-about", Text: "A is stopped for about one lease before it writes.", hit: hitPause, hold: 1},
	{Name: "pause-long", Text: "A is stopped until another has been let in. When it wakes up, it looks at its lock " +
		"and then writes.", hit: hitPause, hold: 4, next: true},
	{Name: "pause-writing", Text: "A has looked at its lock and is about to write when it is stopped, until another " +
		"has been let in. Then it writes.", hit: hitPause, hold: 4, next: true, past: true},
	{Name: "pause-in-write", Text: "A is stopped at some moment while it writes, until another has been let in.",
		hit: hitPauseWrite, hold: 4, next: true, past: true},
	{Name: "net-delay", Text: "All that A sends and receives takes a tenth of a lease longer.", hit: hitDelay, hold: 0.6},
	{Name: "cut-both", Text: "A's network is cut, until another has been let in. A works on, looks at its lock and " +
		"writes (the ledger is not cut off).", hit: hitCutBoth, hold: 4, next: true},
	{Name: "cut-out", Text: "Nothing that A sends arrives; it still receives.", hit: hitCutOut, hold: 4, next: true},
	{Name: "cut-in", Text: "A receives nothing; what it sends arrives.", hit: hitCutIn, hold: 4, next: true},
	{Name: "late-reply", Text: "The answer to A's request for the lock is under way for more than a lease.",
		hit: hitReply, during: stepLock, hold: 1.3},
	{Name: "late-write", Text: "A sends its write, which is under way for longer than a lease, and dies.",
		hit: hitLate, hold: 1.55},
	{Name: "crash-in-lock", Text: "A dies while it asks for the lock, on a slow network.", hit: hitCrash,
		during: stepLock},
	{Name: "crash-held", Text: "A dies while it holds the lock.", hit: hitCrash},
	{Name: "crash-in-unlock", Text: "A dies while it gives the lock back, on a slow network.", hit: hitCrash,
		during: stepUnlock},
	{Name: "server-pause", Text: "The server that decides (primary, leader) is stopped for 0.4 leases while A holds " +
		"the lock.", hit: hitServerPause, hold: 0.7, next: true},
	{Name: "server-kill", Text: "The server that decides is killed and started again with its data.",
		hit: hitServerKill, hold: 0.7, next: true, Leases: 3},
	{Name: "failover", Text: "A replica is down while A gets the lock. The server that decides is killed, the replica " +
		"comes back, and what is left takes over.", hit: hitFailover, hold: 0.8, next: true, Leases: 4, Least: 2},
	{Name: "clock-one", Text: "The wall clock of the server that decides jumps ahead by ten leases.", hit: hitClockOne,
		hold: 0.6, next: true, NeedsClock: true},
	{Name: "clock-most", Text: "The wall clocks of a majority of the servers jump ahead by ten leases.",
		hit: hitClockMost, hold: 0.6, next: true, NeedsClock: true, Least: 2},
	{Name: "clock-back", Text: "The wall clocks of a majority of the servers jump back by ten leases; then A dies.",
		hit: hitClockMost, NeedsClock: true},
	{Name: "clock-drift", Text: "The wall clocks of a majority of the servers run at twice the speed.", hit: hitClockDrift,
		hold: 0.7, next: true, NeedsClock: true},
	{Name: "clock-client", Text: "A's own wall clock jumps ahead by ten leases, and then back by twenty.",
		hit: hitClientClock, hold: 1, NeedsClientClock: true},
	{Name: "disk-lies", Text: "The server that decides is killed, and its disk has forgotten, in spite of fsync, all since " +
		"A asked for the lock. Where several keep the lock, a minority that has missed it comes back, too, and the others " +
		"do not.", hit: hitDisk, hold: 0.8, next: true, Leases: 4},
}

// Cuts are the stories in which the network is cut between servers, in the order of tables. A is on
// the left side, with the server that decides; B and C are on the right side.
var Cuts = []Fault{cut(1, 1), cut(1, 2), cut(1, 3), cut(2, 2), cut(1, 4), cut(2, 3)}

func cut(left, right int) Fault {
	return Fault{
		Name: fmt.Sprintf("cut-%d-%d", left, right),
		Text: fmt.Sprintf("The network is cut: A and %s with the server that decides on one side, B, C and %s on the other. "+
			"A works on, gives the lock back, and asks for it once more.", count(left), count(right)),
		hit: hitApart, hold: 4, next: true, Left: left, Right: right,
	}
}

func count(servers int) string {
	if servers == 1 {
		return "1 server"
	}
	return fmt.Sprintf("%d servers", servers)
}

// All are all stories.
func All() []Fault { return slices.Concat(Faults, Cuts) }

// FindFault is the fault of that name.
func FindFault(name string) (Fault, error) {
	i := slices.IndexFunc(All(), func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("play: there is no fault %q", name)
	}
	return All()[i], nil
}

// Lease is the lease in this story, if the lab's is base.
func (f Fault) Lease(base time.Duration) time.Duration { return time.Duration(max(1, f.Leases)) * base }

// A Plan has the random choices of a round. It is the same for all ways to lock.
type Plan struct {
	Hold  time.Duration // how long A holds the lock if nobody else is let in
	Extra time.Duration // how long after another was let in A goes on
	Crash time.Duration // when it dies, after the step began
	Ahead time.Duration // by how much clocks jump
	Back  time.Duration // how long a server is away
	Into  time.Duration // how long after A has begun to write it is stopped
}

// slowLink is by how much each message is delayed where a crash has to fall into a step, in leases.
const slowLink = 0.04

// maxInto is how long after A has begun to write it is stopped at most.
func maxInto(lease time.Duration) time.Duration { return lease / 50 }

// stepTime is about how long a step takes on a slow link: five messages there and back.
func stepTime(lease time.Duration) time.Duration {
	return time.Duration(5 * slowLink * float64(lease))
}

// NewPlan is the plan of one of several rounds. The same seed makes the same plan.
func NewPlan(seed uint64, f Fault, lease time.Duration, round, rounds int) Plan {
	name := fnv.New64a()
	fmt.Fprintf(name, "%s %d", f.Name, round)
	random := rand.New(rand.NewPCG(seed, name.Sum64()))
	leases := func(from, to float64) time.Duration {
		return time.Duration((from + random.Float64()*(to-from)) * float64(lease)).Round(time.Millisecond)
	}
	p := Plan{
		Hold: leases(0.9*f.hold, 1.1*f.hold), Extra: leases(0.1, 0.2), Ahead: leases(9, 11), Back: leases(0.35, 0.45),
	}
	// A step is one or more messages there and back. The rounds share the time that five take.
	share := (float64(round) + random.Float64()) / float64(max(1, rounds))
	p.Crash = time.Duration(share * float64(stepTime(lease))).Round(time.Millisecond)
	p.Into = time.Duration(random.Float64() * float64(maxInto(lease))).Round(time.Microsecond)
	return p
}
