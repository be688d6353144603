package jepsen

import (
	"path"
	"testing"
	"time"
)

// handoffLimit is how long after the kill of a leader a waiting client may have
// to wait for its lock.
const handoffLimit = 5 * time.Second

// TestKillLeader kills the leader again and again while every recipe of every
// library fights for its lock: never two holders, no waiting client waits
// long, no client of another member notices, and nothing is left behind.
func TestKillLeader(t *testing.T) {
	duration := time.Minute
	switch {
	case testing.Short():
		duration = 15 * time.Second
	case *longFlag:
		duration = 10 * time.Minute
	}
	for _, library := range []string{"kazoo", "curator", "gozk"} {
		client(t, library)
	}
	l := newLab(t, 3, duration+3*time.Minute)
	var contenders []*Contender
	add := func(fights []fight, library string, workers []*Worker) {
		for _, f := range fights {
			contenders = append(contenders, f.contenders(path.Join("/locks", library, f.name), workers)...)
		}
	}
	kazoos, curators, gozks := l.start("kazoo", 3), l.start("curator", 3), l.start("gozk", 3)
	add(kazooFights, "kazoo", kazoos)
	add(curatorFights, "curator", curators)
	add(gozkFights, "gozk", gozks)
	// Two languages and three libraries on one path.
	add([]fight{{name: "mixed", recipes: []recipe{{name: "mutex"}}}}, "", []*Worker{curators[0], gozks[0]})
	add([]fight{{name: "mixed", recipes: []recipe{{name: "zklock"}}}}, "", []*Worker{gozks[1]})

	contest := &Contest{Contenders: contenders, History: l.history, Hold: 50 * time.Millisecond}
	if err := contest.Start(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := contest.AwaitRounds(l.ctx, 0, 1); err != nil {
		t.Fatal(err)
	}
	kills, err := KillLeader(l.ctx, l.cluster, contest, duration, 30*time.Second)
	if err != nil {
		t.Error(err)
	}
	if err := contest.Stop(l.ctx); err != nil {
		t.Error(err)
	}
	end := l.history.Len()
	l.stopWorkers()
	l.checkNothingLeft()

	report := l.checkLocks(contenders, 2*kills)
	t.Logf("acquired: %v", report.Acquired)
	l.checkKills(l.history.Ops()[:end])
}

// checkKills reports what followed the kills in the history, and fails the
// test for every broken promise. The comparison's target has promised nothing
// but the lock itself.
func (l *lab) checkKills(ops []Op) {
	l.t.Helper()
	report := CheckKills(ops)
	slowestHandoff, _ := Slowest(report.Handoffs)
	slowestWait, _ := Slowest(report.Waits)
	l.t.Logf("figures: %d kills of the leader; %d times a client was connected to another member then, %d connections of those were lost",
		report.Kills, report.Bystanders, len(report.Dropped))
	l.t.Logf("figures: from the kill until somebody had the lock: %v; the slowest: %+v", Quantiles(report.Handoffs), slowestHandoff)
	l.t.Logf("figures: from the kill until a client that waited then had it: %v; the slowest: %+v", Quantiles(report.Waits), slowestWait)

	complain := l.t.Errorf
	if *targetFlag != "lockkeeper" {
		complain = l.t.Logf
	}
	for _, dropped := range report.Dropped {
		complain("%s", dropped)
	}
	for _, expired := range report.Expired {
		complain("the session of a living client expired: %s", expired)
	}
	for _, wait := range report.Waits {
		if wait.Took == never || wait.Took > handoffLimit {
			complain("kill %d: %s, waiting for %s, got it after %v, want at most %v", wait.Kill, wait.Who, wait.Lock, wait.Took, handoffLimit)
		}
	}
	if report.Bystanders == 0 {
		l.t.Errorf("no client was connected to a surviving member at any kill: the test shows nothing")
	}
	if len(report.Waits) == 0 {
		l.t.Errorf("no client was waiting for a lock at any kill: the test shows nothing")
	}
}
