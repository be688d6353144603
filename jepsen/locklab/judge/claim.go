package judge

import (
	"fmt"
	"slices"
	"strings"

	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/play"
)

// A Claim is an expectation that was written down before anything was measured.
type Claim struct {
	ID string
	// Says is the claim in a sentence, Source who argues it where.
	Says, Source string
	faults       []string
	ways         func(lock.Way) bool
	when         func(Figures) bool // whether a case says anything; nil: every case does
	holds        func(Figures) bool
}

// Sources.
const (
	kleppmann  = "Kleppmann, How to do distributed locking, 2016"
	antirez    = "Sanfilippo (antirez), Is Redlock safe?, 2016"
	burrows    = "Burrows, The Chubby lock service, 2006"
	redisDocs  = "the documentation of Redis on distributed locks"
	ongaro     = "Ongaro, Consensus: Bridging Theory and Practice, 2014"
	common     = "often said"
	guarantees = "docs/guarantees.md"
)

var (
	pauses = []string{"pause-short", "pause-about", "pause-long", "pause-writing"}
	cuts   = []string{"cut-both", "cut-out", "cut-in"}
	clocks = []string{"clock-one", "clock-most", "clock-back", "clock-drift"}
)

// on are the ways of these systems, with the names or all, that are no twins.
func on(systems string, names ...string) func(lock.Way) bool {
	return func(w lock.Way) bool {
		named := len(names) == 0
		for _, name := range names {
			named = named || strings.Contains(w.Name, name)
		}
		return !w.Broken && named && slices.Contains(strings.Fields(systems), w.System)
	}
}

func every(w lock.Way) bool  { return !w.Broken }
func locks(w lock.Way) bool  { return !w.Broken && !w.Optimistic }
func fenced(w lock.Way) bool { return !w.Broken && w.Fenced }

// recipe are lockkeeper's own recipes, which tell their holders.
func recipe(w lock.Way) bool { return on("lockkeeper", "recipes", "mutex")(w) }

// late are cases in which somebody wrote late, or could have.
func late(f Figures) bool { return f.Two+f.RefusedWrites+f.LostUpdates[ledger.Open] > 0 }

func none(f Figures) bool { return f.Two == 0 }

