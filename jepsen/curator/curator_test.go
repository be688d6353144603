package curator

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

var (
	targetFlag = flag.String("target", "lockkeeper", "what to test: lockkeeper, or zookeeper for the reference")
	checksFlag = flag.String("checks", "", "which checks: a regular expression for their names; all if empty")
	keepFlag   = flag.Bool("keep", false, "keep the logs also when the tests pass")
)

// patience is for one set of checks; they take about a minute.
const patience = 8 * time.Minute

// checkIntervalMs is how often the member of TestAlone looks for containers and expired nodes.
const checkIntervalMs = 250

var (
	tools *jepsen.Toolbox
	// classes is where the Java program is compiled to.
	classes string
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *targetFlag == "zookeeper" {
		// This one is no key of ZooKeeper's zoo.cfg.
		_ = os.Setenv("JAVA_TOOL_OPTIONS", fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", checkIntervalMs))
	}
	var err error
	if classes, err = os.MkdirTemp("", "lockkeeper-curator-classes-"); err != nil {
		log.Fatal(err)
	}
	status := jepsen.Main(m, &tools, jepsen.Race)
	if err := os.RemoveAll(classes); err != nil {
		log.Print(err)
	}
	os.Exit(status)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	test(t, "cluster", jepsen.ClusterConfig{Members: 3})
}

func TestAlone(t *testing.T) {
	t.Parallel()
	test(t, "alone", jepsen.ClusterConfig{Members: 1, Extra: []string{
		"extendedTypesEnabled=true",
		fmt.Sprintf("znode.container.checkIntervalMs=%d", checkIntervalMs),
	}})
}

// test runs a set of checks against a cluster.
func test(t *testing.T, set string, cfg jepsen.ClusterConfig) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	var err error
	switch *targetFlag {
	case "lockkeeper":
		cfg.Target, err = tools.Lockkeeper()
	case "zookeeper":
		cfg.Target, err = jepsen.ZooKeeper()
	default:
		err = fmt.Errorf("-target: there is no %q", *targetFlag)
	}
	jepsen.Need(t, err)
	program, err := compile()
	jepsen.Need(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg.Dir = jepsen.KeptDir(t, *keepFlag)
	cluster, err := jepsen.StartCluster(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		complaints, err := cluster.Complaints()
		if err != nil {
			t.Error(err)
		}
		for _, c := range complaints {
			t.Error(c)
		}
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of the members' logs:\n%s", cluster.Logs())
		}
	}()
	began := time.Now()
	r := &run{t: t, ctx: ctx, cluster: cluster, logPath: cfg.Dir + "/checks.log"}
	r.run(program(cluster.Servers(), set, *checksFlag))
	t.Logf("figures: %s, %s: %d checks passed of %d, in %.0f s",
		*targetFlag, set, r.passed, len(r.planned), time.Since(began).Seconds())
}
