package splitbrain

import (
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

var (
	targetFlag = flag.String("target", "lockkeeper", "lockkeeper or zookeeper")
	longFlag   = flag.Bool("splitbrain.long", false, "all cases of three to seven members, and those with observers")
)

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// TestPlay cuts real clusters of three and four members in two, and kills members of them.
func TestPlay(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	jepsen.Need(t, jepsen.FindNetwork())
	// 2 dead of three, 2 | 2 of four. TestPictureIsDrawn of cmd/jepsen plays 1 | 2.
	cases := []Case{BriefCases(3)[2], StoryCase(4)}
	if *longFlag {
		cases = nil
		for n := 3; n <= 7; n++ {
			cases = append(cases, Cases(n)...)
		}
		cases = append(cases, ObserverCases()...)
	}
	cfg := Config{Cases: cases, Promises: *targetFlag == "lockkeeper", Dir: jepsen.KeptDir(t, false),
		Tick: 500 * time.Millisecond}
	cfg.Session = 2 * time.Second
	var err error
	if *targetFlag == "zookeeper" {
		cfg.Extra = []string{"syncLimit=5"}
		cfg.Target, err = jepsen.ZooKeeper()
	} else {
		cfg.Target, err = tools.Lockkeeper()
	}
	jepsen.Need(t, err)
	cfg.Progress = func(r *Result) {
		for _, c := range r.Checks {
			if !c.OK {
				t.Errorf("%d voters, %s: %s: %s", r.Case.Cluster.Voters, r.Name, c.What, c.Got)
			}
		}
		t.Logf("figures: %d voters, %s: %s", r.Case.Cluster.Voters, r.Name, slices.Concat(r.Sentences(), r.Notes))
	}
	played, err := Play(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(played.Results) != len(cases) {
		t.Errorf("%d cases were played, want %d", len(played.Results), len(cases))
	}
}