// Claims are all expectations. Each case is judged by itself.
var Claims = []Claim{
	{"pause", "A holder that is stopped for longer than the lease, between its last look at the lock and its write, " +
		"writes while another holds the lock: no lock can prevent it.", kleppmann,
		[]string{"pause-writing"}, locks, nil, func(f Figures) bool { return f.Two > 0 }},
	{"fence", "If every request carries a token that grows, and the resource refuses smaller ones, no update is lost, " +
		"whatever happens to the holder.", kleppmann,
		nil, fenced, late, func(f Figures) bool { return f.LostUpdates[ledger.Fenced] == 0 }},
	{"fence-store", "The fences of lockkeeper for files, databases, Redis, etcd and objects lose no update, in Go, Java and " +
		"Python.", guarantees,
		nil, fenced, func(f Figures) bool { return len(f.Places) > 0 && late(f) },
		func(f Figures) bool { return f.AllPlaces().Lost == 0 }},
	{"fence-writes", "It is enough to compare the tokens of writes.", "the usual picture of fencing",
		nil, fenced, late, func(f Figures) bool { return f.LostUpdates[ledger.WritesOnly] == 0 }},
	{"fence-instead", "Fencing makes the lock unnecessary: then a late holder does no harm, and loses nothing.", common,
		pauses, fenced, late, func(f Figures) bool { return f.LostUpdates[ledger.Fenced]+f.RefusedWrites == 0 }},
	{"asked", "If the resource asks the lock service at each request whether the token is that of the holder " +
		"(Chubby's CheckSequencer), no update is lost.", burrows,
		nil, func(w lock.Way) bool { return fenced(w) && w.Ask != nil }, late,
		func(f Figures) bool { return f.LostUpdates[ledger.Asked] == 0 }},
	{"versions", "If a version is compared at the update, no update is lost, with any lock and with none.", common,
		nil, every, late, func(f Figures) bool { return f.LostUpdates[ledger.Versions] == 0 }},
	{"optimistic", "Without a lock, and with a version in the row that is compared when it is updated, no update of the " +
		"row is lost.", common,
		nil, func(w lock.Way) bool { return w.Optimistic }, nil, func(f Figures) bool { return f.LostUpdates[ledger.Inside] == 0 }},
	{"guard", "lockkeeper: data in the cluster that are written with Grant.Guard lose no update.", guarantees,
		nil, on("lockkeeper", "guard"), nil, func(f Figures) bool { return f.LostUpdates[ledger.Inside] == 0 }},
	{"redlock-clocks", "RedLock depends on the wall clocks of its servers: clocks that jump ahead let a second holder in.",
		kleppmann, []string{"clock-most"}, on("redis-3 redis-5"), nil, func(f Figures) bool { return f.Early > 0 }},
	{"redlock-drift", "RedLock needs clocks that run at about the same speed: at twice the speed it lets a second holder in.",
		antirez, []string{"clock-drift"}, on("redis-3 redis-5"), nil, func(f Figures) bool { return f.Early > 0 }},
	{"redlock-minority", "RedLock bears the clock of one server that jumps, for a lock that all servers know.",
		antirez, []string{"clock-one"}, on("redis-3 redis-5"), nil, none},
	{"redlock-reply", "A client that looks at its clock after it has got the answers is not deceived by slow ones.",
		antirez, []string{"late-reply"}, on("redis-3 redis-5"), nil, none},
	{"redis-failover", "Redis replicates asynchronously: a failover can lose a lock.", redisDocs,
		[]string{"failover"}, on("redis-sentinel"), nil, func(f Figures) bool { return f.Two > 0 }},
	{"mariadb-failover", "So does MariaDB with asynchronous replication.", common,
		[]string{"failover"}, on("mariadb-replica"), nil, func(f Figures) bool { return f.Two > 0 }},
	{"disks", "A majority needs disks that do not lie: one that forgets what it has acknowledged can lose a lock.", ongaro,
		[]string{"disk-lies"}, on("redis-3 redis-5 etcd zookeeper lockkeeper"), nil,
		func(f Figures) bool { return f.Two+f.Overtaken > 0 }},
	{"majority-failover", "A lock that a majority keeps survives the loss of the leader.", burrows,
		[]string{"failover", "server-kill"}, on("etcd zookeeper lockkeeper"), nil, none},
	{"setnx", "SETNX and then EXPIRE leaves a lock behind for ever if the client dies in between.", redisDocs,
		[]string{"crash-in-lock"}, on("redis redis-sentinel", "naive", "setnx"), nil, func(f Figures) bool { return f.Left > 0 }},
	{"session-lock", "The lock of a database session has no lease, so a pause does not take it away.", common,
		[]string{"pause-long", "pause-writing"}, on("mariadb mariadb-replica postgresql", "get-lock", "advisory"),
		nil, none},
	{"zookeeper-clocks", "ZooKeeper has no expiry, so clocks that jump do not matter to it.", common,
		clocks, on("zookeeper"), nil, func(f Figures) bool { return f.Two+f.Left == 0 }},
	{"zookeeper-network", "ZooKeeper has no expiry, so long network calls do not matter to it: nobody else gets the lock.",
		common, cuts, on("zookeeper"), nil, func(f Figures) bool { return f.Overtaken == 0 }},
	{"lock-delay", "A lock-delay keeps late writes of a dead holder out, also where nobody compares tokens.", burrows,
		[]string{"late-write"}, on("lockkeeper", "delay"), nil, func(f Figures) bool { return f.LostUpdates[ledger.Open] == 0 }},
	{"told", "lockkeeper: a holder that runs is told that its lock is lost before another is let in (C6).", guarantees,
		cuts, on("lockkeeper"), nil, func(f Figures) bool { return f.Two+f.Untold == 0 }},
	{"pause-truth", "lockkeeper's recipes: after a pause a look at the lock says the truth.", guarantees,
		[]string{"pause-long"}, recipe, nil, func(f Figures) bool { return f.LostUpdates[ledger.Open] == 0 }},
	{"clocks", "lockkeeper: wall clocks that jump, on any member, matter to nobody (C8).", guarantees,
		clocks, on("lockkeeper"), nil, func(f Figures) bool { return f.Two+f.Left == 0 }},
	{"etcd-clocks", "etcd counts leases by the monotonic clock: wall clocks do not matter.", "etcd's documentation",
		clocks, on("etcd"), nil, func(f Figures) bool { return f.Two+f.Left == 0 }},
	{"client-clock", "The wall clock of a client of Curator or kazoo matters to nobody.", common,
		[]string{"clock-client"}, func(w lock.Way) bool { return w.ClientClock }, nil,
		func(f Figures) bool { return f.Two+f.Overtaken+f.Left == 0 }},
	{"no-fault", "Without a fault every lock excludes, and no update is lost.", common,
		[]string{play.None}, locks, nil, func(f Figures) bool { return f.Two+f.LostUpdates[ledger.Open]+f.Disorder == 0 }},
}

