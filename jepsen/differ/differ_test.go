package differ

import (
	"context"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

var (
	opsFlag    = flag.Int("ops", 0, "how many requests the two servers are sent; 0: as many as there is time for")
	forFlag    = flag.Duration("for", 20*time.Second, "how long to send requests, without -ops")
	seedFlag   = flag.Uint64("seed", 0, "seed of the first round; 0: from the clock")
	roundFlag  = flag.Int("round", 1000, "how many requests a pair of fresh servers gets")
	goOnFlag   = flag.Bool("go-on", false, "go on after a difference")
	shrinkFlag = flag.Duration("shrink", 2*time.Minute,
		"how long to look for the shortest sequence that shows a difference")
)

// maxRound is how long a round may take: lockkeeper's reaper of containers first comes after a
// minute.
const maxRound = 45 * time.Second

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	// The reaper of containers takes no part: when it comes is not a matter of requests.
	_ = os.Setenv("JAVA_TOOL_OPTIONS", "-Dznode.container.checkIntervalMs=100000000 -Dfile.encoding=UTF-8")
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// newArena is where the real ZooKeeper meets lockkeeper.
func newArena(t *testing.T) *arena {
	t.Helper()
	zookeeper, err := jepsen.ZooKeeper()
	jepsen.Need(t, err)
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	return &arena{targets: [2]jepsen.Target{zookeeper, lockkeeper}, dir: t.TempDir()}
}

func TestDiffer(t *testing.T) {
	ar := newArena(t)
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1e9
	}
	first := seed
	began := time.Now()
	l := limit{ops: *opsFlag}
	if l.ops == 0 {
		l = limit{ops: 1 << 30, end: began.Add(*forFlag)}
	}
	explained := make(map[string]int)
	ops := 0
	last := first
	for ; ops < l.ops && !l.over(); seed++ {
		last = seed
		n, diff := ar.round(t, seed, limit{min(*roundFlag, l.ops-ops), l.end}, explained)
		ops += n
		if diff != nil && !*goOnFlag {
			break
		}
	}
	t.Logf("figures: %d requests in %.0f s, seeds %d to %d", ops, time.Since(began).Seconds(), first, last)
	for _, name := range slices.Sorted(maps.Keys(explained)) {
		t.Logf("%6d times: %s", explained[name], name)
	}
}

// limit is where a run ends, whichever comes first.
type limit struct {
	ops int
	end time.Time // zero: none
}

func (l limit) over() bool { return !l.end.IsZero() && time.Now().After(l.end) }

// round is one duel.
func (ar *arena) round(t *testing.T, seed uint64, l limit, explained map[string]int) (int, *difference) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	g := newGenerator(seed, players)
	began := time.Now()
	d, err := ar.open(ctx, g.mood)
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Since(began)
	defer func() {
		for name, n := range d.cmp.explained {
			explained[name] += n
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	done, steps, diff, err := d.fight(ctx, g, l)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if diff != nil {
		t.Errorf("seed %d: %v", seed, diff)
		for _, c := range d.clusters {
			t.Log(c.Logs())
		}
		s, err := ar.shrink(ctx, g.mood, steps, diff, *shrinkFlag)
		if err != nil {
			t.Log(err)
		}
		t.Errorf("the shortest that was found: %v", s)
	}
	if err := d.complaints(); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	t.Logf("seed %d: %d requests, opened in %v, %v", seed, done, opened, time.Since(began))
	return done, diff
}

// fight plays the generator's steps, until a difference or the limit, and compares the whole trees
// in the end.
func (d *duel) fight(ctx context.Context, g *generator,
	l limit) (done int, steps []*Step, diff *difference, err error) {
	began := time.Now()
	for done < l.ops && !l.over() && time.Since(began) < maxRound {
		g.observe(d.a, nil)
		st := g.next()
		steps = append(steps, st)
		var from []stream
		if diff, from, err = d.watch(ctx, st); diff != nil || err != nil {
			return done, steps, diff, err
		}
		g.observe(d.a, from)
		done += max(1, len(st.Requests))
	}
	diff, err = d.walk(ctx)
	return done, steps, diff, err
}
