package jepsen

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// A member's wall clock can be set; its stamps show it.
func TestSetClock(t *testing.T) {
	l := newLabWith(t, time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 1, TestClocks: true})
	conn := l.connect()
	made := func(path string) time.Time {
		t.Helper()
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		_, stat, err := conn.Exists(path)
		if err != nil {
			t.Fatal(err)
		}
		return time.UnixMilli(stat.Ctime)
	}
	before := made("/before")
	if err := l.cluster.Members()[0].SetClock(24 * time.Hour); err != nil {
		t.Fatal(err)
	}
	if wrong := made("/after").Sub(before); wrong < 24*time.Hour || wrong > 25*time.Hour {
		t.Errorf("a clock that was put 24 h forward shows %v more", wrong)
	}
	if err := (&Member{}).SetClock(0); err == nil {
		t.Error("a clock is set that is not there")
	}
}

// While the leader's machine is suspended another member leads; when it wakes, all members serve.
func TestSuspend(t *testing.T) {
	l := newLabWith(t, time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3, TestClocks: true})
	leader, err := l.cluster.AwaitLeader(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Suspend(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := Poll(l.ctx, 20*time.Millisecond, func() error {
		for _, m := range l.cluster.Members() {
			if mode, err := m.Mode(l.ctx); m != leader && err == nil && mode == "leader" {
				return nil
			}
		}
		return errors.New("nobody leads instead of the suspended leader")
	}); err != nil {
		t.Fatal(err)
	}
	if err := leader.Wake(); err != nil {
		t.Fatal(err)
	}
	if err := l.cluster.AwaitServing(l.ctx); err != nil {
		t.Fatal(err)
	}
	if leader.asleep == 0 {
		t.Error("it was suspended for no time")
	}
	if err := (&Member{}).Suspend(l.ctx); err == nil {
		t.Error("a member is suspended that has no clock of its own")
	}
}