// A Result is a case with its figures.
type Result struct {
	Way     lock.Way
	Case    *play.Case
	Figures Figures
}

// Merge adds other rounds of the same case. Of many rounds it keeps the history of the one that
// shows most, which is the first one, and of a few that could not be played to their end.
func (r *Result) Merge(o Result) {
	const most = 20
	rounds := append(slices.Clone(r.Case.Rounds), o.Case.Rounds...)
	worst := r.Figures.Worst
	if len(r.Case.Rounds) == 0 || len(o.Case.Rounds) > 0 && o.Figures.shows() > r.Figures.shows() {
		worst = len(r.Case.Rounds) + o.Figures.Worst
	}
	merged := *r.Case
	r.Case = &merged
	r.Figures.Merge(o.Figures)
	if len(rounds) > most {
		kept := []play.Round{rounds[worst]}
		for _, round := range rounds {
			if round.Broken != "" && len(kept) < most {
				kept = append(kept, round)
			}
		}
		rounds, worst = kept, 0
	}
	r.Case.Rounds, r.Figures.Worst = rounds, worst
}

// shows is how much the figures show, to compare those of two batches.
func (f Figures) shows() int {
	return f.Two + 100*f.LostUpdates[ledger.Open] + 10_000*max(0, f.AllPlaces().Lost)
}

// An Outcome is the outcome of a claim.
type Outcome struct {
	Claim
	// Held and Not are the names of the cases in which it held, and did not.
	Held, Not []string
}

// NotPlayed is the verdict on a claim that no case says anything about.
const NotPlayed = "not played"

// Verdict is "as argued", "not as argued", "in part", or NotPlayed.
func (o Outcome) Verdict() string {
	switch {
	case len(o.Held)+len(o.Not) == 0:
		return NotPlayed
	case len(o.Not) == 0:
		return "as argued"
	case len(o.Held) == 0:
		return "not as argued"
	}
	return "in part"
}

// Text has the number of cases in which it held, and names the others.
func (o Outcome) Text() string {
	if len(o.Not) == 0 {
		return fmt.Sprintf("in %d of %d", len(o.Held), len(o.Held))
	}
	text := fmt.Sprintf("in %d of %d; not: ", len(o.Held), len(o.Held)+len(o.Not))
	const most = 6
	if len(o.Not) > most {
		return text + strings.Join(o.Not[:most], ", ") + fmt.Sprintf(" and %d more", len(o.Not)-most)
	}
	return text + strings.Join(o.Not, ", ")
}

// Outcomes compares all claims with the measurements.
func Outcomes(results []Result) []Outcome {
	var all []Outcome
	for _, c := range Claims {
		o := Outcome{Claim: c}
		for _, r := range results {
			played := r.Case.Skipped == "" && r.Figures.Broken < r.Figures.Rounds
			switch {
			case !played || !c.ways(r.Way) || c.faults != nil && !slices.Contains(c.faults, r.Case.Fault):
			case c.when != nil && !c.when(r.Figures):
			case c.holds(r.Figures):
				o.Held = append(o.Held, r.Case.Name())
			default:
				o.Not = append(o.Not, r.Case.Name())
			}
		}
		all = append(all, o)
	}
	return all
}
